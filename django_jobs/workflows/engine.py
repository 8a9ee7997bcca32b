"""What follows from the ends of jobs: reads their notes, tells their workflows, and enqueues what may start.

Everything here may be done twice, by several processes, and again after a crash at any line: a note that was applied
changes nothing, a step's id is derived from its workflow, and the store enqueues no id twice.  A note is dropped last.

Normally the process that ended the jobs does it at once; maintenance does what was left (`advance`), and checks each
workflow now and then, in case a note was lost with the data of its server (`check`).

Long because a check does again what each other function here may have left undone: it is read beside them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from django.db import Error as DatabaseFault

from django_jobs import outbox
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import FINISHED, Added, JobInfo, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import StoreCorrupt, StoreError, StoreMisconfigured
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.runtime.refusals import Refusals
from django_jobs.serialization.checked import read_count
from django_jobs.serialization.record import job_in, name_of
from django_jobs.signals import job_enqueued
from django_jobs.stores.values.documents import BROKEN
from django_jobs.stores.values.sizes import MAX_BATCH, chunks, grouped, in_batches
from django_jobs.stores.values.workflows import (
    DELETED,
    ENDS_AT_ONCE,
    LIVE,
    MOST_STEPS,
    End,
    Followed,
    Note,
    ReadyStep,
)
from django_jobs.workflows.packing import Start, unpack, with_results
from django_jobs.workflows.reading import outline, read_stand

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs")

#: ms after which a workflow is checked: after it was enqueued, closed or cancelled; later, while it goes on.
CHECK_SOON, CHECK = 3_000, 60_000
#: Jobs that one check looks up.
_LOOKED_UP = 1000
#: Raised for one workflow that cannot be read or continued, while others can.
FAULTY = (StoreCorrupt, StoreMisconfigured, *BROKEN)
#: about workflows that cannot be checked; seconds.
_unreadable = Complaints(3600.0)


def step_of(workflow: str, job_id: str) -> str:
    """Return what a workflow calls the step with this job: its number; a batch calls it by the job's id."""
    return job_id.removeprefix(f"{workflow}.") if workflow.startswith("w") else job_id


def job_id_of(workflow: str, step: str) -> str:
    """Return the id of the job of a step, or of a callback of a batch."""
    return f"{workflow}.{step}"


# -- notes ----------------------------------------------------------------------


def advance(store: Store, queue: str) -> int:
    """Read the notes of a queue, and do all that follows from them.  Returns how many were read: none if another
    process reads them; it goes on until no note is left.

    Raises StoreError; then the notes stay, and the next caller begins again."""
    reader, read, notes = os.urandom(9).hex(), 0, list[Note]()
    try:
        while notes := store.take_notes(queue, reader, notes):
            if ACTIVE:
                crashpoint("workflow.note_read")
            _follow_all(store, _by_workflow(notes))
            read += len(notes)
            if ACTIVE:
                crashpoint("workflow.followed")
    except BaseException:
        with suppress(StoreError):
            store.take_notes(queue, reader, most=0)  # ends our turn
        raise
    if ACTIVE and read:
        crashpoint("workflow.note_dropped")
    return read


def _follow_all(store: Store, ends: Mapping[str, Sequence[End]]) -> None:
    """Apply the ends to their workflows, and enqueue what may start, for all of them together."""
    for some in _in_parts(ends):
        ready: list[tuple[str, Sequence[ReadyStep]]] = []
        for (workflow, _), answer in zip(some, store.end_steps_of_many(some), strict=True):
            if isinstance(answer, StoreError):
                _cannot_go_on(workflow, answer)
            elif answer.ready:
                ready.append((workflow, answer.ready))
        if ACTIVE:
            crashpoint("workflow.applied")
        _start_all(store, ready)


def _in_parts(ends: Mapping[str, Sequence[End]]) -> Iterator[list[tuple[str, list[End]]]]:
    """Yield as many ends as one call applies: workflows, each with its ends."""
    flat = ((workflow, end) for workflow, some in ends.items() for end in some)
    for part in in_batches(flat, lambda each: len(each[1].result or b""), ENDS_AT_ONCE):
        yield [(workflow, [end for _, end in some]) for workflow, some in groupby(part, itemgetter(0))]


def _start_all(store: Store, ready: Sequence[tuple[str, Sequence[ReadyStep]]]) -> None:
    """Do `_start` for all of these workflows: in one call if possible; one by one if the store refuses that."""
    try:
        start(store, [each for workflow, steps in ready for each in _starts(store, workflow, steps)])
        are_started = True
    except FAULTY:
        are_started = False
    for workflow, steps in ready:
        try:
            _mark_callbacks(store, workflow, steps) if are_started else _start(store, workflow, steps)
        except FAULTY as error:
            _cannot_go_on(workflow, error)


def _cannot_go_on(workflow: str, error: Exception) -> None:
    """Its notes must not keep those of others from being read.  Doctor names it, and its check tries again."""
    if not isinstance(error, FAULTY):
        raise error
    logger.error("Workflow %s cannot go on", workflow, exc_info=error)


def _by_workflow(notes: Iterable[Note]) -> dict[str, list[End]]:
    found: dict[str, list[End]] = {}
    for note in notes:
        ends = found.setdefault(note.workflow, [])
        for id, result in note.jobs:
            ends.append(End(step_of(note.workflow, id), note.number, note.state, result))
    return found


def follow(store: Store, workflow: str, ends: Sequence[End], verb: str = "") -> Followed:
    """Apply ends to their workflow, and enqueue what may start."""
    followed = store.end_steps(workflow, ends, verb)
    if ACTIVE:
        crashpoint("workflow.applied")
    _start(store, workflow, followed.ready)
    return followed


def _start(store: Store, workflow: str, ready: Sequence[ReadyStep]) -> None:
    """Enqueue steps of a workflow, or callbacks of a batch: these are marked, because their ends are noted nowhere."""
    if ready:
        start(store, _starts(store, workflow, ready))
        _mark_callbacks(store, workflow, ready)


def _mark_callbacks(store: Store, workflow: str, ready: Sequence[ReadyStep]) -> None:
    callbacks = [each.step for each in ready if each.step.startswith("on_")]
    if callbacks:
        store.mark_started(workflow, callbacks)


def _starts(store: Store, workflow: str, ready: Iterable[ReadyStep]) -> Iterator[Start]:
    for step, packed, results in ready:
        what = packed
        if what is None:
            what, wants = store.workflow_fields(workflow, [f"d:{step}", f"w:{step}"])
            numbers = [each for each in (wants or b"").decode().split(",") if each]
            found = store.workflow_fields(workflow, [f"r:{number}" for number in numbers])
            results = {number: result for number, result in zip(numbers, found, strict=True) if result is not None}
        if what is not None:  # the step may have ended meanwhile
            for each in unpack(what):
                yield with_results(each, results)


def start(store: Store, starts: Iterable[Start]) -> None:
    """Enqueue these steps.  Those that were enqueued before stay as they are.  A full queue takes them, too: their
    workflow was accepted."""
    for some in in_batches(starts, lambda each: len(each.new.record), MAX_BATCH):
        for queue, these in grouped((each.queue, each) for each in some).items():
            # Without a reservation: the workflow has the queue of the step, so that its id is used in no other.
            answers = store.enqueue(queue, [each.new for each in these])
            if ACTIVE:
                crashpoint("workflow.step_enqueued")
            if job_enqueued.receivers:
                _announce([each for each, answer in zip(these, answers, strict=True) if answer is Added.ADDED])


def _announce(added: Sequence[Start]) -> None:
    for _, queue, new in added:
        name = name_of(new.record)
        handle = JobHandle(new.id, name, queue)
        job_enqueued.send_robust(
            sender=registry.known(name), job_id=new.id, name=name, queue=queue, attempt=0, job=None, handle=handle
        )


def start_first(store: Store, workflow: str, starts: Iterable[Start]) -> None:
    """Enqueue the first steps of a workflow that was just stored."""
    start(store, starts)
    if ACTIVE:
        crashpoint("workflow.first_enqueued")
    store.mark_started(workflow)


# -- checks ----------------------------------------------------------------------


def check(store: Store, workflow: str, kept: int) -> None:
    """Do `check_all` for one workflow.  Raises what keeps it from being checked."""
    store.check_workflows_in([*_checked(store, workflow, kept)])


def check_all(store: Store, workflows: Sequence[str], kept: int) -> None:
    """Do for these workflows what a crash has left undone, and find the ends of their jobs that were noted nowhere.

    `kept`: ms for which one stays after its end.  One that is stopped stays as long as a job that can be retried.

    What the store refuses for one of them is raised after all of them were tried: what is deleted makes room."""
    again, refusals = list[tuple[str, int]](), Refusals()
    for workflow in workflows:
        with refusals.put_off():
            try:
                again += _checked(store, workflow, kept)
            except (StoreCorrupt, *BROKEN) as error:  # it must not keep the others from being checked
                if _unreadable.is_new(error, workflow):
                    logger.exception("Workflow %s cannot be checked", workflow)
    store.check_workflows_in(again)
    refusals.raise_last()


def _checked(store: Store, workflow: str, kept: int) -> Iterator[tuple[str, int]]:
    """Check the workflow.  Yields it with the ms after which it is to be checked again, unless it was forgotten."""
    names = ("kind", "touched", "ended", "firsts", "started", "stopped", "state")
    kind, touched, ended, firsts, started, stopped, state = store.workflow_fields(workflow, names)
    now = store.now()
    if kind is None:
        # It was never stored as a whole.  Its parts may still be on their way.
        if now - _born(workflow) <= CHECK:
            yield workflow, CHECK
        else:
            store.forget_workflow(workflow)
        return
    if ended is not None:
        _start(store, workflow, _begun(store, workflow, kind == b"batch"))
        left = read_count(ended) + kept - now
        if left <= 0 and state == b"stopped" and _can_be_retried(store, workflow):
            left = max(kept, CHECK)
        if left > 0:
            yield workflow, left
        else:
            store.forget_workflow(workflow)
        return
    if firsts is not None and started is None:
        found = store.workflow_fields(workflow, [f"f{i}" for i in range(min(read_count(firsts), MOST_STEPS))])
        start_first(store, workflow, (each for value in found if value for each in unpack(value)))
    if stopped is None:
        _start(store, workflow, _begun(store, workflow, kind == b"batch"))
    else:
        stop_jobs(store, workflow)
    if now - read_count(touched or 0) >= CHECK:
        _find_ends(store, workflow, is_stopped=stopped is not None)
    yield workflow, CHECK


def _born(workflow: str) -> int:
    """Return when the id was made (ms): its first digits say it."""
    try:
        return int(workflow[1:13], 16)
    except ValueError:
        return 0


def _begun(store: Store, workflow: str, is_batch: bool) -> list[ReadyStep]:
    """Return the steps that were started and have not ended: whether their jobs exist is not known."""
    if is_batch:
        begun = [name for name, mark in store.workflow_scan(workflow, "b:") if mark == b"1"]
    else:
        left = [step for step, _ in store.workflow_scan(workflow, "d:")]
        waits = store.workflow_fields(workflow, [f"l:{step}" for step in left])
        begun = [step for step, wait in zip(left, waits, strict=True) if wait is None]
    return [ReadyStep(step, None, {}) for step in dict.fromkeys(begun)]


def live_jobs(store: Store, workflow: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield (queue, its jobs) of the steps that were started and have not ended: (step, job id, number of the step's
    last note) of each."""
    (kind,) = store.workflow_fields(workflow, ("kind",))
    by_queue: dict[str, list[tuple[str, str, str]]] = {}
    if kind == b"batch":
        for id, said in store.workflow_scan(workflow, "s:"):
            number, state, queue = read_stand(said)
            if state == LIVE:
                by_queue.setdefault(queue, []).append((id, id, number))
    else:
        rows = outline(store, workflow)
        steps = [str(i) for i in range(len(rows))]
        stands = store.workflow_fields(workflow, [f"s:{step}" for step in steps])
        waits = store.workflow_fields(workflow, [f"l:{step}" for step in steps])
        for row, step, stand, wait in zip(rows, steps, stands, waits, strict=True):
            number, state, _ = read_stand(stand or b"0:live")
            if wait is None and state == LIVE:
                by_queue.setdefault(row.queue, []).append((step, job_id_of(workflow, step), number))
    for queue, jobs in by_queue.items():
        yield from ((queue, list(some)) for some in chunks(jobs, _LOOKED_UP))


def _find_ends(store: Store, workflow: str, *, is_stopped: bool) -> None:
    """Look up the jobs that have not ended as far as the workflow knows, and apply the ends that it was not told of."""
    for queue, jobs in live_jobs(store, workflow):
        found = {info.id: info for info in store.get_many(queue, [id for _, id, _ in jobs])}
        missing = [id for _, id, _ in jobs if id not in found]
        gone = store.void(queue, missing if is_stopped else _without_kept(workflow, missing))
        for id in missing:
            if id not in gone and (moved := store.find([queue], id)) is not None:  # a retry was in another queue
                found[id] = moved
        ends = []
        for step, id, number in jobs:
            info = found.get(id)
            if info is not None and info.state in FINISHED:
                if info.state is not State.SUCCEEDED and store.standing(info.queue, id).stopping:
                    continue  # it was killed, and may still run
                ends.append(End(step, f"={number}", info.state, _result(store, info)))
            elif info is None and id in gone:
                state = gone[id] or (State.SUCCEEDED if store.has_returned_none(queue, id) else DELETED)
                ends.append(End(step, f"={number}", state))
        if ends:
            follow(store, workflow, ends)


def _without_kept(workflow: str, missing: list[str]) -> list[str]:
    """Return those of the missing jobs that nobody will send.  Others joined their batch, and wait in the outbox for
    their part of the store.  This is asked after the store was: a row that is gone by then was sent before."""
    settings = get_settings()
    if not (missing and settings.outbox and workflow.startswith("b")):
        return missing
    try:
        kept = outbox.kept_of(workflow, missing, settings.database)
    except DatabaseFault as error:
        if _unreadable.is_new(error, "the outbox"):
            logger.exception("The outbox cannot be read: missing jobs of batches are looked up later")
        return []
    return [id for id in missing if id not in kept]


def _result(store: Store, info: JobInfo) -> bytes | None:
    job = job_in(info) if info.state is State.SUCCEEDED else None
    if job is None or not job.controls.noted_result:
        return None
    whole = store.get(info.queue, info.id)
    return (whole and whole.result) or b""


# -- what people ask for ------------------------------------------------------------


def stop(store: Store, workflow: str) -> None:
    """Cancel what waits, and ask what runs to stop."""
    store.check_workflows_in([(workflow, CHECK_SOON)])
    follow(store, workflow, [], "stop")
    if ACTIVE:
        crashpoint("workflow.stopped")
    stop_jobs(store, workflow)


def drop(store: Store, workflow: str, step: str) -> bool:
    """Cancel a step that has no job yet: it never starts, and nor does what waits for it.  Returns False if there is no
    such step, or its job is there, or was there."""
    follow(store, workflow, [End(step, 0, State.CANCELLED)], "drop")
    if is_dropped(store, workflow, step):
        return True
    id = job_id_of(workflow, step)
    queues = [row.queue for row in outline(store, workflow, int(step), 1)]
    gone = store.void(queues[0], [id]) if queues else {}
    if gone.get(id, "") is not None:
        return False
    follow(store, workflow, [End(step, "=0", State.CANCELLED)])  # it was about to start: its job is refused from now on
    return is_dropped(store, workflow, step)


def is_dropped(store: Store, workflow: str, step: str) -> bool:
    """Return whether this step was cancelled before it had a job."""
    (stand,) = store.workflow_fields(workflow, [f"s:{step}"])
    return stand is not None and read_stand(stand)[:2] == ("0", State.CANCELLED)


def stop_jobs(store: Store, workflow: str) -> None:
    """Cancel the jobs of a workflow that was stopped."""
    for queue, jobs in live_jobs(store, workflow):
        for some in chunks(jobs, 100):
            store.cancel(queue, [id for _, id, _ in some])
        advance(store, queue)


def retry(store: Store, workflow: str) -> list[str]:
    """Queue again the jobs of steps that are dead, expired or cancelled, so that the workflow goes on.  Returns the ids
    of those that moved.  A job that is delivered at most once and may have started stays."""
    moved: list[str] = []
    for queue, ids in _failed(store, workflow).items():
        for some in chunks(ids, 100):
            moved += store.revive(queue, some, start_again=False)
        advance(store, queue)
    return moved


def restarted(store: Store, workflow: str) -> list[str]:
    """Return the ids of jobs that had ended without success, were queued again, and have not ended since."""
    is_batch = workflow.startswith("b")
    steps = (step for step, stand in store.workflow_scan(workflow, "s:") if _waits_again(stand))
    return sorted({step if is_batch else job_id_of(workflow, step) for step in steps})


def _waits_again(stand: bytes) -> bool:
    number, state, _ = read_stand(stand)
    return state == LIVE and number != "0"


def _can_be_retried(store: Store, workflow: str) -> bool:
    """Return whether a job of a step that ended without success is still in its queue."""
    failed = [(queue, some) for queue, ids in _failed(store, workflow).items() for some in chunks(ids, _LOOKED_UP)]
    return any(store.get_many(queue, some, moved=True) for queue, some in failed)


def _failed(store: Store, workflow: str) -> dict[str, list[str]]:
    """Return the jobs of steps that are dead, expired or cancelled, by queue."""
    (kind,) = store.workflow_fields(workflow, ("kind",))
    rows = None if kind == b"batch" else outline(store, workflow)
    by_queue: dict[str, list[str]] = {}
    for step, stand in store.workflow_scan(workflow, "s:"):
        number, state, queue = read_stand(stand)
        if state in (State.DEAD, State.EXPIRED, State.CANCELLED) and (queue or number != "0"):
            where = queue if rows is None else rows[int(step)].queue
            by_queue.setdefault(where, []).append(step if rows is None else job_id_of(workflow, step))
    return by_queue
