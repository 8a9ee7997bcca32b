"""How jobs are enqueued."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from time import monotonic

from django_jobs.core.values import PLAIN, Added, Expired, NewJob
from django_jobs.exceptions import StoreError, StoreFull, StoreUnavailable
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.serialization.checked import read_number
from django_jobs.stores.redis.connection.entries import read_expired, read_move
from django_jobs.stores.redis.connection.part import Name, OneCall, Part
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.values.sizes import MAX_BATCH

logger = logging.getLogger("django_jobs")

_ADDED = {word.value.encode(): word for word in Added}
#: Seconds for which a process relies on a queue's name that it has stored: a server that failed may have lost it.
NAMED = 60.0
#: about queues to which no jobs can go; seconds.
_closed = Complaints(60.0)
#: Tries to move an id while other processes move it, too.
_TRIES = 20
_IN_DOUBT = "The job may or may not exist. It is safe to enqueue it again with the same job_id."


class Adding(Part):
    """How jobs are enqueued."""

    def enqueue(self, queue: str, jobs: Sequence[NewJob], *, max_length: int = 0, fills: bool = False) -> list[Added]:
        """→ queued or scheduled.  One answer per job, in order.  Raises ValueError for more than MAX_BATCH jobs.

        With `max_length`: when queued + blocked + the jobs of this call that would be queued exceed it, each of these
        jobs is FULL and none of them is added; with `fills`, the first are added, as many as there is room for.  A job
        that is not added needs no free place; neither does a job for a later time.

        A job goes to lane `alone` if controls.alone or at_most_once is set.  If another job holds the unique key
        and is still covered by it, the new job is DUPLICATE ("skip", "raise") or REPLACED: "replace" gives the waiting
        holder the new arguments, "debounce" also the new run time; but a call that comes late (`asked_at`)
        changes nothing that a newer call has changed, and is DUPLICATE.  If the holder is gone or no longer
        covered, the new job takes over the lock.  An id that is already there is EXISTS, unless the stored record is
        byte for byte the one sent, and the job has no digest: then the call was repeated, and the answer is ADDED.
        (Another process may send a job with a digest again, and would announce it twice.)  A job that is too late
        to start counts until `expire` has ended it: if a job is FULL, call that, and then this again.  An id of the
        caller's needs a reservation for this queue (`reserve`).  MOVED: the queue has lost it."""
        if not jobs:
            return []
        try:
            name, args, call = self._call_of_enqueue(queue, jobs, max_length, fills)
            run = self._run_shortly if name == "enqueue_one" and _is_plain(args) else self._run
            return _words(run(name, queue, *args, call=call))
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{error} {_IN_DOUBT}") from error.__cause__

    def enqueue_ahead(self, queue: str, jobs: Sequence[NewJob]) -> Callable[[], list[Added]]:
        """Begin `enqueue`, and return a function that waits for its answers: meanwhile, the caller can make the next
        jobs.  Call it once.  Each of the two raises what `enqueue` raises; then the jobs may be stored, or be stored
        later."""
        try:
            name, args, call = self._call_of_enqueue(queue, jobs)
            answer = self._run_ahead(name, queue, *args, call=call)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{error} {_IN_DOUBT}") from error.__cause__

        def wait() -> list[Added]:
            try:
                return _words(answer())
            except StoreUnavailable as error:
                raise StoreUnavailable(f"{error} {_IN_DOUBT}") from error.__cause__

        return wait

    def expire(self, queue: str, limit: int = MAX_BATCH) -> tuple[list[Expired], bool]:
        """waiting → expired: jobs that have not started when their time is over.  Returns them, and whether more may be
        late, because `limit` jobs were looked at or their records reach MAX_BYTES.  Raises StoreMisconfigured for a
        user that may only enqueue."""
        more, *flat = self._run("expire", queue, limit, self._archiving)
        return read_expired(flat), bool(more)

    def _call_of_enqueue(
        self, queue: str, jobs: Sequence[NewJob], max_length: int = 0, fills: bool = False
    ) -> tuple[str, list[Argument], Name]:
        """Return the script that adds these jobs, its arguments, and the name of the call."""
        if len(jobs) > MAX_BATCH:
            raise ValueError(f"enqueue takes at most {MAX_BATCH} jobs a call, not {len(jobs)}.")
        if monotonic() >= self._registered.get(queue, 0.0):
            self._register(queue)
        args: list[Argument] = [max_length, self.options.idempotency, "1" if fills else ""]

        def call() -> Hashable:
            # By ids alone: after an error, the caller sends the same job again under its id, but in a new record.
            return "enqueue", queue, tuple(job.id for job in jobs)

        digest, lanes = jobs[0].digest, list(map(_lane_of, jobs))
        if None not in lanes and _distinct(jobs) and all(job.digest == digest for job in jobs):
            if len(jobs) == 1 and not max_length:
                one = [jobs[0].id, *_halves(jobs[0].record), digest, *(lanes[0] or ())]
                return "enqueue_one", [self.options.idempotency, *one], call
            in_lanes = any(lanes)
            args += (digest, 7 if in_lanes else 3)
            for job, lane in zip(jobs, lanes, strict=True):
                args += (job.id, *_halves(job.record), *((lane or _PLAIN_LANE) if in_lanes else ()))
            return "enqueue_plain", args, call
        for job in jobs:
            run = f"{job.schedule_run[1]}:{job.schedule_run[0]}" if job.schedule_run else ""
            run_at = job.run_at if job.run_in is None else f"+{job.run_in}"
            expires = "" if job.expires_in is None else job.expires_in
            args += (job.id, job.record, run_at, job.on_conflict, run, expires, job.digest, job.asked_at or "")
        return "enqueue", args, call

    def last_runs(self, queues: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return schedule id → the scheduled time (ms) of its last run in these queues, and the queue."""
        found: dict[str, tuple[int, str]] = {}
        answers = self.transport.pipeline([("HGETALL", self.keys.of(queue)["fired"]) for queue in queues])
        for queue, answer in zip(queues, answers, strict=True):
            pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
            for id, at in pairs:
                name = id.decode(errors="replace")
                found[name] = max(found.get(name, (0, "")), (read_number(at), queue))
        return found

    def forget_runs(self, queues: Sequence[str], schedules: Sequence[str]) -> None:
        """Forget in these queues the last runs of schedules that have been gone for long.  No call will need them,
        which is why no script is needed."""
        self.transport.pipeline([("HDEL", self.keys.of(queue)["fired"], *schedules) for queue in queues])

    def deliver(self, queue: str, keys: Sequence[str]) -> list[str]:
        """→ retry, for jobs that have left this queue to be retried in others (`settle`).  `keys`: those of their
        entries in `end_calls`.  Returns those whose jobs have arrived: their entries are to be removed.  Jobs that
        cannot arrive now, because the other queue's server is away, are left out.

        Anybody may do this, several at once and again after a crash at any line.  The entry is removed last; the other
        queue takes a job once for each move; and the id's reservation (`reserve`) follows the job.  A call that reaches
        the other queue so late that the queue may have forgotten the job has no effect."""
        if not keys:
            return []
        now = self._read_over("lapsed", [queue], at_once=1, width=2)[queue][1]  # another server may be away
        latest = now + min(max(self.options.idempotency, 10_000), 3_600_000) // 2
        entries = self.transport.command("HMGET", self.keys.of(queue)["end_calls"], *keys)
        arrived: list[str] = []
        away: set[str] = set()
        for key, entry in zip(keys, entries, strict=True):
            goal = ""
            try:
                if entry is not None:
                    goal, id, digest, args = read_move(key, entry)
                if entry is None or (goal not in away and self._arrives(goal, id, digest, latest, args)):
                    arrived.append(key)
            except StoreError as error:
                away.add(goal)
                if _closed.is_new(error, f"{queue}\t{goal}"):
                    logger.warning("Jobs cannot go from queue %r to %r now: %s", queue, goal, error)
            except ValueError as error:
                arrived.append(key)
                logger.error("The job of entry %r of queue %r cannot be read, and is lost: %s", key, queue, error)
        return arrived

    def drop_end_calls(self, queue: str, keys: Collection[str]) -> None:
        """Remove these entries of `end_calls`, after what follows from them is in the store."""
        if keys:
            self.transport.command("HDEL", self.keys.of(queue)["end_calls"], *keys)

    def _arrives(self, queue: str, id: str, digest: bytes, latest: int, args: Sequence[Argument]) -> bool:
        # Also when there is no memory to add a name that is there.
        if not self.transport.command("SISMEMBER", self.keys.fleet("queues"), queue):
            self._register(queue)
        held = (self.transport.command("HGET", self.keys.of(self.keys.identity(id))["homes"], id) or b"").decode()
        for _ in range(_TRIES):
            answer = self._run("arrive", queue, self.options.idempotency, latest, *args)
            if ACTIVE:
                crashpoint("moved.arrived")
            # The reservation was read before the job was seen there: if it is still the same, the job has not moved on.
            if answer != b"here" or _home(held) == queue or not (held or digest):
                return bool(answer != b"late")
            held = self._reserve(queue, {id: held})[id]
        return False

    # -- identities ------------------------------------------------------------

    def reserve(self, queue: str, ids: Sequence[str], *, lost: int = 0) -> dict[str, str]:
        """Reserve ids of the caller's, at most MAX_BATCH, for jobs of this queue.  Returns id → queue for those that
        another queue knows: it has the job, or remembers it.  These must not be enqueued here.

        `lost`: how often this queue has answered MOVED for the ids.  Raises StoreUnavailable if other processes move
        them again and again.

        An id has one reservation in the namespace, in a slot of its own, and the queue of the reservation decides
        whether there is a job.  If that is another queue, and knows nothing of the id, it is first told to refuse the
        id (`vacate`), and then the reservation is replaced, if it is still the same.  So a process may end between any
        two calls, and a call may come late: only the queue that has the reservation can take a job."""
        held = self._reserve(queue, dict.fromkeys(ids, ""))
        if lost:  # a later reservation of this queue voids what another process has begun
            mine = {id: each for id, each in held.items() if _home(each) == queue}
            held |= self._reserve(queue, mine)
            self._vacate("return", queue, {id: held[id] for id in mine if _home(held[id]) == queue})
        known: dict[str, str] = {}
        for _ in range(_TRIES - lost):
            others: dict[str, dict[str, str]] = {}
            for id, each in held.items():
                if _home(each) != queue:
                    others.setdefault(_home(each), {})[id] = each
            if not others:
                return known
            for home, theirs in others.items():
                found = self._vacate("leave", home, theirs)
                known |= dict.fromkeys(found, home)
                held |= self._reserve(queue, {id: each for id, each in theirs.items() if id not in found})
            held = {id: each for id, each in held.items() if id not in known}
        raise StoreUnavailable(f"Other processes enqueue {next(iter(held))!r} in other queues at this moment.")

    def _reserve(self, queue: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return id → its reservation.  `wanted`: id → the reservation that is to be replaced by one for this queue; ""
        = none.  One round trip; on a Cluster one for each place."""
        by_place: dict[str, list[str]] = {}
        for id in wanted:
            by_place.setdefault(self.keys.identity(id), []).append(id)
        calls: list[OneCall] = [
            ("reserve", place, [queue, *(text for id in some for text in (id, wanted[id]))], None)
            for place, some in by_place.items()
        ]
        found: dict[str, str] = {}
        for some, answers in zip(by_place.values(), self._run_each(calls), strict=True):
            if isinstance(answers, StoreError):
                raise answers
            found |= zip(some, (each.decode(errors="replace") for each in answers), strict=True)
        return found

    def _vacate(self, verb: str, queue: str, held: Mapping[str, str]) -> list[str]:
        """Let a queue refuse ids that it does not know ("leave"), for as long as ids are remembered and an hour at
        least, or take them again ("return").  Returns those that it knows: nothing changes for them."""
        args = [text for id, each in held.items() for text in (id, each.partition(":")[0])]
        answers = self._run("vacate", queue, verb, self.options.idempotency, *args) if held else []
        return [id for id, answer in zip(held, answers, strict=True) if answer == b"known"]

    def _register(self, queue: str) -> None:
        """Store the queue's name, which is not in the queue's own slot.  Workers find new queues by it."""
        try:
            self.transport.command("SADD", self.keys.fleet("queues"), queue)
        except StoreFull:
            if queue not in self._registered:
                raise  # else the name is most likely there, and the call that follows may need no memory
        self._registered[queue] = monotonic() + NAMED


def _home(reservation: str) -> str:
    """Return the queue of a reservation, "number:queue"."""
    return reservation.partition(":")[2]


def _words(answer: bytes | list[bytes]) -> list[Added]:
    return [_ADDED[answer]] if isinstance(answer, bytes) else [_ADDED[word] for word in answer]


#: Lane, priority, digest of the unique key, and the ms for which the key is locked, of a job that needs none of them.
_PLAIN_LANE = ("shared", 0, "", "")


def _is_plain(args: Sequence[Argument]) -> bool:
    """Are these arguments of enqueue_one.lua those of a job without controls, whose id is not remembered?"""
    return len(args) == 5 and args[4] == ""


def _lane_of(job: NewJob) -> tuple[Argument, ...] | None:
    """Return what lua/adding/enqueue_one.lua and enqueue_plain.lua must know of the job's controls; () for a plain job.
    None: only enqueue.lua can add this job."""
    _, _, controls, run_at, on_conflict, schedule_run, run_in, expires_in, _, _ = job
    if run_at or schedule_run or run_in is not None or expires_in is not None:
        return None
    if controls is PLAIN:
        return ()
    if controls.expires_at is not None or (controls.unique is not None and on_conflict not in ("skip", "raise")):
        return None
    lane = "alone" if controls.alone or controls.at_most_once else "shared"
    locked: Argument = controls.unique_for if controls.unique_mode == "period" else ""
    found = (lane, controls.priority, controls.unique or "", locked if controls.unique else "")
    return () if found == _PLAIN_LANE else found


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
