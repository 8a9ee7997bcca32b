"""SqliteStore: how jobs are enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django_jobs.core.values import WAITING, Added, Controls, NewJob, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.record import decode, encode, enqueued_ms, with_expiry, with_time
from django_jobs.stores.contract.running import MAX_BATCH, RunningStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.database.editing import edit
from django_jobs.stores.sqlite.database.remembered import is_remembered, remember
from django_jobs.stores.sqlite.database.rows import Row
from django_jobs.stores.sqlite.database.transaction import Transaction


class SqliteEnqueueing(SqlitePart, RunningStore):
    """See stores/contract/running.py for the contract of each method."""

    def enqueue(self, queue: str, jobs: Sequence[NewJob], *, max_length: int = 0) -> list[Added]:
        if len(jobs) > MAX_BATCH:
            raise ValueError(f"enqueue takes at most {MAX_BATCH} jobs a call, not {len(jobs)}.")
        with self.writing(queue) as move:
            fits = not max_length or _fits(move, jobs, max_length)
            return [_enqueue(move, job, fits) for job in jobs]


def _fits(move: Transaction, jobs: Sequence[NewJob], max_length: int) -> bool:
    """Tell whether there is room for the jobs of this call that would be queued now.  A job that is not added needs no
    room; neither does a second job with the same unique key in this call."""
    entering = 0
    ids: set[str] = set()
    keys: set[str | None] = set()
    for job in jobs:
        key = job.controls.unique
        known = job.id in ids or move.row(job.id) is not None or is_remembered(move, job.id) or _has_run(move, job)
        if known or (key and key in keys) or _locker(move, job) is not None:
            continue
        ids.add(job.id)
        keys.add(key)
        entering += _run_at(move, job) <= move.now
    return move.count_of(State.QUEUED) + move.count_of(State.BLOCKED) + entering <= max_length


def _enqueue(move: Transaction, job: NewJob, fits: bool) -> Added:
    existing = move.value(
        "SELECT record FROM records JOIN jobs USING (job) WHERE id = ? AND queue = ?", job.id, move.queue
    )
    if existing is not None:
        same = existing if job.expires_in is None else with_expiry(existing, 0)
        return Added.ADDED if job.record in (same, with_time(same, 0)) else Added.EXISTS
    if is_remembered(move, job.id):
        return Added.EXISTS
    run_at = _run_at(move, job)
    if enqueued_ms(job.record, -1) == 0:
        job = job._replace(record=with_time(job.record, move.now))
    if job.expires_in is not None:
        expires_at = max(run_at, move.now) + job.expires_in
        controls = replace(job.controls, expires_at=expires_at)
        job = job._replace(record=with_expiry(job.record, expires_at), controls=controls)
    if _has_run(move, job):
        return Added.ALREADY_RUN
    holder = _locker(move, job)
    if holder is not None:
        return _conflict(move, job, holder, run_at)
    scheduled = run_at > move.now
    if not fits and not scheduled:
        return Added.FULL
    state, at = (State.SCHEDULED, run_at) if scheduled else (State.QUEUED, None)
    if job.digest:
        remember(move, job.id, job.digest)
    row = move.add(job.id, job.record, job.controls, state, at)
    if row.lock:
        until = move.now + row.lock_for if row.lock_mode == "period" else 0
        move.execute("INSERT OR REPLACE INTO locks VALUES (?, ?, ?, ?)", (move.queue, row.lock, row.id, until))
    if job.schedule_run:
        move.execute("INSERT OR REPLACE INTO fired VALUES (?, ?, ?)", (move.queue, *job.schedule_run))
    move.count("enqueued", row.name)
    return Added.ADDED


def _run_at(move: Transaction, job: NewJob) -> int:
    return job.run_at if job.run_in is None else move.now + job.run_in


def _has_run(move: Transaction, job: NewJob) -> bool:
    if job.schedule_run is None:
        return False
    schedule, at = job.schedule_run
    last = move.value("SELECT at FROM fired WHERE queue = ? AND schedule = ?", move.queue, schedule)
    return last is not None and last >= at


def _locker(move: Transaction, job: NewJob) -> Row | str | None:
    return move.locker(job.controls.unique) if job.controls.unique else None


def _conflict(move: Transaction, job: NewJob, holder: Row | str, run_at: int) -> Added:
    """Another job holds the lock: leave it, or give it these arguments if it still waits."""
    if job.on_conflict not in {"replace", "debounce"} or isinstance(holder, str) or holder.state not in WAITING:
        return Added.DUPLICATE
    moves = job.on_conflict == "debounce" and run_at > move.now
    edit(move, holder, *_with_arguments(move, holder, job, moves))
    if moves and (row := move.row(holder.id)) is not None:
        move.move(row, State.SCHEDULED, at=run_at)
    return Added.REPLACED


def _with_arguments(move: Transaction, holder: Row, job: NewJob, moves: bool) -> tuple[bytes, Controls]:
    """Return the old record with the arguments of the new one and its limit, which depends on them; also with its
    expiry if the start moves."""
    try:
        old = decode(holder.id, move.queue, move.record(holder))
        new = decode(holder.id, move.queue, job.record)
    except CorruptRecord:
        return job.record, job.controls
    controls = replace(old.controls, limit_key=new.controls.limit_key, limit=new.controls.limit)
    if moves:
        controls = replace(controls, expires_at=new.controls.expires_at)
    return encode(old._replace(args=new.args, controls=controls)), controls
