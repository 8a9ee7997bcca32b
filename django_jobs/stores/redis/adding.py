"""How jobs are enqueued."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from django_jobs.core.values import PLAIN, Added, NewJob
from django_jobs.exceptions import StoreUnavailable
from django_jobs.serialization.record import is_plain_step
from django_jobs.stores.redis.connection.part import Name, Part
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.values.sizes import MAX_BATCH

_ADDED = {word.value.encode(): word for word in Added}
_IN_DOUBT = "The job may or may not exist. It is safe to enqueue it again with the same job_id."


class Adding(Part):
    """How jobs are enqueued."""

    _known_queues: frozenset[str] = frozenset()

    def enqueue(self, queue: str, jobs: Sequence[NewJob], *, max_length: int = 0) -> list[Added]:
        """→ queued or scheduled.  One answer per job, in order.  Raises ValueError for more than MAX_BATCH jobs.

        With `max_length`: when queued + blocked + the jobs of this call that would be queued exceed it, each of these
        jobs is FULL and none of them is added.  A job that is not added needs no free place; neither does a job for a
        later time.  A job goes to lane `alone` if controls.alone or at_most_once is set.  If another job holds the
        unique key and is still covered by it, the new job is DUPLICATE ("skip", "raise") or REPLACED: "replace" gives
        the waiting holder the new arguments, "debounce" also the new run time.  If the holder is gone or no longer
        covered, the new job takes over the lock.  An id that is already there is EXISTS, unless the stored record is
        byte for byte the one sent: then the call was repeated, and the answer is ADDED again."""
        if not jobs:
            return []
        try:
            name, args, call = self._call_of_enqueue(queue, jobs, max_length)
            return _words(self._run_once(name, queue, *args, call=call))
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{error} {_IN_DOUBT}") from error.__cause__

    def enqueue_ahead(self, queue: str, jobs: Sequence[NewJob]) -> Callable[[], list[Added]]:
        """Begin `enqueue`, and return a function that waits for its answers: meanwhile, the caller can make the next
        jobs.  Call it once.  Each of the two raises what `enqueue` raises; then the jobs may be stored, or be stored
        later."""
        try:
            name, args, call = self._call_of_enqueue(queue, jobs, 0)
            answer = self._run_once_ahead(name, queue, *args, call=call)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{error} {_IN_DOUBT}") from error.__cause__

        def wait() -> list[Added]:
            try:
                return _words(answer())
            except StoreUnavailable as error:
                raise StoreUnavailable(f"{error} {_IN_DOUBT}") from error.__cause__

        return wait

    def _call_of_enqueue(self, queue: str, jobs: Sequence[NewJob], max_length: int) -> tuple[str, list[Argument], Name]:
        """Return the script that adds these jobs, its arguments, and the name of the call."""
        if len(jobs) > MAX_BATCH:
            raise ValueError(f"enqueue takes at most {MAX_BATCH} jobs a call, not {len(jobs)}.")
        if queue not in self._known_queues:
            self._register(queue)
        args: list[Argument] = [max_length, self.options.idempotency]

        def call() -> Hashable:
            # By ids alone: after an error, the caller sends the same job again under its id, but in a new record.
            return "enqueue", queue, tuple(job.id for job in jobs)

        if len(jobs) == 1 and not max_length and (one := _arguments_of_one(jobs[0])) is not None:
            return "enqueue_one", [self.options.idempotency, *one], call
        if (all(map(_is_plain, jobs)) or _are_plain_steps(jobs)) and _distinct(jobs):
            args.append(jobs[0].digest)
            for job in jobs:
                args += (job.id, *_halves(job.record))
            return "enqueue_plain", args, call
        for job in jobs:
            run = f"{job.schedule_run[1]}:{job.schedule_run[0]}" if job.schedule_run else ""
            run_at = job.run_at if job.run_in is None else f"+{job.run_in}"
            expires = "" if job.expires_in is None else job.expires_in
            args += (job.id, job.record, run_at, job.on_conflict, run, expires, job.digest)
        return "enqueue", args, call

    def _register(self, queue: str) -> None:
        """Store the queue's name, once per process: the names are not in the queue's own slot."""
        self.transport.command("SADD", self.keys.fleet("queues"), queue)
        self._known_queues |= {queue}


def _words(answer: bytes | list[bytes]) -> list[Added]:
    return [_ADDED[answer]] if isinstance(answer, bytes) else [_ADDED[word] for word in answer]


def _is_plain(job: NewJob) -> bool:
    plain = job.controls is PLAIN or job.controls == PLAIN
    return plain and not (job.run_at or job.schedule_run or job.digest) and job.run_in is None


def _are_plain_steps(jobs: Sequence[NewJob]) -> bool:
    digest = jobs[0].digest
    for _, record, _, run_at, _, schedule_run, run_in, _, given in jobs:
        if not is_plain_step(record) or run_at or schedule_run or run_in is not None or given != digest:
            return False
    return True


def _arguments_of_one(job: NewJob) -> list[Argument] | None:
    """Return the arguments of lua/adding/enqueue_one.lua for this job; None: it cannot add this one."""
    id, record, controls, run_at, on_conflict, schedule_run, run_in, expires_in, digest = job
    if run_at or schedule_run or run_in is not None or expires_in is not None:
        return None
    args: list[Argument] = [id, *_halves(record), digest]
    if controls is not PLAIN:
        if controls.unique is not None and on_conflict not in ("skip", "raise"):
            return None
        lane = "alone" if controls.alone or controls.at_most_once else "shared"
        locked = controls.unique_for if controls.unique_mode == "period" else ""
        args += (lane, controls.priority, controls.unique or "", locked)
    return args


def _halves(record: bytes) -> tuple[bytes, bytes]:
    """Split the record around the enqueue time, if the store is to insert that; otherwise return all and nothing."""
    at = record.find(b"\n0\n")
    while at >= 0:
        line = record.count(b"\n", 0, at)
        if line == 3:  # the fifth
            return record[: at + 1], record[at + 2 :]
        if line > 3:
            break
        at = record.find(b"\n0\n", at + 1)  # a name may be "0" too
    return record, b""


def _distinct(jobs: Sequence[NewJob]) -> bool:
    return len(jobs) == 1 or len({job.id for job in jobs}) == len(jobs)
