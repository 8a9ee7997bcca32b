"""All actions of operators: admin, API and commands call these.  Every verb returns which jobs it moved.

A verb leaves alone the jobs it does not apply to.  The result names the jobs that moved, so counts are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django_jobs.browse.counts import queue_names
from django_jobs.core import registry
from django_jobs.core.definition import check_name
from django_jobs.core.queue_stats import Pause
from django_jobs.core.values import NOT_READY, WAITING, Edited, JobInfo, State
from django_jobs.enqueueing.handle import TERMINATED
from django_jobs.enqueueing.request import now_ms
from django_jobs.exceptions import DuplicateJob, JobMoved, JobNotFound, UnknownQueue
from django_jobs.logs import JobEnd
from django_jobs.operations import edited
from django_jobs.operations.staying import check_key, may_have_started
from django_jobs.serialization.masking import names_hidden
from django_jobs.serialization.record import decode, name_of, tags_of, waited_ms
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import chunks

#: Jobs moved by one call: a script over 1,000 blocks a busy Redis for 20 ms or more, one over 100 for 2 ms.
BATCH = 100
#: How often an edit starts again because the job was edited by someone else meanwhile.
EDITS = 5


@dataclass(frozen=True, slots=True)
class Done:
    """What one call did to the jobs of one queue."""

    moved: Sequence[str] = ()
    #: running jobs that were asked to stop; they decide themselves when.
    asked: Sequence[str] = ()
    #: jobs that are delivered at most once and may have been started: they stay, unless the call says `start_again`.
    held: Sequence[str] = ()
    #: jobs that stay because another job holds their unique key, and the id of that job.
    taken: Mapping[str, str] = field(default_factory=dict)

    def plus(self, other: Done) -> Done:
        moved, asked, held = [*self.moved, *other.moved], [*self.asked, *other.asked], [*self.held, *other.held]
        return Done(moved, asked, held, {**self.taken, **other.taken})

    @property
    def count(self) -> int:
        """The number of jobs that moved or were asked to stop."""
        return len(self.moved) + len(self.asked)


#: verb → the states it applies to, in display order.
VERBS: Mapping[str, frozenset[State]] = {
    "revive": frozenset(
        {State.SCHEDULED, State.RETRY, State.BLOCKED, State.DEAD, State.CANCELLED, State.EXPIRED},
    ),
    "cancel": frozenset({State.SCHEDULED, State.QUEUED, State.RETRY, State.BLOCKED, State.RUNNING}),
    "kill": frozenset({State.SCHEDULED, State.QUEUED, State.RETRY, State.BLOCKED, State.RUNNING}),
    "delete": frozenset(State) - {State.RUNNING},
    "reschedule": frozenset({State.SCHEDULED, State.QUEUED, State.RETRY, State.BLOCKED}),
}

#: The word for a verb in commands, forms and stored bulk operations, where it is not the verb itself: what operators
#: call "Retry now" is the transition `revive`.  `retry` is the transition after a failed attempt.
_WORDS = {"retry": "revive"}


def verb_of(word: str) -> str:
    """Return the verb that operators, and stored bulk operations, call by this word."""
    return _WORDS.get(word, word)


def word_of(verb: str) -> str:
    """Return the word that `verb_of` turns into this verb."""
    return next((word for word, meant in _WORDS.items() if meant == verb), verb)


class Details(NamedTuple):
    """What some verbs need to know."""

    #: ms; for "reschedule".
    run_at: int = 0
    #: for "kill" and "cancel" with `terminate`.
    reason: str = ""
    #: for "revive": also jobs that are delivered at most once and may have been started.
    start_again: bool = False
    #: for "cancel": also end the attempts of running jobs.
    terminate: bool = False


def act(verb: str, queue: str, ids: Sequence[str], **details: Any) -> Done:
    """Apply `verb` to these jobs of one queue, in batches.  `details` are fields of Details."""
    total, known = Done(), Details(**details)
    for batch in batches(ids):
        total = total.plus(ACTS[verb](queue, batch, known))
    return total


def revive(queue: str, ids: Sequence[str], *, start_again: bool = False) -> Done:
    """Queue these jobs now.  Jobs that had ended start again with all their attempts.

    A job that is delivered at most once and may have been started stays where it is (`Done.held`), because it may do a
    second time what it has done already.  Find out what it did; with `start_again`, it starts nevertheless.  A job that
    has ended and whose unique key another job holds stays, too (`Done.taken`)."""
    return act("revive", queue, ids, start_again=start_again)


def cancel(queue: str, ids: Sequence[str], *, terminate: bool = False) -> Done:
    """Cancel waiting jobs; ask running ones to stop (`ctx.should_stop`).

    With `terminate`, running jobs are cancelled, too: they lose their claims at once, and their processes are ended."""
    return act("cancel", queue, ids, terminate=terminate)


def delete(queue: str, ids: Sequence[str]) -> Done:
    """Remove jobs and all data about them; running jobs stay."""
    return act("delete", queue, ids)


def kill(queue: str, ids: Sequence[str], reason: str) -> Done:
    """Send waiting and running jobs to dead.  A running one loses its claim at once, and its process is ended."""
    return act("kill", queue, ids, reason=reason)


def reschedule(queue: str, ids: Sequence[str], run_at: int) -> Done:
    """Move waiting jobs to the time `run_at` (ms since the epoch)."""
    return act("reschedule", queue, ids, run_at=run_at)


def _revive(queue: str, ids: Sequence[str], details: Details) -> Done:
    moved = set(get_store().revive(queue, ids, start_again=details.start_again))
    left = [id for id in ids if id not in moved]
    infos = get_store().get_many(queue, left, moved=True) if left else []
    held = [info.id for info in infos if may_have_started(info) and not details.start_again]
    ended: dict[str, dict[str, bytes]] = {}
    for info in infos:
        if info.state in VERBS["revive"] and info.id not in held:
            ended.setdefault(info.queue, {})[info.id] = info.record
    taken = {id: holder for where, some in ended.items() for id, holder in get_store().key_holders(where, some).items()}
    return Done([id for id in ids if id in moved], (), held, taken)


def _cancel(queue: str, ids: Sequence[str], details: Details) -> Done:
    store = get_store()
    before = {info.id: info for info in store.get_many(queue, ids, moved=True) if info.state in VERBS["cancel"]}
    after = store.cancel(queue, list(before))
    moved = [id for id, state in after.items() if state is State.CANCELLED]
    asked = [id for id, state in after.items() if state is State.RUNNING]
    if details.terminate and asked:
        # A job whose attempt has ended meanwhile, and that waits for a retry, is cancelled as well.
        ended = store.kill(queue, asked, details.reason or TERMINATED, State.CANCELLED)
        moved, asked = moved + ended, [id for id in asked if id not in ended]
    announce("job_cancelled", State.CANCELLED, [before[id] for id in moved])
    return Done(moved, asked)


def _kill(queue: str, ids: Sequence[str], details: Details) -> Done:
    store = get_store()
    before = {info.id: info for info in store.get_many(queue, ids, moved=True)}
    moved = store.kill(queue, ids, details.reason)
    announce("job_dead", State.DEAD, [before[id] for id in moved if id in before], outcome="killed")
    return Done(moved)


ACTS: Mapping[str, Callable[[str, Sequence[str], Details], Done]] = {
    "revive": _revive,
    "cancel": _cancel,
    "kill": _kill,
    "delete": lambda queue, ids, details: Done(get_store().delete(queue, ids)),
    "reschedule": lambda queue, ids, details: Done(get_store().reschedule(queue, ids, details.run_at)),
}


def announce(signal: str, state: State, jobs: Sequence[JobInfo], **more: Any) -> None:
    """Tell the receivers of `signal` (on a separate thread), and the log, that a person ended these jobs."""
    from django_jobs.events.receivers import deliver_here
    from django_jobs.events.signal_events import SignalEvent, is_wanted

    now = now_ms()
    for info in jobs:
        name, was_running = name_of(info.record), info.state is State.RUNNING
        attempt, until = info.earlier + info.failures + info.crashes + was_running, info.at if was_running else now
        signal_event = SignalEvent(signal, name, info.queue, info.id, attempt, {"error": "by an operator", **more})
        if is_wanted(signal_event):
            deliver_here(signal_event)
        wait_ms = waited_ms(info.record, info.since, until) if info.state not in NOT_READY else 0
        # Not logged as an error: a person has just done this, so no alert is needed.
        tags = " ".join(tags_of(info.record))
        JobEnd(name, info.id, info.queue, attempt, wait_ms, now - until, "by an operator", tags).log(state)


def edit(queue: str, id: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Give a waiting job other arguments: JSON values as `masking.shown_call` shows them.  False: it has these
    already; a job that runs or has ended does not tell this of sensitive arguments.

    It keeps its place, its turn and its time; its unique key and its limit key are computed again.  A masked value
    keeps the stored value.  Raises InvalidArguments, PayloadError, JobNotFound, JobMoved if the job runs or has ended,
    DuplicateJob if an equal job has the new key, CorruptRecord, UnknownJob."""
    store = get_store()
    for _ in range(EDITS):
        info = store.find([queue], id)
        if info is None:
            raise JobNotFound(f"There is no job {id!r} in queue {queue!r}.")
        job = decode(id, info.queue, info.record)
        is_guess = info.state not in WAITING and names_hidden(job, (list(args), dict(kwargs)))
        record = edited.record_with(job, [list(args), dict(kwargs)])
        if record is None and not is_guess:
            return False
        match Edited.MOVED if record is None else store.edit(info.queue, id, record, was=info.record):
            case Edited.EDITED:
                return True
            case Edited.DUPLICATE:
                raise DuplicateJob(f"Job {id!r} keeps its arguments: an equal job is already waiting.")
            case Edited.MOVED:
                raise JobMoved(f"Job {id!r} cannot be edited: it is {info.state}, or has just started.")
    raise JobMoved(f"Job {id!r} was changed by other users again and again. Try again.")


def edit_and_revive(
    queue: str, id: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, start_again: bool = False
) -> None:
    """Queue a job now with other arguments, given as for `edit`.

    Raises InvalidArguments if the function cannot be called with them, PayloadError, JobNotFound if the job is gone
    or in a state that cannot be revived, JobMoved if somebody else edits or revives it at the same moment, or without
    `start_again` if it is delivered at most once and may have been started, DuplicateJob if another job holds their
    unique key, CorruptRecord, UnknownJob."""
    store = get_store()
    info = store.find([queue], id)
    if info is None or info.state not in VERBS["revive"]:
        raise JobNotFound(f"Job {id!r} in queue {queue!r} is not in a state that can be retried.")
    record = edited.record_with(decode(id, info.queue, info.record), [list(args), dict(kwargs)])
    if not store.revive(info.queue, [id], record=record, was=info.record, at=info.at, start_again=start_again):
        if may_have_started(info) and not start_again:
            raise JobMoved(f"Job {id!r} is delivered at most once and may have been started. Find out what it did.")
        check_key(info.queue, id, record or info.record)
        raise JobMoved(f"Job {id!r} in queue {queue!r} was changed by somebody else in the meantime. Look at it again.")


def revive_as_seen(info: JobInfo, *, start_again: bool = False) -> bool:
    """Queue a job now if it has not changed since it was read.  False: it has left that state, and may have returned to
    it; or, without `start_again`, it is delivered at most once and may have been started.  Raises DuplicateJob if
    another job holds its unique key."""
    if get_store().revive(info.queue, [info.id], at=info.at, start_again=start_again):
        return True
    check_key(info.queue, info.id, info.record)
    return False


def pause(queue: str, *, name: str | None = None, reason: str = "", until: int = 0, by: str = "") -> bool:
    """Close a queue, or one job type in it, until `until` (ms; 0 = no end) or until it is resumed.  `by`: the user.

    Returns False if it is closed so already: nothing changes, and there is nothing for the audit log."""
    check_queue(queue)
    if name is not None:
        check_name(name, "pause")
    return get_store().pause(queue, name=name, reason=reason[:500], until=until, by=by[:200])


def resume(queue: str, *, name: str | None = None) -> Pause | None:
    """Open a paused queue or job type again.  Returns the pause that ends, for the audit log; None: it was open."""
    check_queue(queue)
    (stats,) = get_store().stats([queue])
    get_store().resume(queue, name=name)
    return stats.paused if name is None else stats.paused_types.get(registry.current_name(name))


def check_queue(queue: str) -> None:
    """Raise UnknownQueue unless the queue is configured or jobs were enqueued to it."""
    if queue not in queue_names():
        raise UnknownQueue(f"There is no queue {queue!r}. Queues: {', '.join(queue_names()[:20])}.")


def command_worker(worker: str, command: str) -> bool:
    """Send a worker the command "stop" (finish running jobs, then end) or "quiet" (claim no more jobs)."""
    if command not in {"stop", "quiet"}:
        raise ValueError(f"{command!r} is not a command for workers. Use 'stop' or 'quiet'.")
    return get_store().command_worker(worker, command)


def batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ids without duplicates, BATCH at a time."""
    return chunks(list(dict.fromkeys(ids)), BATCH)
