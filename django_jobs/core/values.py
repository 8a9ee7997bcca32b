"""What a job is: its states, and the frozen values that move between the parts.  Pure: no clock, no I/O, no Django."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from django_jobs.core.lanes import Lane as Lane
from django_jobs.core.queue_stats import Pause as Pause
from django_jobs.core.queue_stats import QueueStats as QueueStats


class State(StrEnum):
    """The nine states; a job is in exactly one (SPEC of states: docs/internals.md)."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    RETRY = "retry"
    BLOCKED = "blocked"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


#: No worker will touch a job in one of these again by itself.
FINISHED = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED, State.EXPIRED})
#: The job waits: it may be cancelled, replaced or deleted at once.
WAITING = frozenset({State.SCHEDULED, State.QUEUED, State.RETRY, State.BLOCKED})
#: The job waits for something else than a free worker.
NOT_READY = WAITING - {State.QUEUED}

#: The newest format of a record that this version reads, and the one that it writes (serialization/record.py).
RECORD_FORMAT = 1
#: Highest and lowest `priority` inside a queue.
MAX_PRIORITY = 100


@dataclass(frozen=True, slots=True)
class Controls:
    """What a store must know of a job; the rest of a record is opaque to it.  Times and durations are integer ms."""

    priority: int = 0
    alone: bool = False
    at_most_once: bool = False
    #: when it is too late to begin; an attempt that has begun is retried whatever the time.
    expires_at: int | None = None
    #: hex digest of the unique key; None = not unique.
    unique: str | None = None
    #: "queued" | "running" | "success" | "period": how long the lock is held.
    unique_mode: str = "queued"
    #: with mode "period": the lock's life.
    unique_for: int = 0
    #: jobs with the same key share the limit; None = no limit.
    limit_key: str | None = None
    limit: int = 0
    #: keep the result this long whatever HISTORY says; None = as HISTORY says.
    keep_result: int | None = None
    more: str = "{}"  # JSON text of fields that a newer django_jobs wrote, carried along


PLAIN = Controls()


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for every job of one definition, and travels with each."""

    max_attempts: int = 10
    #: one attempt may take this long (ms); None = no limit.
    timeout: int | None = None
    #: "dead" or "discard"
    on_exhausted: str = "dead"
    more: str = "{}"  # JSON text of fields that a newer django_jobs wrote, carried along


DEFAULT_OPTIONS = Options()


class Job(NamedTuple):
    """One job as it was asked for.  `args` is JSON text `[[positional…], {keyword…}]`: see serialization/record.py."""

    id: str
    queue: str
    name: str
    args: bytes
    #: ms; 0 in a record that is sent: the store puts its time there.
    enqueued_at: int
    options: Options = DEFAULT_OPTIONS
    controls: Controls = PLAIN
    #: what enqueue middleware wants to travel along: JSON values only.
    meta: dict[str, Any] | None = None


class NewJob(NamedTuple):
    """What `Store.enqueue` takes.  `controls` repeats what `record` holds, for stores that do not read bytes."""

    id: str
    record: bytes
    controls: Controls = PLAIN
    #: ms since the epoch; 0 = now.
    run_at: int = 0
    #: for unique jobs: "skip" | "replace" | "debounce" | "raise" (the last is "skip" to a store).
    on_conflict: str = "skip"
    #: (schedule id, fire time in ms): added only if that schedule has not fired at or after that time.
    fire: tuple[str, int] | None = None
    #: ms from when the store takes it, by the store's clock; instead of `run_at`.
    run_in: int | None = None
    #: ms after it could first run: the record has `expires_at` 0, and the store puts the time there by its clock.
    expires_in: int | None = None
    #: what a repeated call is compared with; "" = the id is not remembered once the job has left the store.
    digest: str = ""


class Added(StrEnum):
    """What became of one NewJob."""

    ADDED = "added"
    #: the id was there already; nothing changed.
    EXISTS = "exists"
    #: an equal unique job waits; nothing changed.
    DUPLICATE = "duplicate"
    #: an equal unique job waits and has the new arguments now.
    REPLACED = "replaced"
    #: MAX_LENGTH is reached; nothing changed.
    FULL = "full"
    #: the schedule has already fired for that time.
    FIRED = "fired"


class Edited(StrEnum):
    """What became of an edit of one waiting job."""

    #: it has the new record, and waits where it did.
    EDITED = "edited"
    GONE = "gone"
    #: it does not wait: it runs, or has ended; nothing changed.
    MOVED = "moved"
    #: somebody else edited or replaced it meanwhile; nothing changed.
    CHANGED = "changed"
    #: an equal unique job has the key that it would have; nothing changed.
    DUPLICATE = "duplicate"


class Claim(NamedTuple):
    """The right to run one job: what a worker holds while it does."""

    id: str
    queue: str
    #: fencing number, greater at every claim of this queue; every settling call presents it.
    token: int
    record: bytes
    failures: int = 0
    crashes: int = 0
    #: ms since when this job waits for a worker that knows its name; 0 = it does not.
    parked_at: int = 0
    claimed_at: int = 0
    worker: str = ""
    #: a worker that held it died whole.
    suspect: bool = False
    #: ms since when it could run, as JobInfo.since; 0 = since the time in its record.
    since: int = 0

    @property
    def attempt(self) -> int:
        """1 for the first start.  Failures and lost workers count, hand-backs and snoozes do not."""
        return self.failures + self.crashes + 1


class Claimed(NamedTuple):
    """Answer of `Store.claim`."""

    claims: list[Claim]
    #: (id, record) of jobs that were found expired and moved there by this call.
    expired: list[tuple[str, bytes]]
    left: int  # jobs left in that lane
    #: ms until the next scheduled or retry job of the queue is due, or a pause ends (≥ 0); None = neither will be.
    next_due: int | None
    now: int  # the store's clock, ms
    others: bool = False  # jobs wait for a worker that knows their names, and this one got none


class Killed(str):
    """The id of a job whose attempt a person killed: its process has to end.  Store.extend tells of it."""

    token: int

    def __new__(cls, id: str, token: int) -> Killed:
        """`token` is the attempt's, as in its claim."""
        killed = super().__new__(cls, id)
        killed.token = token
        return killed


class Done(NamedTuple):
    """One successful attempt, for `Store.complete`.  `result` is the JSON text of the value, b"" for None."""

    claim: Claim
    result: bytes = b""
    run_ms: int = 0
    name: str = ""
    controls: Controls = PLAIN
    #: ms between the moment when the job could run (see JobInfo.since) and its claim, for the charts.
    wait_ms: int = 0


class Attempt(NamedTuple):
    """One line of a job's attempts log: how an attempt ended.  `run_ms` is -1 where unknown."""

    attempt: int
    #: "failed" | "timeout" | "worker_lost" | "misplaced" | "retried" | "discarded" | "unknown_job" | "corrupt" |
    #: "killed" | "expired"
    outcome: str
    at: int
    run_ms: int = -1
    worker: str = ""
    #: dotted name of the exception class; text only, never imported.
    error_type: str = ""
    error: str = ""
    traceback: str = ""

    @property
    def error_name(self) -> str:
        """The class as Python prints it: nobody writes builtins.ValueError."""
        return self.error_type.removeprefix("builtins.")


class Recovered(NamedTuple):
    """One claim that was taken from a lost worker: where the job went."""

    id: str
    record: bytes
    #: State.QUEUED (to run again, alone) or State.DEAD or State.CANCELLED
    state: State
    crashes: int
    worker: str
    #: which attempt it held the job for.
    attempt: int
    #: ms by the store's clock: when that began, and when the claim was taken away.
    claimed_at: int
    at: int
    #: as Claim.since.
    since: int = 0


class Faults(NamedTuple):
    """What no transition should leave in a queue, found by looking only."""

    #: kind, as `reconcile` names it → ids of jobs; of "lock_without_job" digests, of "wrong_type" keys.
    found: dict[str, list[str]]
    #: was everything looked at?
    whole: bool


class JobInfo(NamedTuple):
    """Everything known about one job, for handles, admin, CLI and API."""

    id: str
    queue: str
    record: bytes
    state: State
    failures: int = 0
    crashes: int = 0
    #: ms: run time of scheduled and retry jobs, end of finished ones, claim time of running ones, else 0.
    at: int = 0
    #: running only.
    token: int = 0
    worker: str = ""
    #: JSON text of the returned value; None = none kept.
    result: bytes | None = None
    run_ms: int = -1
    checkin: dict[str, Any] | None = None
    attempts: tuple[Attempt, ...] = ()
    parked_at: int = 0
    #: ms since when it can run, or could before its last claim: when it was due, let in after it was blocked, revived,
    #: handed back, or when the pause of its queue ended.  0: since it was enqueued (in its record), or it cannot yet.
    since: int = 0


class WorkerInfo(NamedTuple):
    """One `runworkers` parent as it last described itself (a JSON object), and when (ms)."""

    name: str
    seen_at: int
    info: dict[str, Any]
