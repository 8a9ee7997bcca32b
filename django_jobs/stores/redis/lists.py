"""RedisStore: lists over several queues together, and the groups of failed jobs.

Long because lists are here twice: by scripts, and by plain reads for users who may not run scripts.  Groups are counted
by time here, too, because that reads the same parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import merge
from itertools import accumulate, chain, groupby, islice
from math import isnan
from typing import Any

from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import StoreMisconfigured
from django_jobs.stores.contract.lists import (
    OTHER_TAGS,
    Bars,
    FailureGroup,
    FailureKind,
    FailureSum,
    ListStore,
    Mark,
    Span,
    add_up,
    check_grouped,
    check_span,
    merged,
)
from django_jobs.stores.redis.browsing import DETAILS, PREVIEW, RedisBrowsing
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.redis.entries import chunks, read_number
from django_jobs.stores.redis.stats import PLACES

#: Queues in one call: each takes at most some tenths of a millisecond of the server's time.
QUEUES = 100
#: Groups whose first jobs are compared in one call of `list`.
OPENED = 1000
#: The same for groups; a call deals with fewer queues if they have many.
QUEUES_OF_GROUPS = 500
#: Kinds of groups that the server looks for; of more, all groups are read.
KINDS = 500
#: Calls in one pipeline, and parts of groups in one call: 500 parts are about two megabytes.
CALLS, PARTS = 600, 500
#: Groups that are counted together: larger ones each by three calls; those of so many jobs, and parts, by a script.
GROUPS, SMALL, SMALL_PARTS = 200, 200, 20
#: Jobs of a part, at least as a rule; names of parts that cost as much as one part.
FEWEST, NAMES = 50, 10
#: Bars of parts: to be found line by line, before the first, in none.
CUT, BEFORE, OUTSIDE = -3, -1, -2
#: ms: the highest time that a line of a group can have, as in lua/lib/failed.lua.
LATEST = 9_999_999_999_999
#: The letters in lua/lib/failed.lua.
LETTERS = {State.DEAD: "d", State.RETRY: "r"}
#: The details that lua/rows.lua returns, in its order.
ROWS = ("jobs", "tries", "results", "attempts", "claims", "checkins")

#: Score as text, score, queue, member.
Entry = tuple[str, float, str, str]


class RedisLists(RedisBrowsing, ListStore):
    """See stores/contract/lists.py for the contract of each method."""

    def failure_groups(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureGroup]:
        letter, fields = _letter(state), _fields(state, kinds)
        if fields == []:
            return []
        chosen = None if fields or kinds is None else frozenset(kinds)
        return [
            FailureGroup(queue, *group)
            for queue, flat in zip(queues, self._groups(queues, letter, fields), strict=True)
            for group in _read_groups(letter, flat)
            if chosen is None or group[:2] in chosen
        ]

    def _groups(self, queues: Sequence[str], letter: str, fields: list[bytes] | None) -> Iterator[Any]:
        """Yield the groups of each queue: field, value, flat."""
        if not self._scripts_refused:
            try:
                found = [flat for _, some in self._run_groups("each", queues, letter, fields) for flat in some]
            except StoreMisconfigured:
                self._scripts_refused = True
            else:
                return iter(found) if fields is None else map(partial(_paired, fields), found)
        names = [self.keys.of(queue)["groups"] for queue in queues]
        if fields is None:
            return iter(self.transport.pipeline([("HGETALL", name) for name in names]))
        return map(partial(_paired, fields), self.transport.pipeline([("HMGET", name, *fields) for name in names]))

    def failure_kinds(self, queues: Sequence[str]) -> dict[State, set[FailureKind]]:
        if not self._scripts_refused:
            try:
                read = [_read_field(field) for _, fields in self._run_groups("fields", queues) for field in fields]
                return {
                    state: {FailureKind(*kind) for first, *kind in read if first == letter}
                    for state, letter in LETTERS.items()
                }
            except StoreMisconfigured:
                self._scripts_refused = True
        return {
            state: {FailureKind(group.name, group.signature) for group in self.failure_groups(queues, state)}
            for state in LETTERS
        }

    def failure_sums(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureSum]:
        letter, fields = _letter(state), _fields(state, kinds)
        if not self._scripts_refused and (kinds is None or fields):
            try:
                calls = self._run_groups("sums", queues, letter, fields)
                return merged(each for some, flat in calls for each in _read_sums(letter, some, flat))
            except StoreMisconfigured:
                self._scripts_refused = True
        return add_up(self.failure_groups(queues, state, kinds))

    def _run_groups(
        self, what: str, queues: Sequence[str], letter: str = "", fields: list[bytes] | None = None
    ) -> Iterator[tuple[Sequence[str], list[Any]]]:
        """Run lua/groups.lua over all these queues, and yield the queues and the reply of each call.  A call deals with
        as many queues as take some milliseconds, and the next one goes on from there."""
        at, most = 0, QUEUES_OF_GROUPS if self.transport.spans else 1
        while at < len(queues):
            some = queues[at : at + most]
            keys = [self.keys.of(queue)["groups"] for queue in some]
            done, *reply = self.transport.run(load("groups"), keys, (self._clock(), what, letter, *(fields or ())))
            yield some, reply
            at, most = at + done, min(most, 2 * done)

    def failure_tags(self, queues: Sequence[str], state: State, tag: str = "") -> list[FailureGroup]:
        letter, found = _letter(state), list[FailureGroup]()
        chosen = ("HMGET", letter + tag, letter) if tag else ("HGETALL",)
        for some in chunks(queues, CALLS):
            calls = [(chosen[0], self.keys.of(queue)["tags"], *chosen[1:]) for queue in some]
            for queue, reply in zip(some, self.transport.pipeline(calls), strict=True):
                flat = [part for pair in zip(chosen[1:], reply, strict=True) for part in pair] if tag else reply
                found += _read_tags(queue, letter, flat)
        return found

    def listed(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None = None,
        *,
        groups: Sequence[FailureGroup] | None = None,
        reverse: bool = False,
        span: Span | None = None,
    ) -> tuple[list[JobInfo], Mark | None]:
        numbers = None if groups is None else _numbers(queues, state, groups)
        queues = queues if numbers is None else list(numbers)
        if after is not None:
            check_mark(after)
        if span is not None:
            check_span(state)
            after = _begin(span, after, reverse)
        entries = self._entries(queues, state, limit, after, numbers, reverse, timed=span is not None)
        last = entries[-1] if entries else None
        mark = Mark(last[0], last[2], last[3]) if last and len(entries) == limit else None
        if span is not None and last and not span.has(last[1]):  # the list goes on behind the span
            entries, mark = [each for each in entries if span.has(each[1])], None
        return self._rows(state, entries), mark

    def count_within(
        self, queues: Sequence[str], state: State, span: Span, groups: Sequence[FailureGroup] | None = None
    ) -> int:
        check_span(state)
        if groups is not None:
            _letter(state)
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
        _letter(state)
        found: dict[int, list[int]] = {}
        smallest = sorted(range(len(groups)), key=lambda i: groups[i].jobs)
        small = [i for i in smallest if groups[i].jobs <= SMALL]
        if most:
            sizes = accumulate(groups[i].jobs for i in small)
            small = [i for i, size in zip(small, sizes, strict=True) if size <= most]
        counted = self._count_small([groups[i] for i in small], bars)
        found |= {i: numbers for i, numbers in zip(small, counted, strict=True) if numbers is not None}
        left = (most - sum(groups[i].jobs for i in found)) // FEWEST if most else None
        for some in chunks([i for i in smallest if i not in found], GROUPS):
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
        """Return which parts of the groups are to be read; see lua/lib/failed.lua.

        By plain reads, in small calls, so that a group of a million jobs does not hold up the server."""
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
        replies = [reply for some in chunks(calls, CALLS) for reply in self.transport.pipeline(some)]
        plans = [make_plan(int(replies[i]), replies[i + 1] + replies[i + 2], bars) for i in range(0, len(replies), 3)]
        rest = [(group, plan) for group, plan in zip(groups, plans, strict=True) if plan.beyond]
        for group, plan in rest:
            names, prefix = self.keys.of(group.queue)["chunks"], f"{group.number:05}".encode()
            ends = ((b"[" + prefix + b":", b"(" + plan.first), (b"(" + plan.last, b"(" + prefix + b";"))
            before, behind = self.transport.pipeline([("ZRANGEBYLEX", names, *each) for each in ends])
            plan.parts += [(part, OUTSIDE) for part in (*before, *behind)]
        return plans

    def _count_lines(self, groups: Sequence[FailureGroup], plans: Sequence[Plan], bars: Bars) -> list[list[int]]:
        """Count the lines of the parts in these plans by bar."""
        counts = [[0] * bars.number for _ in groups]
        outside = [0] * len(groups)
        wanted = [(groups[i].queue, i, *part) for i, plan in enumerate(plans) for part in plan.parts]
        for some in chunks(wanted, PARTS):
            by_queue = [list(each) for _, each in groupby(some, key=lambda part: part[0])]
            replies = self.transport.pipeline(
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

    def _entries(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None,
        numbers: dict[str, list[int]] | None,
        reverse: bool,
        *,
        timed: bool,
    ) -> list[Entry]:
        """`timed`: leave out the place whose scores are not the time of the state."""
        found: list[Entry] = []
        if not self._scripts_refused:
            try:
                for some in self._together(queues, numbers, reverse):
                    last = found[-1] if len(found) == limit else None
                    flat = self._list(some, state, limit, after, last, numbers, reverse, timed=timed)
                    found += [
                        (flat[i + 1].decode(), float(flat[i + 1]), flat[i].decode(), _text(flat[i + 2]))
                        for i in range(0, len(flat), 3)
                    ]
                    found = sorted(found, key=_order, reverse=reverse)[:limit]
                return found
            except StoreMisconfigured:
                self._scripts_refused = True
        return self._plain_entries(queues, state, limit, after, numbers, reverse, timed=timed)

    def _together(
        self, queues: Sequence[str], numbers: dict[str, list[int]] | None, reverse: bool
    ) -> Iterator[list[str]]:
        """Yield the queues of each call.  Among jobs of one time those of the first queues come first, and what has
        been found tells the next call what it need not look at."""
        some, groups = list[str](), 0
        for queue in sorted(queues, key=str.encode, reverse=reverse):
            more = len(numbers[queue]) if numbers is not None else 0
            if some and (not self.transport.spans or len(some) == QUEUES or groups + more > OPENED):
                yield some
                some, groups = [], 0
            some, groups = [*some, queue], groups + more
        if some:
            yield some

    def _list(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None,
        last: Entry | None,
        numbers: dict[str, list[int]] | None,
        reverse: bool,
        *,
        timed: bool,
    ) -> list[bytes]:
        given = [self._script("list", queue) for queue in queues]
        keys = [key for _, names in given for key in names]
        mark = (after.score, after.queue, after.member.encode("latin-1")) if after else ("", "", "")
        before = (last[0], last[2], last[3].encode("latin-1")) if last else ("", "", "")
        how = "groups" if numbers is not None else "timed" if timed else ""
        args: list[Any] = [state.value, limit, "reverse" if reverse else "", *mark, how, *before]
        for queue in queues:
            args += [queue] if numbers is None else [queue, " ".join(f"{number:05}" for number in numbers[queue])]
        flat: list[bytes] = self.transport.run(load("list"), keys, (self._clock(), *args))
        return flat

    def _rows(self, state: State, entries: Sequence[Entry]) -> list[JobInfo]:
        """Read what a list shows of these jobs."""
        by_queue = {
            queue: [(_id_of(state, member), _time_of(state, value)) for _, value, _, member in some]
            for queue, some in groupby(sorted(entries, key=lambda entry: entry[2]), key=lambda entry: entry[2])
        }
        infos: dict[tuple[str, str], JobInfo] = {}
        for queue, found, columns in self._details(state, by_queue):
            # The time of a job with `keep_result` is that until which it is kept.
            kept = {id for id, _ in found} if state is State.SUCCEEDED else ()
            for info in self._infos(queue, state, found, columns, whole=False, kept=kept):
                infos[queue, info.id] = info
        wanted = [(queue, _id_of(state, member)) for _, _, queue, member in entries]
        return [infos[each] for each in dict.fromkeys(wanted) if each in infos and infos[each].record]

    def _details(
        self, state: State, by_queue: dict[str, list[tuple[str, int]]]
    ) -> Iterator[tuple[str, list[tuple[str, int]], list[Any]]]:
        for queues in chunks(list(by_queue), QUEUES if self.transport.spans else 1):
            if not self._scripts_refused:
                keys = [key for queue in queues for key in self._script("rows", queue)[1]]
                args: list[Any] = [
                    part for queue in queues for part in (len(by_queue[queue]), *(id for id, _ in by_queue[queue]))
                ]
                try:
                    flat = self.transport.run(load("rows"), keys, (self._clock(), PREVIEW + 20, *args))
                except StoreMisconfigured:
                    self._scripts_refused = True
                else:
                    for queue in queues:
                        found, size = by_queue[queue], len(by_queue[queue]) * len(ROWS)
                        yield queue, found, [_row(state, flat[i : i + len(ROWS)]) for i in range(0, size, len(ROWS))]
                        flat = flat[size:]
                    continue
            for queue in queues:
                names, ids = self.keys.of(queue), [id for id, _ in by_queue[queue]]
                columns = self.transport.pipeline([("HMGET", names[kind], *ids) for kind in ROWS])
                yield queue, by_queue[queue], [_row(state, row) for row in zip(*columns, strict=True)]

    # -- for users who may not run scripts -----------------------------------------

    def _plain_entries(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None,
        numbers: dict[str, list[int]] | None,
        reverse: bool,
        *,
        timed: bool,
    ) -> list[Entry]:
        """The same as lua/list.lua, by plain reads: slower, as each queue takes a round trip of its own."""
        streams: list[Iterator[Entry]] = []
        for queue in queues:
            if numbers is not None:
                streams += [self._plain_group(queue, state, f"{number:05}", reverse) for number in numbers[queue]]
            elif state is State.RUNNING:
                streams.append(self._plain_claims(queue, reverse))
            else:
                places = [place for place, belongs in PLACES if belongs is state and not (timed and place == "kept")]
                streams += [self._plain_place(queue, place, limit, after, reverse) for place in places]
        found = merge(*streams, key=_order, reverse=reverse)
        if after is not None:
            last = _order((after.score, float(after.score), after.queue, after.member))
            found = (each for each in found if (_order(each) < last if reverse else _order(each) > last))
        return list(islice(found, limit))

    def _plain_place(self, queue: str, place: str, limit: int, after: Mark | None, reverse: bool) -> Iterator[Entry]:
        name, offset = self.keys.of(queue)[place], 0
        verb = "ZREVRANGEBYSCORE" if reverse else "ZRANGEBYSCORE"
        bounds = (after.score if after else "+inf", "-inf") if reverse else (after.score if after else "-inf", "+inf")
        while True:
            flat = self.transport.command(verb, name, *bounds, "WITHSCORES", "LIMIT", offset, limit)
            for i in range(0, len(flat), 2):
                yield flat[i + 1].decode(), float(flat[i + 1]), queue, _text(flat[i])
            offset += limit
            if len(flat) < 2 * limit:
                return

    def _plain_claims(self, queue: str, reverse: bool) -> Iterator[Entry]:
        found = [(str(at), float(at), queue, _text(id.encode())) for id, at in self._running(queue, reverse)]
        yield from sorted(found, key=_order, reverse=reverse)

    def _plain_group(self, queue: str, state: State, number: str, reverse: bool) -> Iterator[Entry]:
        names = self.keys.of(queue)
        found = self.transport.command("ZRANGEBYLEX", names["chunks"], f"[{number}:", f"({number};")
        for chunk in reversed(found) if reverse else found:
            lines = (self.transport.command("HGET", names["members"], chunk) or b"").split(b"\n")[:-1]
            scores = (
                self.transport.command("ZMSCORE", names[state.value], *(line[13:] for line in lines)) if lines else []
            )
            pairs = list(zip(lines, scores, strict=True))
            for line, score in reversed(pairs) if reverse else pairs:
                if score is not None and line[:13].isdigit() and int(line[:13]) == round(float(score)):
                    yield _text(score), float(score), queue, _text(line[13:])


def check_mark(mark: Mark) -> None:
    """Raise ValueError for a mark whose score the server would refuse."""
    if isnan(float(mark.score)):
        raise ValueError(f"{mark} does not belong to a list.")


def _numbers(queues: Sequence[str], state: State, groups: Sequence[FailureGroup]) -> dict[str, list[int]]:
    """Return the numbers of these groups by queue.  Raises ValueError for a state without groups."""
    _letter(state)
    numbers: dict[str, list[int]] = {}
    chosen = frozenset(queues)
    for group in groups:
        if group.jobs and group.queue in chosen:
            numbers.setdefault(group.queue, []).append(group.number)
    return numbers


def _begin(span: Span, after: Mark | None, reverse: bool) -> Mark | None:
    """Return the mark behind which the list begins: the end of the span, unless the list is farther already.

    No queue has an empty name.  So all jobs of this time follow this mark, or from the latest down, none does."""
    at = span.before if reverse else span.since
    if not at or (after is not None and (float(after.score) < at if reverse else float(after.score) >= at)):
        return after
    return Mark(str(at), "", "")


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


def _letter(state: State) -> str:
    check_grouped(state)
    return LETTERS[state]


def _fields(state: State, kinds: Collection[FailureKind] | None) -> list[bytes] | None:
    """Return the fields of these kinds of groups, if the server can look for them: None if it cannot, or for all."""
    if kinds is None or len(kinds) > KINDS or any("\ufffd" in text for kind in kinds for text in kind):
        return None  # U+FFFD is for bytes that are no text, and we do not know them
    return [f"{LETTERS[state]}{kind.name}\n{kind.signature}".encode() for kind in kinds]


def _paired(fields: list[bytes], values: list[bytes | None]) -> list[bytes]:
    """Return field, value of those that are there, flat."""
    return [part for field, value in zip(fields, values, strict=True) if value for part in (field, value)]


def _read_groups(letter: str, reply: Any) -> Iterator[tuple[str, str, int, int, int, int]]:
    """Yield name, signature, jobs, first, last, number of each group; entries that cannot be read are left out."""
    for field, value in _pairs(reply):
        kind, name, signature = _read_field(field)
        if kind == letter and (numbers := _read_value(value)) is not None:
            yield name, signature, *numbers


def _pairs(reply: Any) -> Iterable[tuple[Any, Any]]:
    """Return field and value of each entry: servers answer flat, or by a mapping."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)


def _read_value(value: bytes) -> tuple[int, int, int, int] | None:
    """Return jobs, first, last and number of a group; None if its entry cannot be read."""
    try:
        number, jobs, first, last = map(int, value.split(b":"))
    except ValueError:
        return None
    return jobs, first, last, number


def _read_sums(letter: str, queues: Sequence[str], flat: list[Any]) -> Iterator[FailureSum]:
    """Yield the sums in a reply of lua/groups.lua."""
    for i in range(0, len(flat), 7):
        field, *numbers, queue, value = flat[i : i + 7]
        for group in _read_groups(letter, [field, value]):
            groups, jobs, first, last = numbers
            example = FailureGroup(queues[queue - 1], *group)
            yield FailureSum(*group[:2], groups, jobs, first, last, example)


def _read_tags(queue: str, letter: str, reply: Any) -> Iterator[FailureGroup]:
    """Yield the groups by tags of one state; entries that cannot be read are left out."""
    for given, value in _pairs(reply):
        field = _text(given) if isinstance(given, bytes) else given
        if field[:1] == letter and value is not None and (numbers := _read_value(value)) is not None:
            yield FailureGroup(queue, "", "", *numbers, field[1:] or OTHER_TAGS)


@lru_cache(maxsize=20_000)
def _read_field(field: bytes) -> tuple[str, str, str]:
    """Return letter, name and signature; hundreds of queues have the same fields."""
    name, separator, signature = field.decode(errors="replace").partition("\n")
    return (name[:1], name[1:], signature) if separator else ("", "", "")


def _row(state: State, values: Sequence[Any]) -> list[Any]:
    """Return the details of one job in the order of DETAILS; those of other states are left out."""
    found = dict(zip(ROWS, values, strict=True))
    return [found.get(kind) if of in (None, state) else None for kind, of in DETAILS.items()]


def _order(entry: Entry) -> tuple[float, bytes, bytes]:
    return entry[1], entry[2].encode(), entry[3].encode("latin-1")


def _text(member: bytes) -> str:
    return member.decode("latin-1")


def _id_of(state: State, member: str) -> str:
    raw = member.encode("latin-1")
    return (raw.rpartition(b"\0")[2] if state is State.BLOCKED else raw).decode(errors="replace")


def _time_of(state: State, score: float) -> int:
    return 0 if state in (State.QUEUED, State.BLOCKED) else read_number(score)
