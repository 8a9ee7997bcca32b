"""The promises as a plain model: what each call must answer, and how every job must look after it.

Pure: no store, no settings.  The model knows the two things that it cannot foresee, and learns them: whether a waiting
job is queued or blocked, and when a step of a workflow appears.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from django_jobs.core.values import FINISHED, WAITING, Added, State

MAX_CRASHES = 3
DAY = 86_400_000


@dataclass(frozen=True)
class Type:
    """One type of jobs, as it was deployed last."""

    name: str
    queue: str
    limit: int = 0
    #: the limit counts for each value of the argument.
    per_value: bool = False
    once: bool = False
    max_attempts: int = 3
    #: by how many names it was called before: the oldest one is its identity.
    renamed: int = 0


@dataclass(frozen=True)
class Queue:
    """One queue, as it is configured."""

    max_length: int = 0
    max_concurrency: int = 0


@dataclass(frozen=True)
class Run:
    """One attempt that holds a claim, or was killed and has not ended."""

    worker: str
    token: int


@dataclass
class Job:
    """One job, as it must look."""

    id: str
    queue: str
    type: Type
    n: int = 1
    key: str | None = None
    #: "queued", "running", "success", or the length of the period in ms.
    mode: str | int = "queued"
    expires_at: int | None = None
    state: State = State.QUEUED
    due: int = 0
    #: a caller chose the id, or the job must not run twice: the id is remembered after its end.
    is_promise: bool = False
    run: Run | None = None
    #: the attempt that was killed and has not ended, and the unique key that it keeps.
    ending: Run | None = None
    ending_key: str | None = None
    stop: bool = False
    #: an attempt has begun, or a person wanted the job to run: it does not expire any more.
    begun: bool = False
    failures: int = 0
    crashes: int = 0
    suspect: bool = False
    waits_to_begin: bool = False
    has_succeeded: bool = False
    #: the least number that its next attempt may have: none has that of another one, but what was handed back.
    least_attempt: int = 0

    @property
    def limit_key(self) -> str | None:
        if not self.type.limit:
            return None
        return f"{self.type.name}:{self.n}" if self.type.per_value else self.type.name


@dataclass
class Batch:
    """A batch, or a chain of `steps` steps: which of its further jobs may be there."""

    id: str
    queue: str
    type: Type
    members: list[str] = field(default_factory=list)
    steps: int = 0
    is_closed: bool = False
    callbacks: tuple[str, ...] = ("on_success", "on_complete", "on_dead")
    #: a job was announced, and its producer stopped before it was enqueued.
    lacks_one: bool = False
    #: callbacks whose condition was fulfilled once.
    due: set[str] = field(default_factory=set)


class Model:
    """What must be true."""

    def __init__(self, now: Callable[[], int], types: dict[str, Type], queues: dict[str, Queue]) -> None:
        self.now, self.types, self.queues = now, types, queues
        self.jobs: dict[str, Job] = {}
        #: (queue, key) → the job that took it last, and until when (0: as long as the job is covered).
        self.locks: dict[tuple[str, str], tuple[str, int]] = {}
        #: (queue, worker) → when its lease ends.
        self.leases: dict[tuple[str, str], int] = {}
        #: (queue, type or "") → until when (0: until somebody resumes it).
        self.pauses: dict[tuple[str, str], int] = {}
        #: ids that no job may have again → until when.
        self.gone: dict[str, int] = {}
        #: what the call with this id was answered because of another job's unique key, until when, and in which queue.
        self.answered: dict[str, tuple[Added, int, str]] = {}
        self.batches: dict[str, Batch] = {}

    # -- what is true now --------------------------------------------------------

    def is_alive(self, queue: str, run: Run) -> bool:
        return self.leases.get((queue, run.worker), 0) > self.now()

    def is_ending(self, job: Job) -> bool:
        """A killed attempt keeps what it held until it ends, or maintenance removes its worker's lease."""
        return job.ending is not None

    def is_late(self, job: Job) -> bool:
        """From this time on, a job that has not started counts nowhere as waiting."""
        return job.expires_at is not None and job.expires_at <= self.now() and not job.begun and job.state in WAITING

    def holder(self, queue: str, key: str | None) -> str | None:
        """Return the job that has the unique key."""
        id, until = self.locks.get((queue, key or ""), ("", -1))
        if until > self.now():
            return id
        job = self.jobs.get(id)
        if until != 0 or job is None:
            return None
        if job.state in FINISHED:
            return id if self.is_ending(job) else None
        return None if self.is_late(job) else id

    def is_paused(self, queue: str, type: str = "") -> bool:
        until = self.pauses.get((queue, type))
        return until is not None and (until == 0 or until > self.now())

    def executing(self, queue: str) -> list[Job]:
        """Return the jobs of which an attempt holds its places: it runs, or was killed and has not ended."""
        return [job for job in self.in_queue(queue) if job.run or self.is_ending(job)]

    def in_queue(self, queue: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.queue == queue]

    def limit_of(self, job: Job) -> int:
        """Return how many jobs may run at once under the job's limit key, as the code says now."""
        return self.types[job.type.name].limit

    def has_room(self, job: Job) -> bool:
        """May the job start beside those that execute?"""
        others = [other for other in self.executing(job.queue) if other is not job]
        most = self.queues[job.queue].max_concurrency
        limit = self.limit_of(job)
        same = [other for other in others if job.limit_key and other.limit_key == job.limit_key]
        return (not most or len(others) < most) and (not job.limit_key or len(same) < limit)

    def claimable(self, queue: str) -> list[Job]:
        """Return the jobs that a free worker must be given."""
        if self.is_paused(queue):
            return []
        return [
            job
            for job in self.in_queue(queue)
            if job.state in {State.QUEUED, State.BLOCKED}
            and not self.is_late(job)
            and not self.is_ending(job)
            and not self.is_paused(queue, job.type.name)
            and self.has_room(job)
        ]

    def waiting(self, queue: str) -> int:
        """Return how many jobs count for MAX_LENGTH."""
        return sum(job.state in {State.QUEUED, State.BLOCKED} for job in self.in_queue(queue))

    # -- in ----------------------------------------------------------------------

    def enqueue(self, new: Job, policy: str = "skip", fits: bool | None = None) -> Added:
        """`fits`: whether the whole call finds room, if it has more than one job."""
        if new.id in self.jobs or self.gone.get(new.id, 0) > self.now():
            return Added.EXISTS
        before, until, queue = self.answered.get(new.id, (None, 0, ""))
        if before is not None and until > self.now():
            return before if queue == new.queue else Added.EXISTS
        holder = self.holder(new.queue, new.key)
        if holder is not None:
            answer = self._conflict(self.jobs.get(holder), new, policy)
            if new.is_promise:
                self.answered[new.id] = answer, self.now() + DAY, new.queue
            return answer
        delayed = new.due > self.now()
        if not delayed and not (self.finds_room(new.queue, 1) if fits is None else fits):
            return Added.FULL
        new.state = State.SCHEDULED if delayed else State.QUEUED
        self.jobs[new.id] = new
        self._lock(new)
        return Added.ADDED

    def fits(self, queue: str, jobs: int) -> bool:
        most = self.queues[queue].max_length
        return not most or self.waiting(queue) + jobs <= most

    def finds_room(self, queue: str, jobs: int) -> bool:
        """Jobs that are too late to start need no room."""
        if not self.fits(queue, jobs):
            self.expire(queue)
        return self.fits(queue, jobs)

    def expire(self, queue: str) -> None:
        for job in self.in_queue(queue):
            if self.is_late(job):
                self._move(job, State.EXPIRED)

    def _conflict(self, old: Job | None, new: Job, policy: str) -> Added:
        if policy not in {"replace", "debounce"} or old is None or old.state not in WAITING:
            return Added.DUPLICATE
        old.n, old.type = new.n, replace(old.type, limit=new.type.limit, per_value=new.type.per_value)
        if policy == "debounce" and new.due > self.now():
            old.state, old.due, old.expires_at = State.SCHEDULED, new.due, new.expires_at
        return Added.REPLACED

    def _lock(self, job: Job) -> None:
        if job.key is not None:
            until = self.now() + job.mode if isinstance(job.mode, int) else 0
            self.locks[job.queue, job.key] = job.id, until

    def _relock(self, job: Job) -> None:
        """The job waits again: it takes its key, unless another job has it."""
        if job.key is not None and not isinstance(job.mode, int) and self.holder(job.queue, job.key) is None:
            self._lock(job)

    def _unlock(self, job: Job, key: str | None) -> None:
        if key is not None and self.locks.get((job.queue, key), ("", 0))[0] == job.id:
            del self.locks[job.queue, key]

    # -- run ---------------------------------------------------------------------

    def promote(self, queue: str) -> list[Job]:
        due = [
            job for job in self.in_queue(queue) if job.state in {State.SCHEDULED, State.RETRY} and job.due <= self.now()
        ]
        for job in due:
            job.state = State.QUEUED
        return due

    def start(self, job: Job, run: Run, lease: int) -> None:
        """A worker has claimed the job.  Raises AssertionError if it must not have been given it."""
        assert job.state in {State.QUEUED, State.BLOCKED}, f"{job} was claimed"
        assert not self.is_late(job), f"{job} was claimed after its expiry"
        assert not self.is_ending(job), f"{job} was claimed beside its killed attempt"
        assert not self.is_paused(job.queue), "a paused queue gave a job"
        assert not self.is_paused(job.queue, job.type.name), f"{job} is of a paused type"
        assert self.has_room(job), f"{job} was claimed over a limit"
        self.leases[job.queue, run.worker] = self.now() + lease
        job.waits_to_begin = job.suspect and job.crashes == MAX_CRASHES - 1
        job.state, job.run, job.stop = State.RUNNING, run, False
        if job.mode == "queued":
            self._unlock(job, job.key)

    def end(self, job: Job, state: State, *, failed: bool = False, due: int = 0, begun: bool = True) -> State:
        """The attempt that holds the job ends so.  Returns the state that is recorded."""
        if job.stop and state in WAITING:
            state = State.CANCELLED
        job.failures += failed
        job.begun |= begun
        self._move(job, state, due)
        return state

    def _move(self, job: Job, state: State, due: int = 0) -> None:
        job.state, job.due, job.run, job.stop, job.waits_to_begin = state, due, None, False, False
        if state in WAITING:
            self._relock(job)
        elif not isinstance(job.mode, int) and not (self.is_ending(job) and job.ending_key == job.key):
            self._unlock(job, job.key)
        job.has_succeeded |= state is State.SUCCEEDED

    def attempt_is_over(self, job: Job, token: int) -> None:
        """The process of this attempt says that it has ended."""
        if job.ending is not None and job.ending.token == token:
            self.let_go(job)

    def let_go(self, job: Job) -> None:
        key, job.ending, job.ending_key = job.ending_key, None, None
        if job.state in FINISHED or key != job.key:
            self._unlock(job, key)

    def recover(self, job: Job, *, whole_worker: bool) -> State:
        """The claim is taken from a lost worker: the whole worker is lost, or one of its processes."""
        spared = job.waits_to_begin or (whole_worker and not job.suspect and job.crashes == MAX_CRASHES - 1)
        job.crashes += job.type.once or not spared
        job.suspect |= whole_worker
        dead = job.type.once or (not spared and job.crashes >= MAX_CRASHES)
        return self.end(job, State.DEAD if dead else State.QUEUED)

    def release_worker(self, job: Job) -> State:
        """A worker that has stopped hands the job back; one that must not run twice may have begun."""
        job.crashes += job.type.once
        return self.end(job, State.DEAD if job.type.once else State.QUEUED)

    def worker_is_gone(self, queue: str, worker: str) -> None:
        for job in self.in_queue(queue):
            if job.ending is not None and job.ending.worker == worker:
                self.let_go(job)
        self.leases.pop((queue, worker), None)

    # -- people ------------------------------------------------------------------

    def cancel(self, job: Job) -> State:
        if job.state in WAITING:
            self._move(job, State.CANCELLED)
        elif job.state is State.RUNNING:
            job.stop = True
        return job.state

    def kill(self, job: Job) -> bool:
        if job.state in FINISHED:
            return False
        if job.run is not None:
            holder, until = self.locks.get((job.queue, job.key or ""), ("", 0))
            holds = holder == job.id and until == 0
            job.ending, job.ending_key = job.run, job.key if holds else None
        self._move(job, State.DEAD)
        return True

    def delete(self, job: Job) -> bool:
        if job.state is State.RUNNING or self.is_ending(job):
            return False
        self._unlock(job, job.key)
        self._unlock(job, job.ending_key)
        del self.jobs[job.id]
        self.gone[job.id] = self.now() + DAY if job.is_promise else 0
        return True

    def key_is_taken(self, job: Job) -> bool:
        """Has another job taken the unique key since this one ended or expired?"""
        if job.state not in FINISHED and not self.is_late(job):
            return False
        return self.holder(job.queue, job.key) not in {None, job.id}

    def revive(self, job: Job) -> bool:
        may_have_started = job.type.once and job.state in {State.DEAD, State.CANCELLED}
        if job.state in {State.QUEUED, State.RUNNING, State.SUCCEEDED} or may_have_started or self.key_is_taken(job):
            return False
        job.least_attempt += job.state is State.DEAD
        if job.state in FINISHED:
            job.failures, job.crashes, job.suspect = 0, 0, False
        job.begun = True
        self._move(job, State.BLOCKED if self.is_ending(job) else State.QUEUED)
        return True

    def reschedule(self, job: Job, at: int) -> bool:
        if job.state not in WAITING or self.is_late(job):
            return False
        job.state, job.due = State.RETRY if job.state is State.RETRY else State.SCHEDULED, at
        return True

    def edit(self, job: Job, n: int, key: str | None) -> str:
        """Return "edited", "moved" or "duplicate"."""
        if job.state not in WAITING or self.is_late(job):
            return "moved"
        if key != job.key:
            if self.holder(job.queue, key) not in {None, job.id}:
                return "duplicate"
            held = self.locks.get((job.queue, job.key or ""), ("", 0))
            if held[0] == job.id and not (self.is_ending(job) and job.ending_key == job.key):
                self._unlock(job, job.key)
            job.key = key
            if held[0] == job.id and held[1] > self.now():  # the rest of the period
                self.locks[job.queue, key or ""] = held
            else:
                self._relock(job)
        job.n = n
        return "edited"

    # -- workflows -----------------------------------------------------------------

    def note_batches(self) -> None:
        """Note which callbacks may be there from now on."""
        for batch in self.batches.values():
            members = [self.jobs.get(id) for id in batch.members]
            if any(job and job.state is State.DEAD for job in members):
                batch.due.add("on_dead")
            if batch.is_closed and all(job is None or job.state in FINISHED for job in members):
                batch.due.add("on_complete")
            if batch.is_closed and all(job is None or job.has_succeeded for job in members) and not batch.lacks_one:
                batch.due.add("on_success")

    def may_appear(self, id: str) -> Job | None:
        """Return the job if a workflow may have enqueued it."""
        workflow, _, step = id.rpartition(".")
        batch = self.batches.get(workflow)
        if batch is None or id in self.jobs or id in self.gone:
            return None
        if batch.steps:
            before = self.jobs.get(f"{workflow}.{int(step) - 1}")
            if not before or not before.has_succeeded:
                return None
        elif step not in batch.due:
            return None
        return Job(id, batch.queue, batch.type, is_promise=True)

    def missing(self) -> Iterator[str]:
        """Yield the jobs that workflows owe, when all else has ended."""
        for batch in self.batches.values():
            wanted = []
            for step in range(1, batch.steps):
                before = self.jobs.get(f"{batch.id}.{step - 1}")
                if before and before.state is State.SUCCEEDED:
                    wanted.append(str(step))
            if not batch.steps:
                members = [self.jobs.get(id) for id in batch.members]
                states = [job.state for job in members if job]
                if State.DEAD in states:
                    wanted.append("on_dead")
                if batch.is_closed and all(state in FINISHED for state in states):
                    wanted.append("on_complete")
                whole = len(states) == len(members) and not batch.lacks_one
                if batch.is_closed and whole and set(states) <= {State.SUCCEEDED}:
                    wanted.append("on_success")
            for step in wanted:
                if batch.steps == 0 and step not in batch.callbacks:
                    continue
                if (id := f"{batch.id}.{step}") not in self.jobs and id not in self.gone:
                    yield id
