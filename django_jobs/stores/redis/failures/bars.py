"""How many failed jobs have their time in each of some bars, by the ranges of their groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from django_jobs.core.values import State
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.redis.failures.groups import CALLS, Groups, letter_of, name_of_group
from django_jobs.stores.values.lists import Bars, FailureGroup, Span, check_span
from django_jobs.stores.values.sizes import chunks

#: Queues in one call, and bars that a call may have to count: some milliseconds of the server's time.
QUEUES, COUNTED = 100, 4_000
#: ms: the highest time that a member of the index can have, as in lua/lib/ends/failed.lua.
LATEST = 9_999_999_999_999


class BarCounts(Groups):
    """Counts of jobs by time."""

    def count_within(
        self, queues: Sequence[str], state: State, span: Span, groups: Sequence[FailureGroup] | None = None
    ) -> int:
        """Return how many jobs `listed` would return in all for this span, by an index.  Raises ValueError as it does.

        Of groups, the index is read between the two times: 0.1 s or so for a million jobs, in parts."""
        check_span(state)
        if groups is not None:
            letter_of(state)
            names = frozenset(queues)
            last = min(span.before or LATEST + 1, LATEST + 1)
            bars = Bars(span.since, last - span.since, 1)
            chosen = [group for group in groups if group.jobs and group.queue in names]
            return sum(found[0] for found in self.count_bars(state, chosen, bars)) if last > span.since else 0
        bounds = (span.since, f"({span.before}" if span.before else "+inf")
        # Like every state with a time, `succeeded` is its own place; `kept` has other times as scores.
        calls = [("ZCOUNT", self.keys.of(queue)[state.value], *bounds) for queue in queues]
        return sum(int(found) for some in chunks(calls, CALLS) for found in self.transport.pipeline(some))

    def count_bars(self, state: State, groups: Sequence[FailureGroup], bars: Bars) -> list[list[int]]:
        """Return for each of these groups how many of its jobs have their time of the state in each bar: exact, by an
        index.  Raises ValueError for a state without groups.  A large group costs a look at the index for each bar."""
        letter_of(state)
        found = [[0] * bars.number for _ in groups]
        by_queue = sorted(range(len(groups)), key=lambda i: groups[i].queue)
        for some in chunks(by_queue, max(1, COUNTED // bars.number)):
            each = [(queue, list(own)) for queue, own in groupby(some, key=lambda i: groups[i].queue)]
            for together in chunks(each, QUEUES if self.transport.spans else 1):
                named = [(queue, [name_of_group(state, groups[i]) for i in own]) for queue, own in together]
                for i, counted in zip((i for _, own in together for i in own), self._count(named, bars), strict=True):
                    for at in range(0, len(counted), 2):
                        found[i][int(counted[at])] = int(counted[at + 1])
        return found

    def _count(self, named: Sequence[tuple[str, list[str]]], bars: Bars) -> Iterator[Sequence[Any]]:
        """Yield bar and number of jobs, flat, of each of these groups, which are named by queue."""
        keys = [key for queue, _ in named for key in self._script("bars", queue)[1]]
        names = (" ".join(groups) for _, groups in named)
        args: list[Any] = [self._clock(), bars.first, bars.width, bars.number, *names]
        if (found := self._by_script(lambda: self.transport.run(load("bars"), keys, args))) is not None:
            yield from found
            return
        starts = [bars.first + n * bars.width for n in range(bars.number + 1)]
        edges = [":" if at > LATEST else f"{at:013}" for at in starts]
        for queue, groups in named:
            name = self.keys.of(queue)["failures"]
            for group in groups:
                calls = [
                    ("ZLEXCOUNT", name, f"[{group}{edges[n]}", f"({group}{edges[n + 1]}") for n in range(bars.number)
                ]
                counts = [number for some in chunks(calls, CALLS) for number in self.transport.pipeline(some)]
                yield [part for pair in enumerate(counts) for part in pair]
