"""What a job is: its states, and the frozen values that the parts exchange.  Pure: no clock, no I/O, no Django.

Long because every value that the store and its callers exchange is here: each means something only next to the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from django_jobs.core.lanes import Lane as Lane
from django_jobs.core.queue_stats import Pause as Pause
from django_jobs.core.queue_stats import QueueStats as QueueStats


class State(StrEnum):
    """The nine states of jobs; a job is in exactly one."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    RETRY = "retry"
    BLOCKED = "blocked"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


#: A job in one of these states runs again only if a user wants it to.
FINISHED = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED, State.EXPIRED})
#: The job waits; it can be cancelled, replaced or deleted at once.
WAITING = frozenset({State.SCHEDULED, State.QUEUED, State.RETRY, State.BLOCKED})
MAY_HAVE_STARTED = frozenset({State.DEAD, State.CANCELLED})  # a job that ended so; an expired one has not
#: The job waits for something other than a free worker.
NOT_READY = WAITING - {State.QUEUED}

#: The newest format of a record that this version can read, and the one that it writes (serialization/record.py).
RECORD_FORMAT = 1


@dataclass(frozen=True)  # no slots: with_digest copies the fields
class Controls:
    """The part of a job that a store reads; not the rest of the record.  Times and durations are integer ms."""

    priority: int = 0
    alone: bool = False
    at_most_once: bool = False
    #: the job may not begin after this time; an attempt that has begun is retried whatever the time.
    expires_at: int | None = None
    #: hex digest of the unique key; None = not unique.
    unique: str | None = None
    #: "queued" | "running" | "success" | "period": how long the lock is held.
    unique_mode: str = "queued"
    #: with mode "period": how long the lock lives.
    unique_for: int = 0
    #: jobs with the same key share the limit; None = no limit.
    limit_key: str | None = None
    limit: int = 0
    #: keep the result this long, whatever HISTORY says; None = as HISTORY says.
    keep_result: int | None = None
    #: id of the workflow or batch that the job belongs to: its end is noted for it.
    workflow: str | None = None
    #: the note has the result: a later step names it.
    noted_result: bool = False
    #: names of jobs: the first is enqueued when the job has ended, the second when it is dead.
    on_end: str | None = None
    on_dead: str | None = None
    #: when its arguments were asked for, if not when the job was enqueued: a newer call has replaced them, or the job
    #: comes from the outbox.
    asked_at: int | None = None
    more: str = "{}"  # JSON text of fields that a newer django_jobs wrote, kept unchanged

    def with_digest(self, unique: str) -> Controls:
        """Return the same controls with another unique key.

        A worker needs such a copy for every unique job.  To make it of its fields would take 2 µs more."""
        copy = object.__new__(Controls)
        copy.__dict__.update(self.__dict__, unique=unique)
        return copy


PLAIN = Controls()


@dataclass(frozen=True, slots=True)
class Options:
    """The options that jobs of one definition share, unless `using` changed them; stored with each."""

    max_attempts: int = 10
    #: time limit of one attempt (ms); None = no limit.
    timeout: int | None = None
    #: of this job (ms), 0 = none; None = as its type has it, when it runs.
    soft_timeout: int | None = None
    #: pauses of this job (ms), separated by spaces; "" = as its type has them, when it fails.
    backoff: str = ""
    #: False: the result of this job is never stored.
    result: bool = True
    #: of a job that is delivered at most once: it is tried again if its function failed, and only then.
    retried: bool = False
    #: "dead" or "discard"
    on_exhausted: str = "dead"
    #: which arguments are sensitive (core/sensitive.py); "" = none, or an older version enqueued the job.
    sensitive: str = ""
    #: the job's tags (core/options.py), separated by spaces; `using` may add some to those of the definition.
    tags: str = ""
    #: the tenant, site or other scope that enqueue middleware gave the job.
    scope: str = ""
    #: the identity of its type, if that is not its name; scripts read it, too (lua/lib/jobs/record.lua).
    type: str = ""
    more: str = "{}"  # JSON text of fields that a newer django_jobs wrote, kept unchanged


DEFAULT_OPTIONS = Options()


#: What the field `tags` of a record can have; scripts read the same (lua/lib/ends/failed.lua).
_TAGS = re.compile(r"[A-Za-z0-9_.:/@+= -]*")


def tags_in(text: str) -> tuple[str, ...]:
    """Return the tags in the field of a record; () for a text that this package does not write."""
    if not text or not _TAGS.fullmatch(text):
        return ()
    return tuple(dict.fromkeys(word for word in text.split(" ") if 0 < len(word) <= 64))[:8]


class Job(NamedTuple):
    """One job as it was requested.  `args` is JSON text `[[positional…], {keyword…}]`: see serialization/record.py."""

    id: str
    queue: str
    name: str
    args: bytes
    #: ms; 0 in a record that is sent: the store fills in its own time.
    enqueued_at: int
    options: Options = DEFAULT_OPTIONS
    controls: Controls = PLAIN
    #: what enqueue middleware sends with the job: JSON values only.
    meta: dict[str, Any] | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """The words to find and count it by."""
        return tags_in(self.options.tags)


class NewJob(NamedTuple):
    """What `Store.enqueue` takes.  `controls` repeats what `record` holds, for stores that do not parse records."""

    id: str
    record: bytes
    controls: Controls = PLAIN
    #: ms since the epoch; 0 = now.
    run_at: int = 0
    #: for unique jobs: "skip" | "replace" | "debounce" | "raise" (the last is "skip" to a store).
    on_conflict: str = "skip"
    #: (schedule id, scheduled time in ms): added only if that schedule has not run at or after that time.
    schedule_run: tuple[str, int] | None = None
    #: ms from when the store takes the job, by the store's clock; used instead of `run_at`.
    run_in: int | None = None
    #: ms after the job could first run.  The record has `expires_at` 0, and the store fills in the time by its clock.
    expires_in: int | None = None
    #: what a repeated call is compared with; "" = the id is forgotten when the job leaves the store.
    digest: str = ""
    #: ms since the epoch: when its arguments were asked for, if that is long ago; 0 = now.
    asked_at: int = 0


class Added(StrEnum):
    """What happened to one NewJob."""

    ADDED = "added"
    #: the id existed already; nothing changed.
    EXISTS = "exists"
    #: an equal unique job waits; nothing changed.
    DUPLICATE = "duplicate"
    #: an equal unique job was waiting, and now has the new arguments.
    REPLACED = "replaced"
    #: MAX_LENGTH is reached; nothing changed.
    FULL = "full"
    #: the schedule has already run at or after that time.
    ALREADY_RUN = "fired"
    #: the id was taken to another queue, or is on its way: `Store.reserve` tells; nothing changed.
    MOVED = "moved"


class Edited(StrEnum):
    """What happened to an edit of one waiting job."""

    #: it has the new record, and still waits in the same place.
    EDITED = "edited"
    GONE = "gone"
    #: it is not waiting: it runs or has ended; nothing changed.
    MOVED = "moved"
    #: it was edited or replaced meanwhile; nothing changed.
    CHANGED = "changed"
    #: the edited job would have the same unique key as another job; nothing changed.
    DUPLICATE = "duplicate"


class Claim(NamedTuple):
    """The right to run one job; a worker holds it while it runs the job."""

    id: str
    queue: str
    #: fencing number, greater at every claim of this queue; every settling call passes it.
    token: int
    record: bytes
    failures: int = 0
    crashes: int = 0
    #: ms since when this job has been waiting for a worker that knows its name; 0 = it is not.
    parked_at: int = 0
    claimed_at: int = 0
    worker: str = ""
    #: a worker died with all its processes while it held this job.
    suspect: bool = False
    #: ms since when it could run, as in JobInfo.since; 0 = since the time in its record.
    since: int = 0
    #: hex digest of the report by which a remote worker ends the attempt; the store keeps it (Store.reported).
    report: str = ""
    #: the attempt may end only because its lease is over: if it was extended meanwhile, the claim counts as stale.
    overdue: bool = False
    #: a suspect whose next crash would be its last: call Store.begin before it begins.
    has_to_wait: bool = False
    #: the number of the last attempt before a person let the job run again; 0 = nobody has.
    earlier: int = 0

    @property
    def attempt(self) -> int:
        """1 for the first start.  Failures and lost workers count; hand-backs and snoozes do not."""
        return self.earlier + self.failures + self.crashes + 1

    def waited(self, job: Job) -> int:
        """Return how long the job waited for this claim (ms), counted from when it could run, by the store's clock."""
        return max(0, self.claimed_at - max(self.since, job.enqueued_at))


class Expired(NamedTuple):
    """A job that was found too late to start."""

    id: str
    record: bytes
    #: since when it could have run (ms), if not since its enqueueing; 0 = see the record.
    since: int = 0


class Claimed(NamedTuple):
    """What `Store.claim` returns."""

    claims: list[Claim]
    #: jobs that this call found expired and moved to "expired".
    expired: list[Expired]
    left: int  # jobs left in that lane
    #: ms until the next scheduled or retry job of the queue is due or a pause ends (≥ 0); None = neither will happen.
    next_due: int | None
    now: int  # the store's clock, ms
    others: bool = False  # jobs wait for a worker that knows their names, and this call returned none of them
    rank: int = 0  # of a claim by names: where the next call continues; 0 = the lane was looked through


class Completion:
    """Attempts of one queue that succeeded, for `Store.claim` to end in the round trip of the claim."""

    __slots__ = ("done", "queue", "stale")

    def __init__(self, queue: str, done: Sequence[Completed]) -> None:
        self.queue, self.done = queue, done
        #: the answer of `Store.complete`: ids whose claim was stale.  None: it was not answered, and must be called.
        self.stale: list[str] | None = None


class Killed(str):
    """The id of a job whose attempt a person killed, as Store.extend returns it: its process must end."""

    token: int

    def __new__(cls, id: str, token: int) -> Killed:
        """`token` is the token of that attempt's claim."""
        killed = super().__new__(cls, id)
        killed.token = token
        return killed


class Completed(NamedTuple):
    """One successful attempt, for `Store.complete`.  `result` is the JSON text of the value, b"" for None."""

    claim: Claim
    result: bytes = b""
    run_ms: int = 0
    #: under what it is counted: the identity of its type; "" = as its record says.
    name: str = ""
    controls: Controls = PLAIN
    #: ms from when the job could run (see JobInfo.since) to its claim, for the charts.
    wait_ms: int = 0


class Attempt(NamedTuple):
    """One line of a job's attempts log: how an attempt ended.  `run_ms` is -1 if unknown."""

    #: 1 is the first; 0 if the line is about no attempt.  After a snooze or a hand-back, a number comes again.
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
    #: of the code that the worker ran (conf/release.py); "" = not known.
    release: str = ""
    #: the place in the project's code where the error came from (core/signature.py); "" = not known.
    frame: str = ""

    @property
    def error_name(self) -> str:
        """The class as Python prints it: without the module `builtins`."""
        return self.error_type.removeprefix("builtins.")

    @property
    def said(self) -> str:
        """The error as one text: "ValueError: no such order"."""
        return f"{self.error_name}: {self.error}" if self.error_name else self.error or self.outcome


class Ended(NamedTuple):
    """One attempt that did not succeed, for `Store.settle`."""

    claim: Claim
    #: "retry", "snooze", "park", "refile", "bury" or "discard": see `Store.settle`.
    verb: str
    #: the line for the log, of "retry", "bury" and "discard".
    attempt: Attempt | None = None
    #: ms, of "retry" and "snooze".
    delay: int = 0
    #: the digest of "park".
    knows: str = ""
    #: the new record of "refile", and of "retry" if the job has another one from now on.
    record: bytes = b""
    #: of "retry": the queue in which the job is retried; "" = the same.
    queue: str = ""
    #: of "snooze": False if the job has not begun, so that it can still expire.
    begun: bool = True

    @property
    def failures(self) -> int:
        """How many failed attempts it adds to those of the job: a job whose worker was lost has not failed."""
        counts = self.verb == "retry" or (
            self.verb == "bury" and self.attempt and self.attempt.outcome != "worker_lost"
        )
        return int(bool(counts))

    @property
    def run_ms(self) -> int:
        """For how long the attempt ran, if that counts among the times of its job type; else -1."""
        return -1 if self.attempt is None or self.verb == "discard" else self.attempt.run_ms


class Recovered(NamedTuple):
    """One claim that was taken from a lost worker, and where the job went."""

    id: str
    record: bytes
    #: State.QUEUED (to run again, alone) or State.DEAD or State.CANCELLED
    state: State
    crashes: int
    worker: str
    #: the number of the attempt for which that worker held the job.
    attempt: int
    #: ms by the store's clock: when that attempt began, and when the claim was taken away.
    claimed_at: int
    at: int
    #: as Claim.since.
    since: int = 0


class Faults(NamedTuple):
    """Inconsistencies in a queue that no transition should leave, found by a read-only check."""

    #: kind, as `reconcile` names it → ids of jobs; digests for "lock_without_job", keys for "wrong_type".
    found: dict[str, list[str]]
    #: True if everything was checked.
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
    #: for running jobs only.
    token: int = 0
    worker: str = ""
    #: JSON text of the returned value; None = none kept.
    result: bytes | None = None
    run_ms: int = -1
    checkin: dict[str, Any] | None = None
    attempts: tuple[Attempt, ...] = ()
    parked_at: int = 0
    #: ms since when it can run, or since when it could before its last claim: the time when it was due, let in after it
    #: was blocked, revived or handed back, or when the pause of its queue ended.  0: since it was enqueued (time in its
    #: record), or it cannot run yet.
    since: int = 0
    #: as in Claim.
    earlier: int = 0
    #: an attempt has begun, or a person wants the job to run: it does not expire any more.
    begun: bool = False

    @property
    def claim(self) -> Claim:
        """The claim of a running job."""
        counts = self.failures, self.crashes, self.parked_at
        held = Claim(self.id, self.queue, self.token, self.record, *counts, claimed_at=self.at, worker=self.worker)
        return held._replace(since=self.since, earlier=self.earlier)


#: The state of a worker that has not reported in time.
SILENT = "silent"


class WorkerInfo(NamedTuple):
    """One `runworkers` parent: its last description of itself (a JSON object), and the time of it (ms)."""

    name: str
    seen_at: int
    info: dict[str, Any]
