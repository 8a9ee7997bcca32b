"""Lists over several queues, by plain reads, for users who may not run scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from math import inf
from typing import NamedTuple

from django_jobs.core.values import State
from django_jobs.stores.redis.browsing import Browsing
from django_jobs.stores.redis.failures.bars import BarCounts
from django_jobs.stores.redis.failures.groups import bounds_of, text_of
from django_jobs.stores.redis.stats import places_of
from django_jobs.stores.values.lists import Mark

#: Score as text, score, queue, member.
Entry = tuple[str, float, str, str]


class Wanted(NamedTuple):
    """The entries that a list is to have, and their order."""

    state: State
    limit: int
    after: Mark | None
    #: queue → the names of its groups; None: jobs of every group.
    groups: dict[str, list[str]] | None
    reverse: bool
    #: leave out the place whose scores are not the time of the state.
    timed: bool
    #: ms: leave out jobs that ended later; inf = none.
    until: float


class PlainLists(Browsing, BarCounts):
    """What lua/listing/list.lua does."""

    def _plain_entries(self, queues: Sequence[str], wanted: Wanted) -> list[Entry]:
        """The same as lua/listing/list.lua, by plain reads: slower, as each queue takes a round trip of its own."""
        state, limit, after, groups, reverse, timed, until = wanted
        streams: list[Iterator[Entry]] = []
        by_then = partial(takewhile, lambda each: each[1] <= until)
        for queue in queues:
            if groups is not None:
                streams += [by_then(self._plain_group(queue, state, group, limit, reverse)) for group in groups[queue]]
            elif state is State.RUNNING:
                streams.append(self._plain_claims(queue, reverse))
            else:
                for place in places_of(state):
                    stream = self._plain_place(queue, place, limit, after, reverse)
                    if place != "kept":
                        streams.append(by_then(stream))
                    elif not timed:  # its scores are not the ends of the jobs
                        streams.append(stream)
        found = merge(*streams, key=order_of, reverse=reverse)
        if after is not None:
            last = order_of((after.score, float(after.score), after.queue, after.member))
            found = (each for each in found if (order_of(each) < last if reverse else order_of(each) > last))
        return list(islice(found, limit))

    def _plain_place(self, queue: str, place: str, limit: int, after: Mark | None, reverse: bool) -> Iterator[Entry]:
        name, offset = self.keys.of(queue)[place], 0
        verb = "ZREVRANGEBYSCORE" if reverse else "ZRANGEBYSCORE"
        bounds = (after.score if after else "+inf", "-inf") if reverse else (after.score if after else "-inf", "+inf")
        while True:
            flat = self.transport.command(verb, name, *bounds, "WITHSCORES", "LIMIT", offset, limit)
            for i in range(0, len(flat), 2):
                yield flat[i + 1].decode(), float(flat[i + 1]), queue, text_of(flat[i])
            offset += limit
            if len(flat) < 2 * limit:
                return

    def _plain_claims(self, queue: str, reverse: bool) -> Iterator[Entry]:
        found = [(str(at), float(at), queue, text_of(id.encode())) for id, at in self._running(queue, reverse, inf)]
        yield from sorted(found, key=order_of, reverse=reverse)

    def _plain_group(self, queue: str, state: State, group: str, limit: int, reverse: bool) -> Iterator[Entry]:
        names, bounds = self.keys.of(queue), bounds_of(group)
        verb, bounds = ("ZREVRANGEBYLEX", bounds[::-1]) if reverse else ("ZRANGEBYLEX", bounds)
        offset = 0
        while members := self.transport.command(verb, names["failures"], *bounds, "LIMIT", offset, limit):
            scores = self.transport.command("ZMSCORE", names[state.value], *(member[26:] for member in members))
            for member, score in zip(members, scores, strict=True):
                if score is not None and member[13:26].isdigit() and abs(int(member[13:26]) - float(score)) <= 0.5:
                    yield text_of(score), float(score), queue, text_of(member[26:])
            offset += limit


def order_of(entry: Entry) -> tuple[float, bytes, bytes]:
    return entry[1], entry[2].encode(), entry[3].encode("latin-1")
