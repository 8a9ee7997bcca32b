"""One verb on all matching jobs, however many: in batches, in the background, resumable.

An operation is stored as entries of the shared document "bulk": the task, the position, its driver, and what each
driver moved.  Its drivers are the maintenance processes of workers (`tick`) and the page that shows its progress.  One
thread drives at a time.  A driver that was delayed so long that another took over does no harm: only one of them can
move a job, and a batch is counted once.

Long because the entries, the drivers and the steps of an operation are one protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from threading import get_native_id
from time import monotonic
from typing import Any
from uuid import uuid4

from django_jobs import operations
from django_jobs.browse.counts import job_counts, queue_names
from django_jobs.browse.groups import matching_groups
from django_jobs.browse.match import Match
from django_jobs.browse.pages import read_mark, write_mark
from django_jobs.browse.search import number_in
from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.exceptions import JobsError
from django_jobs.operations.actions import batches
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.refusals import Refusals
from django_jobs.serialization.checked import check_fields, texts_in, typed
from django_jobs.serialization.record import enqueued_ms
from django_jobs.stores import get_store
from django_jobs.stores.values.documents import BROKEN
from django_jobs.stores.values.lists import GROUPED
from django_jobs.stores.values.sizes import FIRST_READ, MAX_BYTES, READ_MORE

DOCUMENT = "bulk"
#: A driver that has not reported for this long (ms) is considered dead; another one continues after its last batch.
DRIVER_LIFE = 30_000
#: How long (ms), and how many, ended operations are listed.
KEEP = 7 * 86_400_000
KEEP_NUMBER = 50
BATCH = 1_000
#: The same for an operation that reads each job to find it: records may be large.
INDEXED_BATCH = 200
#: about operations whose end cannot be logged; seconds.
_untold = Complaints(3600.0)

#: Jobs that an operation names in its report.
NAMED = 200

_BIRTH = uuid4().hex[:12]
logger = logging.getLogger("django_jobs")
#: Called with an operation that was followed, once it has ended: the audit log gets an entry.
ended: set[Callable[[Operation], None]] = set()


class Exists(Exception):
    """There is an operation with that id."""


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    verb: str
    state: State
    match: Match
    queues: list[str]
    #: the user who started it, as text.
    user: str
    #: ms: jobs that came into the state later are left alone, so that no job is processed twice, and none that the
    #: user was not shown.
    started: int
    #: number of jobs in the state when it started; `seen` grows to about this.
    total: int
    run_at: int = 0
    reason: str = ""
    #: "revive" also starts jobs again that are delivered at most once and may have been started.
    start_again: bool = False
    #: the query as a caller of the API wrote it, and that such a caller is the user.
    query: str = ""
    over_http: bool = False
    #: the jobs are found by the index of failed jobs; an operation that an older version began has no such entry.
    indexed: bool = False
    #: position: index of the queue, and the cursor in it.
    index: int = 0
    cursor: str = ""
    #: ms; 0 = not finished.
    finished: int = 0
    stopped: bool = False
    #: numbers of jobs that were looked at, moved, and asked to stop.
    seen: int = 0
    moved: int = 0
    asked: int = 0
    #: number of jobs that stayed, because they are delivered at most once and may have been started.
    held: int = 0
    #: number of jobs that stayed, because another job holds their unique key.
    taken: int = 0
    driver: str = ""
    driven_until: int = 0
    #: somebody wants to know when it has ended; it was told.
    followed: bool = False
    told: bool = False
    #: queue and id of the first jobs that it moved or asked to stop, up to NAMED of each driver.
    named: tuple[tuple[str, str], ...] = ()

    @property
    def percent(self) -> int:
        if self.finished and not self.stopped:
            return 100
        return min(99, self.seen * 100 // self.total) if self.total else 0


def start(
    verb: str,
    state: State,
    match: Match,
    *,
    user: str = "",
    run_at: int = 0,
    reason: str = "",
    start_again: bool = False,
    id: str = "",
    as_of: int = 0,
    **more: Any,
) -> Operation:
    """Start an operation that applies `verb` to every job that matches and was in `state` at the time `as_of` (ms;
    0 = now).  No job has moved when this returns.  `more`: fields of Operation that an older version need not read.

    Raises Exists if an operation has this `id`: of two calls at the same moment, one starts it."""
    if state not in operations.VERBS[verb]:
        raise ValueError(f"{operations.word_of(verb)!r} does not apply to jobs that are {state}.")
    if match.queue:
        operations.check_queue(match.queue)
    queues = [match.queue] if match.queue else queue_names()
    total = sum(stats.counts.get(state, 0) for stats in job_counts(queues).queues.values())
    store, id = get_store(), id or uuid4().hex
    task: dict[str, Any] = {
        "verb": operations.word_of(verb),
        "state": state.value,
        "match": match.stored(),
        "queues": queues,
        "user": user,
    }
    task |= {"started": as_of or store.now(), "total": total, "run_at": run_at, "reason": reason}
    # An older version does not read an operation with these entries, and so cannot leave them out.
    task |= more | ({"start_again": True} if start_again else {})
    if state in GROUPED and not match.id and match.has_groups:
        task |= {"indexed": True, "total": number_in(state, match, matching_groups(state, match, queues))}
    elif match.id:
        task |= {"total": 1}
    elif match.span:
        task |= {"total": store.count_within(queues, state, match.span)}
    entries = {id: task, f"{id}/followed": True if task.get("over_http") else None}
    old = forget_old(store.get_document(DOCUMENT), store.now())
    if not store.update_document(DOCUMENT, entries | old, expected={id: None}):
        raise Exists(id)
    return _read(id, {id: task})


def operations_list() -> list[Operation]:
    """Return every known operation, latest first."""
    document = get_store().get_document(DOCUMENT)
    found = [operation for key in document if "/" not in key and (operation := read(key, document))]
    return sorted(found, key=lambda operation: -operation.started)


def unreadable() -> list[str]:
    """Return the ids of operations whose entries are damaged.  They are not continued."""
    document = get_store().get_document(DOCUMENT)
    return sorted(key for key in document if "/" not in key and read(key, document) is None)


def get(id: str) -> Operation | None:
    document = get_store().get_document(DOCUMENT)
    return read(id, document) if id in document and "/" not in id else None


def stop(id: str) -> bool:
    """Stop an operation after its current batch.  Moved jobs stay where they are.  Returns False if it has ended, or is
    stopped already."""
    key = f"{id}/stopped"
    return get_store().update_document(DOCUMENT, {key: True}, expected={key: None, f"{id}/finished": None})


def tick(seconds: float = 0.5) -> bool:
    """Drive the unfinished operations for about `seconds`.  Returns whether anything is left to do."""
    unfinished = [operation for operation in operations_list() if not operation.finished]
    refusals = Refusals()
    for operation in reversed(unfinished):
        with refusals.put_off():
            drive(operation.id, seconds / len(unfinished))
    tell_ended()
    refusals.raise_last()
    return any(not operation.finished for operation in operations_list()) if unfinished else False


def drive(id: str, seconds: float) -> None:
    """Do at least one batch of one operation, for about `seconds`, unless another driver is active."""
    store, me = get_store(), f"{_BIRTH}-{get_native_id()}"
    deadline = monotonic() + seconds
    document = store.get_document(DOCUMENT)
    operation = read(id, document)
    if operation is None or (operation.driver not in ("", me) and operation.driven_until > store.now()):
        return
    if not claim_wheel(id, me, document.get(f"{id}/driver")):
        return
    settle(operation)
    while (operation := read(id, store.get_document(DOCUMENT))) and not operation.finished and operation.driver == me:
        step(operation, me)
        if monotonic() >= deadline:
            leave_wheel(id, me)
            return


def follow(id: str) -> None:
    """Have `ended` called when this operation has ended, by whoever drives it."""
    get_store().update_document(DOCUMENT, {f"{id}/followed": True})


def tell_ended() -> None:
    """Tell of the operations that were followed and have ended.  If telling fails, it is tried again later.  One thread
    tells at a time; if it dies at it, another tells again."""
    store, me = get_store(), f"{_BIRTH}-{get_native_id()}"
    for operation in operations_list():
        if operation.finished and operation.followed and not operation.told and ended:
            document = store.get_document(DOCUMENT)
            latest, was = read(operation.id, document), document.get(f"{operation.id}/driver")
            if latest is None or latest.driven_until > store.now() or not claim_wheel(operation.id, me, was):
                continue
            try:
                for each in ended:
                    each(operation)
            except Exception as error:
                if _untold.is_new(error, operation.id):
                    logger.exception("The end of bulk operation %s cannot be logged now", operation.id)
            else:
                store.update_document(DOCUMENT, {f"{operation.id}/told": True})
            leave_wheel(operation.id, me)


def claim_wheel(id: str, me: str, was: Any = None) -> bool:
    """Record that this thread is the driver, unless the entry is no longer `was`: another thread was faster, perhaps so
    much that it has told of the end and let go."""
    store, key = get_store(), f"{id}/driver"
    entry = [me, store.now() + DRIVER_LIFE]
    return store.update_document(DOCUMENT, {key: entry}, expected={key: was, f"{id}/told": None})


def leave_wheel(id: str, me: str) -> None:
    """Let others drive, unless another thread is the driver by now."""
    store, key = get_store(), f"{id}/driver"
    entry = store.get_document(DOCUMENT).get(key)
    if entry and entry[0] == me:
        store.update_document(DOCUMENT, {key: None}, expected={key: entry})


def step(operation: Operation, me: str) -> None:
    """Do one batch: walk, choose, act, and record the position and the counts."""
    store, id = get_store(), operation.id
    if operation.stopped or operation.index >= len(operation.queues):
        store.update_document(DOCUMENT, {f"{id}/finished": store.now(), f"{id}/driver": None})
        return
    queue = operation.queues[operation.index]
    try:
        ids, cursor = next_ids(operation, queue)
    except ValueError:  # a damaged position: begin again, as jobs that have moved are no longer in the state
        ids, cursor = next_ids(replace(operation, cursor=""), queue)
    by_error = operation.indexed and not operation.match.tag  # groups by a tag were not chosen by job type and error
    accepts = operation.match.accepts_rest if by_error else operation.match.accepts
    chosen = [info.id for info in look_at(queue, ids) if belongs(operation, info) and accepts(info)]
    doing, by = f"{id}/doing/{me}", f"{id}/by/{me}"
    store.update_document(DOCUMENT, {doing: [queue, chosen]})
    run_at, why, again = operation.run_at, operation.reason, operation.start_again
    done = operations.act(operation.verb, queue, chosen, run_at=run_at, reason=why, start_again=again)
    document = store.get_document(DOCUMENT)
    counted = document.get(by)
    mine = five(counted or [0])
    more = (len(ids), len(done.moved), len(done.asked), len(done.held), len(done.taken))
    sums = [before + now for before, now in zip(mine, more, strict=True)]
    changes: dict[str, Any] = {by: sums, doing: None}
    names = document.get(f"{id}/named/{me}", [])
    if len(names) < NAMED and (done.moved or done.asked):
        changes[f"{id}/named/{me}"] = [*names, *([queue, each] for each in (*done.moved, *done.asked))][:NAMED]
    now = read(id, document)
    if now is not None and now.driver == me:
        changes[f"{id}/at"] = [operation.index, cursor] if cursor else [operation.index + 1, ""]
        changes[f"{id}/driver"] = [me, store.now() + DRIVER_LIFE]
    # Without its entry, this thread was delayed longer than DRIVER_LIFE, and another driver has counted this batch.
    store.update_document(DOCUMENT, changes, expected={doing: [queue, chosen], by: counted})


def finish(operation: Operation) -> Operation:
    """Drive an operation to its end, and return it.  Raises JobsError if its state cannot be read any more."""
    while not operation.finished:
        drive(operation.id, 60.0)
        latest = get(operation.id)
        if latest is None:
            raise JobsError(
                "The stored state of this operation cannot be read any more. It has stopped before its end."
            )
        operation = latest
    return operation


def next_ids(operation: Operation, queue: str) -> tuple[Sequence[str], str]:
    """Return the ids of the next batch, and where the batch after it begins ("" = there is none)."""
    span = operation.match.span
    if operation.match.id:
        return [info.id for info in look_at(queue, [operation.match.id]) if belongs(operation, info)], ""
    if not operation.indexed and span is None:
        return get_store().ids(queue, operation.state, operation.cursor, BATCH)
    groups = matching_groups(operation.state, operation.match, [queue]) if operation.indexed else None
    after = read_mark(operation.cursor)
    jobs, mark = get_store().listed(
        [queue], operation.state, INDEXED_BATCH, after, groups=groups, reverse=True, span=span
    )  # fmt: skip
    return [info.id for info in jobs], write_mark(mark) if mark else ""


def settle(operation: Operation) -> None:
    """Count the jobs of dead drivers' unfinished batches that are no longer in their old state."""
    store, id = get_store(), operation.id
    document = store.get_document(DOCUMENT)
    for key, entry in document.items():
        if not key.startswith(f"{id}/doing/"):
            continue
        match entry:
            case [str(queue), list(chosen)] if all(isinstance(each, str) for each in chosen):
                pass
            case _:  # damaged entry: the jobs that it moved stay uncounted
                store.update_document(DOCUMENT, {key: None})
                continue
        left = {info.id for info in look_at(queue, chosen) if belongs(operation, info)}
        by = key.replace("/doing/", "/by/")
        counted = document.get(by)
        seen, moved, *rest = five(counted or [0])
        sums = [seen + len(chosen) - len(left), moved + len(chosen) - len(left), *rest]
        # Its driver may live and count it at this moment: then one of the two counts.
        store.update_document(DOCUMENT, {by: sums, key: None}, expected={key: entry, by: counted})


def five(sums: Sequence[int]) -> Sequence[int]:
    """Return the numbers seen, moved, asked, held and taken; an older version did not write the last ones."""
    return [*sums, 0, 0, 0, 0, 0][:5]


def look_at(queue: str, ids: Sequence[str]) -> Iterator[JobInfo]:
    """Yield these jobs.  Reads few at first, then as many as MAX_BYTES allows for the largest record so far."""
    at, most, largest = 0, FIRST_READ, 1
    while at < len(ids):
        infos = get_store().get_many(queue, ids[at : at + most])
        at += most
        largest = max([largest, *(len(info.record) for info in infos)])
        most = min(operations.BATCH, most * READ_MORE, max(1, MAX_BYTES // largest))
        yield from infos


def belongs(operation: Operation, info: JobInfo) -> bool:
    """Return whether this job was in the state when the operation started.  A moved job may have come back since."""
    if info.state is not operation.state or (operation.run_at and info.at == operation.run_at):
        return False  # one that was rescheduled to a time of the same list is met again
    return was_there(info, operation.started)


def as_shown(queue: str, ids: Sequence[str], state: State, at: int) -> list[str]:
    """Return the jobs that are as a page showed them, in `state`, at that time (ms): they have not ended, or have the
    end that it showed.  Whoever reads that page does not know what others retried, cancelled or started again since."""
    found = [info for some in batches(ids) for info in get_store().get_many(queue, some, moved=True)]
    return [
        info.id for info in found if not FINISHED & {info.state, state} or (info.state is state and was_there(info, at))
    ]


def was_there(info: JobInfo, at: int) -> bool:
    """Return whether this job was in its state at that time (ms) already."""
    if info.state in FINISHED or info.state is State.RUNNING:
        return info.at <= at
    last = info.attempts[-1].at if info.attempts else 0
    return max(last, info.since, enqueued_ms(info.record, 0)) <= at


def read(id: str, document: dict[str, Any]) -> Operation | None:
    """Read an operation from the document's entries; None if they are damaged."""
    try:
        operation = _read(id, document)
    except BROKEN:
        return None
    return operation if operation.state in operations.VERBS.get(operation.verb, ()) and operation.index >= 0 else None


def _read(id: str, document: dict[str, Any]) -> Operation:
    task = dict(document[id])
    index, cursor = document.get(f"{id}/at", (0, ""))
    driver, until = document.get(f"{id}/driver", ("", 0))
    sums = [entry for key, entry in document.items() if key.startswith(f"{id}/by/")]
    task["verb"] = operations.verb_of(task["verb"])
    task["match"] = typed(Match, task["match"])
    task["state"] = State(task["state"])
    task["queues"] = texts_in(task["queues"])
    operation = Operation(
        id,
        **task,
        index=index,
        cursor=cursor,
        finished=document.get(f"{id}/finished") or 0,
        stopped=document.get(f"{id}/stopped") or False,
        seen=sum(entry[0] for entry in sums),
        moved=sum(entry[1] for entry in sums),
        asked=sum(entry[2] for entry in sums),
        held=sum(five(entry)[3] for entry in sums),
        taken=sum(five(entry)[4] for entry in sums),
        driver=driver,
        driven_until=until,
        followed=bool(document.get(f"{id}/followed")),
        told=bool(document.get(f"{id}/told")),
        named=tuple(
            (str(queue), str(each))
            for key, entry in document.items()
            if key.startswith(f"{id}/named/")
            for queue, each in entry
        ),
    )
    check_fields(Operation, {field.name: getattr(operation, field.name) for field in dataclass_fields(operation)})
    return operation


def forget_old(document: dict[str, Any], now: int) -> dict[str, None]:
    """Return the changes that remove operations that ended long ago, or the oldest if there are too many."""
    ended = sorted(
        (at, key.partition("/")[0]) for key, at in document.items() if key.endswith("/finished") and isinstance(at, int)
    )
    old = {id for at, id in ended if at < now - KEEP} | {id for _, id in ended[: max(0, len(ended) - KEEP_NUMBER)]}
    return {key: None for key in document if key.partition("/")[0] in old}
