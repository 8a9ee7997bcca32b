"""What findings are made of: measured facts.  Reads the store, the schedules and the outbox; changes nothing.

A look that fails does not stop the others: it is listed as not checked, with the reason.  Only a store that cannot be
reached ends the measurement, with StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, perf_counter, time
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFault

from django_jobs import browse, remote, schedules
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.conf import get_settings
from django_jobs.core.values import SILENT, State, WorkerInfo
from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.operations import kept
from django_jobs.operations.diagnosis import acknowledging, failing, looks
from django_jobs.operations.diagnosis.acknowledging import Acknowledged
from django_jobs.operations.diagnosis.causes import FOUND_BY, KINDS
from django_jobs.operations.diagnosis.finding import parts_of
from django_jobs.operations.diagnosis.late import LateSchedule, late_schedules
from django_jobs.operations.matching import behind_type
from django_jobs.serialization.checked import is_moment
from django_jobs.stores import get_store
from django_jobs.stores.values.answers import ParkedName

#: At most this many schedules are checked: the last scheduled time of each must be computed.
SCHEDULES = 200

#: What does not keep the jobs of a queue from starting.
ELSEWHERE = frozenset({"schedules", "archive", "outbox", "notifiers", "workflows"})
#: Seconds for which the jobs behind paused types are counted.
COUNTED = 0.3

#: The document of callables of NOTIFY that failed: path → [when (ms), why].
NOTIFIERS = "notifiers"

Seen = TypeVar("Seen")


class Unchecked(NamedTuple):
    """Something that could not be checked."""

    #: a key of UNCHECKED in report.py.
    what: str
    why: str = ""
    #: how many queues, schedules or workflows; 0 = all.
    number: int = 0
    #: their names; () = all.
    left: Container[str] = ()
    #: the causes that may be there unseen; () = all that the look finds.
    causes: Collection[str] = ()

    def hides(self, key: str) -> bool:
        """Return whether the finding with this key may be there although it was not found."""
        cause, queue, detail, job = parts_of(key)
        if cause not in (self.causes or FOUND_BY.get(self.what, KINDS)):
            return False
        if self.left == ():
            return True
        # A finding of the whole fleet adds up the numbers of all queues.
        is_sum = self.what == "counts" and not (queue or detail or job)
        return is_sum or any(name in self.left for name in (queue, detail.partition("\t")[0], job))


class ArchiveWaiting(NamedTuple):
    """Finished jobs of one queue that the archiver has not written yet."""

    queue: str
    number: int
    #: ms: when the first of them ended.
    since: int
    #: how many may wait.
    most: int


class FailedNotifier(NamedTuple):
    """A callable of NOTIFY that failed or hung when it was called last."""

    path: str
    #: ms
    at: int
    error: str


class ServerFacts(NamedTuple):
    """What was read of the store, once."""

    #: as Store.describe.
    about: Mapping[str, str]
    #: s, to the hundredth: how far the store's clock is before this machine's.
    clock_off: float
    #: ms: how long one call took, to the store and back.
    call_ms: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What was measured at one moment.  Times in ms by the store's clock.  None: not checked, or it does not apply."""

    now: int
    counted: browse.JobCounts
    workers: Sequence[WorkerInfo]
    unknown: Sequence[ParkedName] | None = ()
    #: events per minute of the last hour, if many jobs wait for a retry.
    hour: browse.Series | None = None
    #: as Store.describe.
    server: Mapping[str, str] | None = None
    late: Sequence[LateSchedule] | None = ()
    #: number of schedules that are switched on and not paused.
    schedules: int = 0
    archive: Sequence[ArchiveWaiting] | None = ()
    outbox: kept.Contents | None = None
    #: queues that are served over HTTP, by workers that do not report.
    pull_queues: frozenset[str] = frozenset()
    #: workers that were to report by now, and have not.
    silent: Sequence[WorkerInfo] = ()
    #: what runs where work waits.
    work: looks.Work | None = None
    #: job types that may fail more than usual.
    types: Sequence[failing.TypeNumbers] | None = ()
    halted: Sequence[browse.Halted] | None = ()
    #: queue and job type of a pause → how many jobs wait behind it.
    behind: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: ms.
    lease: float = 30_000
    #: s: how far the store's clock is before this machine's.
    clock_off: float = 0.0
    notifiers: Sequence[FailedNotifier] | None = ()
    #: the key of a finding → until when it is acknowledged.
    acknowledged: Mapping[str, Acknowledged] = field(default_factory=dict)
    unchecked: Sequence[Unchecked] = field(default_factory=tuple)


def measure(
    counted: browse.JobCounts | None = None,
    workers: Sequence[WorkerInfo] | None = None,
    hour: browse.Series | None = None,
    server: ServerFacts | None = None,
    queue: str = "",
    *,
    arguments: bool = True,
) -> Facts:
    """Check everything; what the caller has read already is not read again.  Raises StoreUnavailable.

    `workers`: with those that are silent.  `queue`: check only what concerns the jobs of this queue.
    `arguments`: the reader may see them, and so the errors that quote them."""
    store = get_store()
    counted = browse.job_counts([queue] if queue else None) if counted is None else counted
    known = store.workers(silent=True) if workers is None else workers
    workers = [each for each in known if each.info.get("state") != SILENT]
    silent = [each for each in known if each.info.get("state") == SILENT]
    unchecked: list[Unchecked] = []
    if counted.missing:
        left = frozenset(counted.names) - counted.queues.keys()
        unchecked.append(Unchecked("counts", number=counted.missing, left=left))
    if len(counted.names) > LIVE_QUEUES and not counted.at:
        unchecked.append(Unchecked("failures", "there are many queues, and no worker publishes their numbers"))
    if blocked := counted.holding(State.BLOCKED)[LIVE_QUEUES:]:
        why = f"too many queues have blocked jobs ({len(blocked)} were left out)"
        unchecked.append(Unchecked("names", why, left=frozenset(blocked), causes=("unknown",)))

    def look(what: str, read: Callable[[], Seen]) -> Seen | None:
        if queue and what in ELSEWHERE:
            return None
        try:
            return read()
        except StoreUnavailable:
            raise
        except (StoreError, DatabaseFault, ImproperlyConfigured) as error:
            unchecked.append(Unchecked(what, f"{type(error).__name__}: {error}"))
            return None

    if server is None:
        server = look("server", look_at_server)
        if server is not None and store.options.clock:  # set by a test: it says nothing of the server's clock
            server = server._replace(clock_off=0.0)
    has_retries = counted.counts.get(State.RETRY, 0) >= failing.RETRIES
    now = store.now()
    work = look("work", lambda: looks.running_work(counted, workers, now))
    types, left_out = look("failures", lambda: failing.failing_types(counted, now, arguments=arguments)) or (None, ())
    behind, uncounted = look("pauses", lambda: behind_types(counted)) or ({}, ())
    waiting, unarchived = look("archive", lambda: archive_waiting(counted)) or (None, ())
    halted, older = look("workflows", browse.that_cannot_go_on) or (None, None)
    facts = Facts(
        now=now,
        counted=counted,
        workers=workers,
        unknown=look("names", lambda: browse.unknown_names(counted, list(workers))),
        hour=hour if hour or not has_retries else look("failures", lambda: browse.series("hour", counted.names)),
        server=server.about if server else None,
        clock_off=server.clock_off if server else 0.0,
        archive=waiting,
        outbox=look("outbox", kept.contents),
        silent=silent,
        acknowledged=acknowledging.read(now),
        notifiers=look("notifiers", failed_notifiers) if get_settings().notify else (),
        work=work,
        types=types,
        halted=halted,
        behind=behind,
        lease=get_settings().lease * 1000,
        pull_queues=look("names", remote.pull_queues) or frozenset(),
    )
    parts = {"failures": left_out, "pauses": uncounted, "archive": unarchived, "work": work.left_out if work else ()}
    unchecked += [Unchecked(what, "", len(left), frozenset(left)) for what, left in parts.items() if left]
    if older is not None and older.number:
        unchecked.append(Unchecked("workflows", "", older.number, older))
    if facts.server is not None and "unknown" in (facts.server.get("eviction_policy"), facts.server.get("role")):
        unchecked.append(Unchecked("server", "it does not tell them", causes=("evicts", "read_only")))
    if entries := look("schedules", schedules.entries):
        some = entries[:SCHEDULES]
        if len(some) < len(entries):
            left = frozenset(entry.label or entry.id for entry in entries[SCHEDULES:])
            unchecked.append(Unchecked("schedules", "", len(entries) - len(some), left))
        checked = look("schedules", lambda: late_schedules(some, facts.now))
        late, active = checked if checked is not None else (None, 0)
        facts = replace(facts, late=late, schedules=active)
    return replace(facts, unchecked=tuple(unchecked))


def behind_types(counted: browse.JobCounts) -> tuple[dict[tuple[str, str], int], list[str]]:
    """Return how many jobs wait behind each paused job type, and the types of the pauses for which nobody knows."""
    found, uncounted, deadline = dict[tuple[str, str], int](), list[str](), monotonic() + COUNTED
    for stats in counted.queues.values():
        for name in () if stats.paused else stats.paused_types:
            number, whole = behind_type(stats, name, deadline)
            found[stats.queue, name] = number
            uncounted += [] if number or whole else [name]
    return found, uncounted


def look_at_server() -> ServerFacts:
    """Read the description and the clock of the store: two calls.  Raises StoreError."""
    store = get_store()
    about = store.describe()
    began = perf_counter()
    at = store.now()
    took = perf_counter() - began
    # The store read its clock about half a call ago.
    return ServerFacts(about, round(at / 1000 - (time() - took / 2), 2) or 0.0, took * 1000)


def failed_notifiers() -> list[FailedNotifier]:
    """Return the callables of NOTIFY that could not be told of the last finding."""
    failed = get_store().get_document(NOTIFIERS)
    known = [(path, failed.get(path)) for path in get_settings().notify]
    return [FailedNotifier(path, *value) for path, value in known if isinstance(value, list) and _is_failure(value)]


def _is_failure(value: list[Any]) -> bool:
    return len(value) == 2 and is_moment(value[0]) and isinstance(value[1], str)


def archive_waiting(counted: browse.JobCounts) -> tuple[list[ArchiveWaiting], list[str]]:
    """Return the queues whose finished jobs wait for the archiver, most first, and those that were left out."""
    if get_settings().archive is None:
        return [], []
    store = get_store()
    waiting = sorted((-stats.unarchived, name) for name, stats in counted.queues.items() if stats.unarchived)
    found = []
    for less, queue in waiting[:LIVE_QUEUES]:
        first = store.archive_batch(queue, 1)
        if first:
            found.append(ArchiveWaiting(queue, -less, first[0][1].at, store.options.backlog))
    return found, [name for _, name in waiting[LIVE_QUEUES:]]


def work_of(counted: browse.JobCounts, queue: str) -> int:
    """Return how many jobs of this queue need a worker now: all that have not ended, except jobs that are not due."""
    stats = counted.queues[queue]
    wanted = sum(stats.counts.get(state, 0) for state in (State.QUEUED, State.RUNNING, State.RETRY, State.BLOCKED))
    return max(wanted, stats.overdue)
