"""The total-queue checker: what went in, what ran, what became of it; and how many ran at once."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.support.ledger import Event

#: Where a job that never reached its end may stand in the store without being lost.
ACCOUNTED = {"dead", "cancelled", "expired"}


@dataclass
class Verdict:
    """Sets of ids; `duplicates` counts starts beyond the first."""

    acked: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    #: acknowledged, and neither ended nor accounted for.
    lost: set[str] = field(default_factory=set)
    #: started, and never even attempted.
    unexpected: set[str] = field(default_factory=set)
    #: never acknowledged, and ran all the same: allowed.
    recovered: set[str] = field(default_factory=set)
    starts: Counter[str] = field(default_factory=Counter)

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for count in self.starts.values())

    @property
    def is_sound(self) -> bool:
        return not self.lost and not self.unexpected

    def __str__(self) -> str:
        return (
            f"{len(self.acked)} acknowledged, {len(self.ended)} ended, {len(self.lost)} lost, "
            f"{len(self.unexpected)} unexpected, {self.duplicates} duplicate starts, {len(self.recovered)} recovered"
        )


def judge(events: Iterable[Event], state_of: Callable[[str], str | None]) -> Verdict:
    """`state_of` tells where the store has a job that did not end."""
    seen: dict[str, set[str]] = defaultdict(set)
    verdict = Verdict()
    for event in events:
        seen[event.kind].add(event.id)
        if event.kind == "start":
            verdict.starts[event.id] += 1
    verdict.acked, verdict.ended = seen["ack"], seen["end"]
    verdict.lost = {id for id in seen["ack"] - seen["end"] if state_of(id) not in ACCOUNTED}
    verdict.unexpected = seen["start"] - seen["attempt"]
    verdict.recovered = seen["end"] - seen["ack"]
    return verdict


def most_at_once(events: Iterable[Event], deaths: dict[int, int]) -> int:
    """The greatest number of overlapping runs.  A run without an end ends with its process: pid → ns."""
    ends = {(event.id, event.token): event.at for event in events if event.kind == "end"}
    points: list[tuple[int, int]] = []
    for event in events:
        if event.kind == "start":
            end = ends.get((event.id, event.token)) or deaths.get(event.pid, event.at)
            points += ((event.at, 1), (max(end, event.at), -1))
    most = running = 0
    for _, step in sorted(points):
        running += step
        most = max(most, running)
    return most


def overlapping_lives(events: Iterable[Event]) -> list[tuple[str, str]]:
    """Of jobs with one unique key: pairs that were there at the same time.

    A job is there from its acknowledgement, or its first start where the producer was slower, to its last end.  What
    never ended (it went to dead) is left out."""
    begin: dict[str, int] = {}
    ends: dict[str, int] = {}
    for event in events:
        if event.kind in ("ack", "start"):
            begin[event.id] = min(event.at, begin.get(event.id, event.at))
        elif event.kind == "end":
            ends[event.id] = max(event.at, ends.get(event.id, 0))
    line = sorted(ends, key=begin.__getitem__)
    return [(earlier, later) for earlier, later in itertools.pairwise(line) if ends[earlier] > begin[later]]


def repeated_for_no_reason(events: Iterable[Event], deaths: dict[int, int]) -> set[str]:
    """Jobs that started again although no process that ran them before was dead by then: pid → ns of its death."""
    ran_in: dict[str, set[int]] = defaultdict(set)
    wrong = set()
    for event in sorted(events, key=lambda event: event.at):
        if event.kind == "start":
            before = ran_in[event.id]
            if before and not any(deaths.get(pid, event.at + 1) <= event.at for pid in before):
                wrong.add(event.id)
            before.add(event.pid)
    return wrong
