"""Looking for jobs: by id exactly, by anything else in a bounded scan that says how far it got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from django_jobs.browse.counts import JobCounts, job_counts
from django_jobs.browse.groups import Groups, group_errors, signature_of
from django_jobs.browse.pages import MERGE_QUEUES, newest_first
from django_jobs.core.values import JobInfo, State
from django_jobs.serialization import payloads
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store

#: So many jobs are looked at by one search, so many are shown: a search costs the same whatever the number of jobs.
SCAN = 2_000
SHOW = 100
CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class Match:
    """What is looked for; an empty field asks for nothing."""

    queue: str = ""
    name: str = ""
    #: in the id, the name, the arguments as they are shown, or the last error.
    text: str = ""
    #: the signature of the last error, as in a group of errors.
    error: str = ""

    @property
    def needs_scan(self) -> bool:
        """Is there more than a queue to look for?"""
        return bool(self.name or self.text or self.error)

    def accepts(self, info: JobInfo) -> bool:
        """Does this job match?  Arguments that are masked are not searched, nor can they be guessed by searching."""
        if self.name and name_of(info.record) != self.name:
            return False
        if self.error and signature_of(info) != self.error:
            return False
        return not self.text or self.text.casefold() in payloads.searchable_text(info).casefold()


@dataclass(frozen=True, slots=True)
class Scan:
    """What a search found."""

    jobs: list[JobInfo] = field(default_factory=list)
    #: looked at; from `start`.
    scanned: int = 0
    #: jobs in that state.
    total: int = 0
    start: int = 0
    #: where the next search goes on; None = everything was looked at.
    following: int | None = None
    #: queues that have such jobs but were not looked at.
    left_out: int = 0


def scan(state: State, match: Match, *, start: int = 0, show: int = SHOW, counted: JobCounts | None = None) -> Scan:
    """Look at up to SCAN jobs of `state` (or `show`, if more), from position `start`, until `show` are found."""
    counted = counted or job_counts()
    queues = [match.queue] if match.queue else counted.holding(state)
    if match.queue and match.queue not in counted.queues:
        counts = get_store().stats([match.queue])[0].counts
        total = counts.get(state, 0)
    else:
        total = sum(counted.queues[name].counts.get(state, 0) for name in queues)
    found: list[JobInfo] = []
    scanned = 0
    for info in walk(state, queues[:MERGE_QUEUES], start):
        scanned += 1
        if match.accepts(info):
            found.append(info)
        if len(found) >= show or scanned >= max(SCAN, show):
            break
    following = start + scanned
    left_out = max(0, len(queues) - MERGE_QUEUES)
    return Scan(found, scanned, total, start, following if following < total and scanned else None, left_out)


def walk(state: State, queues: list[str], start: int) -> Iterator[JobInfo]:
    """The jobs of one queue after the other, from position `start` of them all put end to end."""
    store, reverse = get_store(), newest_first(state)
    skip = start
    for queue in queues:
        if skip:
            size = store.stats([queue])[0].counts.get(state, 0)
            if skip >= size:
                skip -= size
                continue
        while batch := store.page(queue, state, skip, CHUNK, reverse=reverse):
            yield from batch
            skip += len(batch)
            if len(batch) < CHUNK:
                break
        skip = 0


def find(id: str, queues: list[str]) -> JobInfo | None:
    """The job with exactly this id, in any state of any of these queues."""
    return get_store().find(queues, id)


def error_groups(state: State, match: Match, *, counted: JobCounts | None = None) -> Groups:
    """What went wrong with the first SCAN jobs of a state (of one queue or of all), largest group first."""
    counted = counted or job_counts()
    queues = [match.queue] if match.queue else counted.holding(state)
    looked: list[JobInfo] = []
    for info in walk(state, queues[:MERGE_QUEUES], 0):
        looked.append(info)
        if len(looked) == SCAN:
            break
    total = sum(stats.counts.get(state, 0) for stats in counted.queues.values() if stats.queue in queues)
    return Groups(group_errors(looked), len(looked), max(total, len(looked)), max(0, len(queues) - MERGE_QUEUES))
