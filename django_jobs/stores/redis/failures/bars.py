"""How many failed jobs have their time in each of some bars, by the parts of the groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from typing import Any

from django_jobs.core.values import State
from django_jobs.exceptions import StoreMisconfigured
from django_jobs.stores.redis.connection.entries import chunks
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.redis.failures.groups import CALLS, Groups, letter_of
from django_jobs.stores.values.lists import Bars, FailureGroup, Span, check_span

#: Queues in one call: each takes at most some tenths of a millisecond of the server's time.
QUEUES = 100
#: Parts of groups in one call: 500 parts are about two megabytes.  Plain reads in one call of a script.
PARTS, READS = 500, 1500
#: Groups that are counted together by three reads each; those of so many jobs, and parts, by a script.
LARGE, GROUPS, SMALL, SMALL_PARTS = 500, 200, 200, 20
#: Jobs of a part, at least as a rule; names of parts that cost as much as one part.
FEWEST, NAMES = 50, 10
#: Bars of parts: to be found line by line, before the first, in none.
CUT, BEFORE, OUTSIDE = -3, -1, -2
#: ms: the highest time that a line of a group can have, as in lua/lib/failed.lua.
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
            return sum(found[0] for found in self.count_bars(state, chosen, bars) if found) if last > span.since else 0
        bounds = (span.since, f"({span.before}" if span.before else "+inf")
        # Like every state with a time, `succeeded` is its own place; `kept` has other times as scores.
        calls = [("ZCOUNT", self.keys.of(queue)[state.value], *bounds) for queue in queues]
        return sum(int(found) for some in chunks(calls, CALLS) for found in self.transport.pipeline(some))

    def count_bars(
        self, state: State, groups: Sequence[FailureGroup], bars: Bars, *, most: int = 0
    ) -> list[list[int] | None]:
        """Return for each of these groups how many of its jobs have their time of the state in each bar: exact, by an
        index.  Raises ValueError for a state without groups.

        `most`: read no more of the index than about so many jobs need, the smallest groups first; a group for which
        this does not suffice is None.  0 = read all that is needed."""
        letter_of(state)
        found: dict[int, list[int]] = {}
        smallest = sorted(range(len(groups)), key=lambda i: groups[i].jobs)
        small = [i for i in smallest if groups[i].jobs <= SMALL]
        if most:
            sizes = accumulate(groups[i].jobs for i in small)
            small = [i for i, size in zip(small, sizes, strict=True) if size <= most]
        counted = self._count_small([groups[i] for i in small], bars)
        found |= {i: numbers for i, numbers in zip(small, counted, strict=True) if numbers is not None}
        left = (most - sum(groups[i].jobs for i in found)) // FEWEST if most else None
        for some in chunks([i for i in smallest if i not in found], LARGE):
            plans = self._plans([groups[i] for i in some], bars, left)
            if left is not None:
                costs = list(accumulate(plan.cost for plan in plans))
                plans = [plan for plan, cost in zip(plans, costs, strict=True) if cost <= left]
                left -= costs[len(plans) - 1] if plans else 0
            several = some[: len(plans)]
            lines = self._count_lines([groups[i] for i in several], plans, bars)
            found |= dict(zip(several, lines, strict=True))
            if len(plans) < len(some):
                break
        return [found.get(i) for i in range(len(groups))]

    def _count_small(self, groups: Sequence[FailureGroup], bars: Bars) -> list[list[int] | None]:
        """Count the jobs of small groups by bar, by a script: hundreds of queues in some calls.  None: not counted."""
        found: list[list[int] | None] = [None] * len(groups)
        by_queue: dict[str, list[int]] = {}
        for i, group in enumerate(groups):
            by_queue.setdefault(group.queue, []).append(i)
        calls = [(queue, some) for queue, every in by_queue.items() for some in chunks(every, GROUPS // 2)]
        while calls and not self._scripts_refused:
            size = sum(total <= GROUPS for total in accumulate(len(some) for _, some in calls[:QUEUES]))
            together, calls = (calls[:size], calls[size:]) if self.transport.spans else (calls[:1], calls[1:])
            keys = [key for queue, _ in together for key in self._script("bars", queue)[1]]
            numbers = [" ".join(f"{groups[i].number:05}" for i in some) for _, some in together]
            args: list[Any] = [self._clock(), bars.first, bars.width, bars.number, SMALL_PARTS, *numbers]
            try:
                answers = self.transport.run(load("bars"), keys, args)
            except StoreMisconfigured:
                self._scripts_refused = True
                break
            for i, flat in zip((i for _, some in together for i in some), answers, strict=True):
                if flat is not None:
                    counts = [0] * bars.number
                    for at in range(0, len(flat), 2):
                        counts[int(flat[at])] = int(flat[at + 1])
                    found[i] = counts
        return found

    def _plans(self, groups: Sequence[FailureGroup], bars: Bars, left: int | None) -> list[Plan]:
        """Return which parts of the groups are to be read; see lua/lib/failed.lua."""
        calls: list[tuple[Any, ...]] = []
        limit: tuple[Any, ...] = () if left is None else ("LIMIT", 0, left * NAMES + 1)
        for group in groups:
            names, number = self.keys.of(group.queue)["chunks"], f"{group.number:05}"
            first = f"{number}:{min(bars.first, LATEST):013}"
            last = f"({number}:{bars.end:013}" if bars.end <= LATEST else f"({number};"
            calls += [
                ("ZLEXCOUNT", names, f"[{number}:", f"({number};"),
                # Where the bars begin in the middle of a part, its name is before that.
                ("ZREVRANGEBYLEX", names, f"[{first}", f"[{number}:", "LIMIT", 0, 1),
                ("ZRANGEBYLEX", names, f"({first}", last, *limit),
            ]
        replies = self._read(calls)
        plans = [make_plan(int(replies[i]), replies[i + 1] + replies[i + 2], bars) for i in range(0, len(replies), 3)]
        rest = [(group, plan) for group, plan in zip(groups, plans, strict=True) if plan.beyond]
        calls = []
        for group, plan in rest:
            names, prefix = self.keys.of(group.queue)["chunks"], f"{group.number:05}".encode()
            ends = ((b"[" + prefix + b":", b"(" + plan.first), (b"(" + plan.last, b"(" + prefix + b";"))
            calls += [("ZRANGEBYLEX", names, *each) for each in ends]
        replies = self._read(calls)
        for i, (_group, plan) in enumerate(rest):
            before, behind = replies[2 * i : 2 * i + 2]
            plan.parts += [(part, OUTSIDE) for part in (*before, *behind)]
        return plans

    def _read(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Make these plain reads: hundreds in one call of lua/reads.lua, which reads a bounded amount, so that a group
        of a million jobs does not hold up the server."""
        replies: list[Any] = []
        while len(replies) < len(calls) and self.transport.spans and not self._scripts_refused:
            some = calls[len(replies) : len(replies) + READS]
            args = [part for verb, _, *more in some for part in (verb, len(more), *more)]
            try:
                replies += self.transport.run(load("reads"), [call[1] for call in some], (self._clock(), *args))
            except StoreMisconfigured:
                self._scripts_refused = True
        for some in chunks(calls[len(replies) :], CALLS):
            replies += self.transport.pipeline(some)
        return replies

    def _count_lines(self, groups: Sequence[FailureGroup], plans: Sequence[Plan], bars: Bars) -> list[list[int]]:
        """Count the lines of the parts in these plans by bar."""
        counts = [[0] * bars.number for _ in groups]
        outside = [0] * len(groups)
        wanted = [(groups[i].queue, i, *part) for i, plan in enumerate(plans) for part in plan.parts]
        for some in chunks(wanted, PARTS):
            by_queue = [list(each) for _, each in groupby(some, key=lambda part: part[0])]
            replies = self._read(
                [("HMGET", self.keys.of(each[0][0])["members"], *(part[2] for part in each)) for each in by_queue]
            )
            for (_queue, i, _name, bar), text in zip(chain(*by_queue), chain(*replies), strict=True):
                for at, number in lines_of(text or b"", bar, bars):
                    if 0 <= at < bars.number:
                        counts[i][at] += number
                    else:
                        outside[i] += number
        for i, plan in enumerate(plans):
            if plan.remainder is not None:
                counts[i][plan.remainder] += max(0, groups[i].jobs - sum(counts[i]) - outside[i])
        return counts


@dataclass(slots=True)
class Plan:
    """Which parts of a group are to be read to count its jobs by bar."""

    #: name of each part, and the bar that has all of it (CUT: its lines say it; OUTSIDE: no bar has any of it).
    parts: list[tuple[bytes, int]]
    #: the bar whose number is what all others leave of the group; None: all bars are counted.
    remainder: int | None
    #: for that, so many parts that are in no bar are to be read, too: those before `first`, and behind `last`.
    beyond: int
    first: bytes
    last: bytes
    #: in parts.
    cost: int


def make_plan(every: int, names: Sequence[bytes], bars: Bars) -> Plan:
    """Return the plan for a group of `every` parts, of which these, in their order, may have jobs of the bars.

    A part is whole in a bar if the bar also has the beginning of the next part.  The bar with most whole parts need not
    be read, if less is to be read of the rest of the group: the group says how many jobs it has."""
    starts = [bar_of(name[6:19], bars) for name in names] + [bar_of(b"%d" % LATEST, bars)]
    parts = [(name, starts[i] if starts[i] == starts[i + 1] else CUT) for i, name in enumerate(names)]
    parts = [part for part in parts if part[1] == CUT or 0 <= part[1] < bars.number]
    [(bar, most)] = Counter(bar for _, bar in parts if bar != CUT).most_common(1) or [(0, 0)]
    beyond = max(0, every - len(names))
    remainder = bar if most > beyond else None
    if remainder is None:
        beyond = 0
    else:
        parts = [part for part in parts if part[1] != remainder]
    ends = (names[0], names[-1]) if names else (b"", b"")
    return Plan(parts, remainder, beyond, *ends, cost=1 + len(parts) + beyond + len(names) // NAMES)


def bar_of(time: bytes, bars: Bars) -> int:
    """Return the bar that has this time; BEFORE or `bars.number` if none has."""
    at = (int(time) if time.isdigit() else 0) - bars.first
    return BEFORE if at < 0 else min(at // bars.width, bars.number)


def lines_of(text: bytes, bar: int, bars: Bars) -> Iterator[tuple[int, int]]:
    """Yield bar and number of lines; `bar`: as in Plan.parts."""
    if bar == CUT and text:
        end = text.rfind(b"\n", 0, -1) + 1
        bar, last = bar_of(text[:13], bars), bar_of(text[end : end + 13], bars)
        if bar != last:
            yield from Counter(bar_of(line[:13], bars) for line in text.split(b"\n")[:-1]).items()
            return
    yield bar, text.count(b"\n")
