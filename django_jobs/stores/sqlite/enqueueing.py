"""SqliteStore, how jobs come in."""

from __future__ import annotations

from collections.abc import Sequence

from django_jobs.stores.running import MAX_BATCH, RunningStore
from django_jobs.stores.sqlite.part import SqlitePart
from django_jobs.stores.sqlite.rows import Row
from django_jobs.stores.sqlite.transaction import Transaction
from django_jobs.values import WAITING, Added, NewJob, State


class SqliteEnqueueing(SqlitePart, RunningStore):
    """See stores/running.py for what each method promises."""

    def enqueue(self, queue: str, jobs: Sequence[NewJob], *, max_length: int = 0) -> list[Added]:
        if len(jobs) > MAX_BATCH:
            raise ValueError(f"enqueue takes at most {MAX_BATCH} jobs a call, not {len(jobs)}.")
        with self.writing(queue) as move:
            fits = not max_length or _fits(move, jobs, max_length)
            return [_enqueue(move, job, fits) for job in jobs]


def _fits(move: Transaction, jobs: Sequence[NewJob], max_length: int) -> bool:
    """Is there room for those of these jobs that would wait in the queue from now on?  What adds nothing takes none,
    nor does an equal of another in this call."""
    entering = 0
    ids: set[str] = set()
    keys: set[str | None] = set()
    for job in jobs:
        key = job.controls.unique
        known = job.id in ids or move.row(job.id) is not None or _fired(move, job)
        if known or (key and key in keys) or _locker(move, job) is not None:
            continue
        ids.add(job.id)
        keys.add(key)
        entering += job.run_at <= move.now
    return move.count_of(State.QUEUED) + move.count_of(State.BLOCKED) + entering <= max_length


def _enqueue(move: Transaction, job: NewJob, fits: bool) -> Added:
    existing = move.value(
        "SELECT record FROM records JOIN jobs USING (job) WHERE id = ? AND queue = ?", job.id, move.queue
    )
    if existing is not None:
        return Added.ADDED if existing == job.record else Added.EXISTS
    if _fired(move, job):
        return Added.FIRED
    holder = _locker(move, job)
    if holder is not None:
        return _conflict(move, job, holder)
    scheduled = job.run_at > move.now
    if not fits and not scheduled:
        return Added.FULL
    state, at = (State.SCHEDULED, job.run_at) if scheduled else (State.QUEUED, None)
    row = move.add(job.id, job.record, job.controls, state, at)
    if row.lock:
        until = move.now + row.lock_for if row.lock_mode == "period" else 0
        move.execute("INSERT OR REPLACE INTO locks VALUES (?, ?, ?, ?)", (move.queue, row.lock, row.id, until))
    if job.fire:
        move.execute("INSERT OR REPLACE INTO fired VALUES (?, ?, ?)", (move.queue, *job.fire))
    move.count("enqueued", row.name)
    return Added.ADDED


def _fired(move: Transaction, job: NewJob) -> bool:
    if job.fire is None:
        return False
    schedule, at = job.fire
    last = move.value("SELECT at FROM fired WHERE queue = ? AND schedule = ?", move.queue, schedule)
    return last is not None and last >= at


def _locker(move: Transaction, job: NewJob) -> Row | str | None:
    return move.locker(job.controls.unique) if job.controls.unique else None


def _conflict(move: Transaction, job: NewJob, holder: Row | str) -> Added:
    """An equal job has the lock: leave it, or give it these arguments while it still waits."""
    if job.on_conflict not in {"replace", "debounce"} or isinstance(holder, str) or holder.state not in WAITING:
        return Added.DUPLICATE
    old = move.value("SELECT record FROM records WHERE job = ?", holder.job)
    row = move.replace_record(holder, _with_arguments(old, job.record))
    if job.on_conflict == "debounce" and job.run_at > move.now:
        move.move(row, State.SCHEDULED, at=job.run_at)
    return Added.REPLACED


def _with_arguments(old: bytes, new: bytes) -> bytes:
    """The old record with the arguments (seventh line) of the new one."""
    head, arguments = old.split(b"\n", 6), new.split(b"\n", 6)
    return b"\n".join([*head[:6], arguments[6]]) if len(head) == len(arguments) == 7 else new
