"""RedisStore: lists over several queues together, and the groups of failed jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import groupby, islice
from typing import Any

from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import StoreMisconfigured
from django_jobs.stores.contract.lists import FailureGroup, ListStore, Mark
from django_jobs.stores.redis.browsing import DETAILS, PREVIEW, RedisBrowsing
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.redis.entries import chunks, read_number
from django_jobs.stores.redis.stats import PLACES

#: Queues in one call: each takes at most some tenths of a millisecond of the server's time.
QUEUES = 50
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
    ) -> tuple[list[JobInfo], Mark | None]:
        numbers: dict[str, list[int]] | None = None
        if groups is not None:
            _letter(state)
            numbers = {}
            for group in groups:
                if group.jobs and group.queue in queues:
                    numbers.setdefault(group.queue, []).append(group.number)
            queues = list(numbers)
        if after is not None:
            float(after.score)  # raises ValueError
        entries = self._entries(queues, state, limit, after, numbers, reverse)
        last = entries[-1] if entries else None
        mark = Mark(last[0], last[2], last[3]) if last and len(entries) == limit else None
        return self._rows(state, entries), mark

    def _entries(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None,
        numbers: dict[str, list[int]] | None,
        reverse: bool,
    ) -> list[Entry]:
        found: list[Entry] = []
        if not self._scripts_refused:
            try:
                for some in chunks(queues, QUEUES if self.transport.spans else 1):
                    flat = self._list(some, state, limit, after, numbers, reverse)
                    found += [
                        (flat[i + 1].decode(), float(flat[i + 1]), flat[i].decode(), _text(flat[i + 2]))
                        for i in range(0, len(flat), 3)
                    ]
                return sorted(found, key=_order, reverse=reverse)[:limit]
            except StoreMisconfigured:
                self._scripts_refused = True
        return self._plain_entries(queues, state, limit, after, numbers, reverse)

    def _list(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None,
        numbers: dict[str, list[int]] | None,
        reverse: bool,
    ) -> list[bytes]:
        given = [self._script("list", queue) for queue in queues]
        keys = [key for _, names in given for key in names]
        mark = (after.score, after.queue, after.member.encode("latin-1")) if after else ("", "", "")
        args: list[Any] = [state.value, limit, "reverse" if reverse else "", *mark, "" if numbers is None else "groups"]
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
    ) -> list[Entry]:
        """The same as lua/list.lua, by plain reads: slower, as each queue takes a round trip of its own."""
        streams: list[Iterator[Entry]] = []
        for queue in queues:
            if numbers is not None:
                streams += [self._plain_group(queue, state, f"{number:05}", reverse) for number in numbers[queue]]
            elif state is State.RUNNING:
                streams.append(self._plain_claims(queue, reverse))
            else:
                places = [place for place, belongs in PLACES if belongs is state]
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
