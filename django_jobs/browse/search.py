"""Search for jobs: by exact id, or by anything else in a bounded scan that reports how far it got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from django_jobs.browse.counts import JobCounts, job_counts
from django_jobs.browse.groups import Groups, group_errors, signature_of
from django_jobs.browse.pages import MERGE_QUEUES, newest_first
from django_jobs.core.values import JobInfo, State
from django_jobs.serialization import payloads
from django_jobs.serialization.masking import masked
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store

#: Limits of the jobs that one search checks and shows: a search costs the same whatever the number of jobs.
SCAN = 2_000
SHOW = 100
CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class Match:
    """The search terms; an empty field matches everything."""

    queue: str = ""
    name: str = ""
    #: text in the id, the name, the arguments as shown, or the last error.
    text: str = ""
    #: signature of the last error, as in a group of errors.
    error: str = ""
    #: False: the user may not see arguments, so they are not searched.
    arguments: bool = True

    @property
    def needs_scan(self) -> bool:
        """Return whether anything other than the queue is searched for."""
        return bool(self.name or self.text or self.error)

    def accepts(self, info: JobInfo) -> bool:
        """Return whether this job matches.  Masked arguments are not searched, so searching cannot reveal them."""
        if self.name and name_of(info.record) != self.name:
            return False
        if self.error and signature_of(info, arguments=self.arguments) != self.error:
            return False
        return not self.text or self.text.casefold() in self._text(info).casefold()

    def _text(self, info: JobInfo) -> str:
        return payloads.searchable_text(info, arguments=self.arguments)


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a search."""

    jobs: list[JobInfo] = field(default_factory=list)
    #: number of jobs checked, from `start` on.
    scanned: int = 0
    #: number of jobs in that state.
    total: int = 0
    start: int = 0
    #: where the next search continues; None = all jobs were checked.
    following: int | None = None
    #: number of queues that have such jobs but were not searched.
    left_out: int = 0


def scan(state: State, match: Match, *, start: int = 0, show: int = SHOW, counted: JobCounts | None = None) -> Scan:
    """Check up to SCAN jobs of `state` (or `show`, if more), from position `start`, until `show` are found."""
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
    """Yield the jobs of one queue after the other, from position `start` in all of them put end to end."""
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
    """Return the job with exactly this id, in any state, in any of these queues."""
    return get_store().find(queues, id)


def error_groups(state: State, match: Match, *, counted: JobCounts | None = None) -> Groups:
    """Group the errors of the first SCAN jobs of a state (of one queue or of all), largest group first."""
    counted = counted or job_counts()
    queues = [match.queue] if match.queue else counted.holding(state)
    looked: list[JobInfo] = []
    for info in walk(state, queues[:MERGE_QUEUES], 0):
        looked.append(info)
        if len(looked) == SCAN:
            break
    total = sum(stats.counts.get(state, 0) for stats in counted.queues.values() if stats.queue in queues)
    return Groups(
        group_errors([masked(info, arguments=match.arguments) for info in looked]),
        len(looked),
        max(total, len(looked)),
        max(0, len(queues) - MERGE_QUEUES),
    )
