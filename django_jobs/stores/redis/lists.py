"""RedisStore: lists over several queues together, and the groups of failed jobs.

Long because everything is here twice: by scripts, and by plain reads for users who may not run scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import groupby, islice
from math import isnan
from typing import Any

from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import StoreMisconfigured
from django_jobs.stores.contract.lists import FailureGroup, ListStore, Mark, Span, check_span
from django_jobs.stores.redis.browsing import DETAILS, PREVIEW, RedisBrowsing
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.redis.entries import chunks, read_number
from django_jobs.stores.redis.stats import PLACES

#: Queues in one call: each takes at most some tenths of a millisecond of the server's time.
QUEUES = 50
#: Calls in one pipeline, and parts of groups in one call: 500 parts are about two megabytes.
CALLS, PARTS = 500, 500
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

    def failure_groups(self, queues: Sequence[str], state: State) -> list[FailureGroup]:
        letter = _letter(state)
        return [
            FailureGroup(queue, *group)
            for queue, flat in zip(queues, self._groups(queues), strict=True)
            for group in _read_groups(letter, flat)
        ]

    def _groups(self, queues: Sequence[str]) -> list[Any]:
        if not self._scripts_refused:
            try:
                return self._run_over("groups", queues, at_once=QUEUES)
            except StoreMisconfigured:
                self._scripts_refused = True
        return self.transport.pipeline([("HGETALL", self.keys.of(queue)["groups"]) for queue in queues])

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
            chosen = frozenset(queues)
            return sum(self._count_group(group, span) for group in groups if group.jobs and group.queue in chosen)
        bounds = (span.since, f"({span.before}" if span.before else "+inf")
        # Like every state with a time, `succeeded` is its own place; `kept` has other times as scores.
        calls = [("ZCOUNT", self.keys.of(queue)[state.value], *bounds) for queue in queues]
        return sum(int(found) for some in chunks(calls, CALLS) for found in self.transport.pipeline(some))

    def _count_group(self, group: FailureGroup, span: Span) -> int:
        """Count the jobs of one group between two times: those in the span, or what is before and behind it if that is
        less to read."""
        chunk_names, number = self.keys.of(group.queue)["chunks"], f"{group.number:05}"
        first, last = _ends_of(number, span)
        every, inside = self.transport.pipeline(
            [("ZLEXCOUNT", chunk_names, f"[{number}:", f"({number};"), ("ZLEXCOUNT", chunk_names, f"[{first}", last)]
        )
        if 2 * int(inside) <= int(every) or 0 < span.before <= span.since:
            return self._count_lines(group.queue, number, span)
        before = self._count_lines(group.queue, number, Span(0, span.since)) if span.since else 0
        behind = self._count_lines(group.queue, number, Span(span.before)) if span.before else 0
        return max(0, group.jobs - before - behind)

    def _count_lines(self, queue: str, number: str, span: Span) -> int:
        """Count the lines of one group between two times; see lua/lib/failed.lua.  By plain reads, in small calls, so
        that a group of a million jobs does not hold up the server."""
        names = self.keys.of(queue)
        first, last = _ends_of(number, span)
        # Where the span begins in the middle of a part, its name is before that.
        head = self.transport.command(
            "ZREVRANGEBYLEX", names["chunks"], f"[{first}", f"[{number}:", "LIMIT", 0, 1
        )  # fmt: skip
        parts = [*head, *self.transport.command("ZRANGEBYLEX", names["chunks"], f"({first}", last)]
        parts = list(dict.fromkeys(parts))
        found = 0
        for some in chunks(parts, PARTS):
            texts = self.transport.command("HMGET", names["members"], *some)
            for part, text in zip(some, texts, strict=True):
                whole = part not in (parts[0], parts[-1])
                found += (text or b"").count(b"\n") if whole else _lines_within(text or b"", span)
        return found

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
                for some in chunks(queues, QUEUES if self.transport.spans else 1):
                    flat = self._list(some, state, limit, after, numbers, reverse, timed=timed)
                    found += [
                        (flat[i + 1].decode(), float(flat[i + 1]), flat[i].decode(), _text(flat[i + 2]))
                        for i in range(0, len(flat), 3)
                    ]
                return sorted(found, key=_order, reverse=reverse)[:limit]
            except StoreMisconfigured:
                self._scripts_refused = True
        return self._plain_entries(queues, state, limit, after, numbers, reverse, timed=timed)

    def _list(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None,
        numbers: dict[str, list[int]] | None,
        reverse: bool,
        *,
        timed: bool,
    ) -> list[bytes]:
        given = [self._script("list", queue) for queue in queues]
        keys = [key for _, names in given for key in names]
        mark = (after.score, after.queue, after.member.encode("latin-1")) if after else ("", "", "")
        how = "groups" if numbers is not None else "timed" if timed else ""
        args: list[Any] = [state.value, limit, "reverse" if reverse else "", *mark, how]
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


def _ends_of(number: str, span: Span) -> tuple[str, str]:
    """Return where a span begins and ends among the parts of a group."""
    last = f"({number}:{min(span.before, LATEST):013}" if span.before else f"({number};"
    return f"{number}:{min(span.since, LATEST):013}", last


def _lines_within(text: bytes, span: Span) -> int:
    return sum(line[:13].isdigit() and span.has(int(line[:13])) for line in text.split(b"\n")[:-1])


def _letter(state: State) -> str:
    if state not in LETTERS:
        raise ValueError(f"Jobs that are {state} have no groups: only dead jobs and those that wait for a retry.")
    return LETTERS[state]


def _read_groups(letter: str, reply: Any) -> Iterator[tuple[str, str, int, int, int, int]]:
    """Yield name, signature, jobs, first, last, number of each group; entries that cannot be read are left out."""
    flat = [part for item in reply.items() for part in item] if isinstance(reply, dict) else reply
    for i in range(0, len(flat), 2):
        kind, name, signature = _read_field(flat[i])
        if kind == letter:
            try:
                number, jobs, first, last = map(int, flat[i + 1].split(b":"))
            except ValueError:
                continue
            yield name, signature, jobs, first, last, number


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
