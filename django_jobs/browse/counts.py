"""How many, how old, how fast: counts per state, queue and tag, and events per minute."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core.queue_stats import read_pause, signed
from django_jobs.core.values import Pause, QueueStats, State
from django_jobs.exceptions import StoreCorrupt, StoreError
from django_jobs.serialization.checked import count_of, whole
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store
from django_jobs.stores.values.documents import BROKEN
from django_jobs.stores.values.lists import OTHER_TAGS
from django_jobs.stores.values.sizes import chunks

#: Up to this many queues are counted in the store.  With more, the snapshot that workers publish is used, so that a
#: page costs the same for 500 queues as for 20.
LIVE_QUEUES = 20
#: Where no worker publishes a snapshot, queues are counted for at most so long (s): a page must come.
COUNT_FOR = 1.0
#: Queues per round trip: each takes at most a few milliseconds of the server's time.
CHUNK = 50
#: An older snapshot (ms) is not used: it means that no worker runs.
SNAPSHOT_LIFE = 60_000
MINUTE = 60_000
QUARTER = 15 * MINUTE
#: period → (length, width of a bucket), in ms.
PERIODS = {"hour": (60 * MINUTE, MINUTE), "day": (96 * QUARTER, QUARTER)}
EVENTS = ("enqueued", "succeeded", "failed", "dead", "run_ms", "wait_ms")
#: The totals that `stats_payload` shows.
TOTALS = ("enqueued", "succeeded", "failed", "retried", "dead")

#: Totals and numbers of a queue that the snapshot has: the totals per job type would make it large.
TOLD = ("trimmed_dead", "not_archived")
NUMBERS = ("overdue", "overdue_since", "dead_since", "unarchived", "age")

Buckets = dict[int, dict[str, int]]


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The numbers of all queues at one moment."""

    #: state → number of jobs, in the queues that were counted.
    counts: dict[str, int]
    #: queue → its numbers, for the queues that were counted.
    queues: dict[str, QueueStats]
    #: all queues.
    names: list[str]
    #: ms when a worker counted; 0 = counted now.
    at: int = 0

    @property
    def uncounted(self) -> list[str]:
        """The queues that were not counted, and may have jobs: they are damaged, or there are many, no worker publishes
        numbers, and time ran out."""
        return [name for name in self.names if name not in self.queues]

    @property
    def missing(self) -> int:
        """The number of queues that were not counted."""
        return len(self.uncounted)

    def holding(self, state: State) -> list[str]:
        """Return the counted queues that have jobs in that state, fullest first."""
        full = [(stats.counts.get(state, 0), name) for name, stats in self.queues.items()]
        return [name for count, name in sorted(full, key=lambda pair: (-pair[0], pair[1])) if count]


@dataclass(frozen=True, slots=True)
class Series:
    """Events per bucket of time, oldest first, without gaps."""

    period: str
    #: bucket width, ms.
    width: int
    #: bucket start, ms.
    starts: list[int]
    values: dict[str, list[int]] = field(default_factory=dict)


def queue_names() -> list[str]:
    """Return every queue: the configured ones in their order, then other queues that jobs were enqueued to."""
    configured = list(get_settings().queues)
    return configured + sorted(set(get_store().queues()) - set(configured))


def usable_queues() -> list[str]:
    """Return the queues to choose from for a job: the configured ones, and those that exist and that a pattern covers,
    if there are patterns and the store answers."""
    queues = get_settings().queues
    if queues.patterns:
        with suppress(StoreError):
            return [name for name in queue_names() if name in queues]
    return list(queues)


def queue_stats(queues: Sequence[str]) -> list[QueueStats]:
    """Return the current numbers of these queues."""
    return get_store().stats(queues)


def readable_stats(queues: Sequence[str]) -> list[QueueStats]:
    """Return the current numbers of these queues; of several, without those that are damaged and cannot be counted."""
    try:
        return queue_stats(queues)
    except StoreCorrupt:
        if len(queues) == 1:
            raise
    found = []
    for queue in queues:
        with suppress(StoreCorrupt):
            found += queue_stats([queue])
    return found


def job_counts(names: Sequence[str] | None = None) -> JobCounts:
    """Count the jobs of all queues; with many queues, return what a worker counted some seconds ago."""
    names = list(queue_names() if names is None else names)
    if len(names) <= LIVE_QUEUES:
        return count(readable_stats(names), names)
    document = get_store().get_document("snapshot")
    with suppress(*BROKEN):  # a damaged snapshot counts as none, and workers write the next
        if document and 0 <= get_store().now() - count_of(document.get("at", 0)) <= SNAPSHOT_LIFE:
            stats = [read_stats(name, document["queues"][name]) for name in names if name in document["queues"]]
            return count(stats, names, document["at"])
    return count(count_in_time(names), names)


def count_in_time(names: Sequence[str]) -> list[QueueStats]:
    """Count as many of the queues as COUNT_FOR allows, and at least LIVE_QUEUES."""
    found = readable_stats(names[:LIVE_QUEUES])
    deadline = monotonic() + COUNT_FOR
    for some in chunks(names[LIVE_QUEUES:], CHUNK):
        if monotonic() >= deadline:
            break
        found += readable_stats(some)
    return found


def count(stats: Iterable[QueueStats], names: list[str], at: int = 0) -> JobCounts:
    """Add up the numbers of the queues."""
    queues = {entry.queue: entry for entry in stats}
    totals = {state.value: sum(entry.counts.get(state, 0) for entry in queues.values()) for state in State}
    return JobCounts(totals, queues, names, at)


def write_stats(stats: QueueStats) -> dict[str, Any]:
    """Return one queue's numbers as an entry of the snapshot."""
    entry = {
        "counts": {k: v for k, v in stats.counts.items() if v},
        "latency": stats.latency,
        "paused": written(stats.paused) if stats.paused else None,
        "paused_types": {name: written(pause) for name, pause in stats.paused_types.items()},
        "totals": {key: n for key in TOLD if (n := stats.totals.get(key))},
        **{key: getattr(stats, key) for key in NUMBERS},
    }
    return {key: value for key, value in entry.items() if value or key in ("counts", "latency", "paused")}


def written(pause: Pause) -> list[Any]:
    """Return a pause as an entry of the snapshot, as `read_pause` reads it."""
    return [signed(pause.reason, pause.by), pause.until, pause.since]


def read_stats(queue: str, entry: Mapping[str, Any]) -> QueueStats:
    """Read what write_stats wrote."""
    counts = {state.value: count_of(entry["counts"].get(state, 0)) for state in State}
    # An older version did not write the entries that are read with `get`.
    return QueueStats(
        queue,
        counts,
        count_of(entry["latency"]),
        _pause_of(*entry["paused"]) if entry["paused"] else None,
        {name: _pause_of(*pause) for name, pause in entry.get("paused_types", {}).items()},
        {event: count_of(number) for event, number in entry.get("totals", {}).items()},
        **{key: count_of(entry.get(key, 0)) for key in NUMBERS},
    )


def _pause_of(text: Any, until: Any, since: Any) -> Pause:
    return read_pause(str(text), count_of(until), count_of(since))


def read_buckets(document: Mapping[str, Any], period: str) -> Buckets:
    """Return a series of the snapshot; an empty one if it cannot be read."""
    with suppress(*BROKEN):
        return {
            whole(start): {str(event): count_of(number) for event, number in events.items()}
            for start, events in document.get(period, {}).items()
        }
    return {}


def series(period: str = "hour", queues: Sequence[str] | None = None) -> Series:
    """Return the events of the last "hour" (per minute) or "day" (per 15 minutes), of these queues or of all."""
    span, width = PERIODS[period]
    now = get_store().now()
    names = list(queue_names() if queues is None else queues)
    if len(names) <= LIVE_QUEUES:
        buckets = widened(get_store().sums(names, now - span), width)
    else:
        buckets = read_buckets(get_store().get_document("snapshot"), period)
    first = (now - span) // width * width + width
    starts = [first + width * i for i in range(span // width)]
    return Series(
        period, width, starts, {event: [buckets.get(at, {}).get(event, 0) for at in starts] for event in EVENTS}
    )


def widened(minutes: Buckets, width: int) -> Buckets:
    """Add up minutes in buckets of `width` ms."""
    buckets: defaultdict[int, dict[str, int]] = defaultdict(Counter)
    for minute, events in minutes.items():
        buckets[minute // width * width].update(events)  # a Counter adds
    return buckets


def stats_payload(found: Sequence[QueueStats], workers: int) -> dict[str, dict[str, Any] | int]:
    """Return the numbers of these queues, and of so many workers, as the API and the command show them."""
    return {
        "states": {state.value: sum(entry.counts.get(state, 0) for entry in found) for state in State},
        "queues": {
            entry.queue: {state.value: entry.counts.get(state, 0) for state in State}
            | {"latency": entry.latency / 1000, "paused": entry.paused is not None, "unarchived": entry.unarchived}
            for entry in found
        },
        "totals": {event: sum(entry.totals.get(event, 0) for entry in found) for event in TOTALS},
        "workers": workers,
    }


@dataclass(frozen=True, slots=True)
class TagCount:
    """How many failed jobs of all queues have a tag."""

    tag: str
    jobs: int
    #: there may be more of them, in queues that have too many tags.
    or_more: bool
    #: ms: when the first and the latest of them failed; perhaps of those, too, that have left.
    first: int
    last: int


def tag_counts(state: State, queues: Sequence[str]) -> tuple[list[TagCount], int]:
    """Return the tags of the jobs in this state, the most frequent first, and how many jobs have tags that some queue
    does not count: such a job is in this number, whatever other tags it has."""
    store = get_store()
    sums = {each.name: each for each in store.tag_sums(queues, state)}
    others = sums.pop(OTHER_TAGS, None)
    full, in_full = list[str](), dict[str, int]()
    if others is not None:
        full = [group.queue for group in store.failure_tags(queues, state, OTHER_TAGS) if group.jobs]
        in_full = {each.name: each.groups for each in store.tag_sums(full, state)}
    counts = [
        TagCount(tag, each.jobs, in_full.get(tag, 0) < len(full), each.first, each.last) for tag, each in sums.items()
    ]
    return sorted(counts, key=lambda each: (-each.jobs, each.tag)), others.jobs if others is not None else 0


def tag_payload(state: State, queues: Sequence[str], limit: int) -> dict[str, object]:
    """Return the counts of tags as the API and the command show them, at most `limit` tags."""
    found, uncounted = tag_counts(state, queues)
    return {
        "state": state.value,
        "tags": [
            {
                "tag": each.tag,
                "jobs": each.jobs,
                "or_more": each.or_more,
                "first_at": iso(each.first),
                "last_at": iso(each.last),
            }
            for each in found[:limit]
        ],
        "more_tags": max(0, len(found) - limit),
        "uncounted_jobs": uncounted,
    }
