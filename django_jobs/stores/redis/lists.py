"""Lists over several queues together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import inf, isnan
from typing import Any

from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.stores.redis.browsing import DETAILS, PREVIEW, id_of, time_of
from django_jobs.stores.redis.connection.entries import read_ended
from django_jobs.stores.redis.connection.part import LOOKED_INTO_AT_ONCE
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.redis.failures.groups import letter_of, name_of_group, text_of
from django_jobs.stores.redis.plain_lists import Entry, PlainLists, Wanted, order_of
from django_jobs.stores.redis.standing import Positions
from django_jobs.stores.values.lists import FailureGroup, Mark, Span, check_span
from django_jobs.stores.values.sizes import chunks

#: Queues in one call: each takes at most some tenths of a millisecond of the server's time.
QUEUES = 100
#: Groups whose first jobs are compared in one call of `list`.
OPENED = 1000


class Lists(PlainLists, Positions):
    """Lists over several queues.  They only read, and cost O(number of queues and of what they return)."""

    def get_many(self, queue: str, ids: Sequence[str], *, moved: bool = False, whole: bool = False) -> list[JobInfo]:
        """Return the jobs that exist, in the order of `ids`, each as in `page` or, with `whole`, as `get` does.
        At most MAX_BATCH ids.  `moved`: add what `find` returns for those that a retry has moved to another queue."""
        found = self._look_up(queue, ids, whole=whole)
        if moved and len(found) < len(ids):
            known = {info.id for info in found}
            gone = self._moves(queue, [id for id in ids if id not in known])
            found += filter(None, (self._find_from(queue, id) for id in gone))
        return found

    def find(self, queues: Sequence[str], id: str) -> JobInfo | None:
        """Find a job that was in one of these queues: `get`, after one round trip over all of them if they are several.

        If a retry has moved the job to another queue (`settle`), it is found there: `JobInfo.queue` is that queue.  As
        long as it has not arrived, it is in state retry, in the queue that it has left."""
        if len(queues) == 1:
            return self._find_from(queues[0], id)
        holding = dict(zip(queues, self._holding(queues, id), strict=True))
        for queue in sorted(filter(holding.get, queues), key=holding.__getitem__):  # where it has left comes last
            if info := self._find_from(queue, id):
                return info
        return None

    def _holding(self, queues: Sequence[str], id: str) -> list[Any]:
        """Return for each of these queues 1 if it has a job with this id, 2 if that has left it for another queue, or
        else 0."""
        found = self._by_script(
            lambda: self._read_over("find", queues, id, at_once=LOOKED_INTO_AT_ONCE, whole=True)
        )  # fmt: skip
        if found is not None:
            return [found[queue][0] for queue in queues]
        return self.transport.pipeline([("HEXISTS", self.keys.of(queue)["jobs"], id) for queue in queues])

    def _find_from(self, queue: str, id: str) -> JobInfo | None:
        last = 0
        while not (info := self.get(queue, id)) and (move := self._moves(queue, [id]).get(id)) and move.number > last:
            entry: bytes | None = self.transport.command("HGET", self.keys.of(queue)["end_calls"], move.key)
            if entry is not None:
                return read_ended(queue, entry)
            queue, last = move.queue, move.number
        return info

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
        until: int | None = None,
    ) -> tuple[list[JobInfo], Mark | None]:
        """Return at most `limit` jobs in one state, of all these queues together, each as in `page`, and where the list
        goes on (None: these were the last).

        Sorted by the time of the state; queued jobs by priority, then arrival; blocked jobs in any stable order.
        `groups`: only jobs of these groups; of each queue only one group by tags.  A job that stays where it is is
        returned exactly once, whatever comes and goes between the calls.  Raises ValueError for a mark that does not
        belong to this list.

        `span`: only jobs whose time of the state belongs to it; found by an index.  Succeeded jobs with `keep_result`
        are left out then, because no index has the time of their end.  Raises ValueError for a state without a time.

        `until` (ms): finished jobs that ended later are left out, so that a list ends even if the jobs that it returns
        finish again.  Not together with `reverse`."""
        names = None if groups is None else _names(queues, state, groups)
        queues = queues if names is None else list(names)
        if after is not None:
            after = checked(after)
        if span is not None:
            check_span(state)
            after = _begin(span, after, reverse)
        latest = until if until is not None and state in FINISHED else inf
        entries = self._entries(queues, Wanted(state, limit, after, names, reverse, span is not None, latest))
        last = entries[-1] if entries else None
        mark = Mark(last[0], last[2], last[3]) if last and len(entries) == limit else None
        if span is not None and last and not span.has(last[1]):  # the list goes on behind the span
            entries, mark = [each for each in entries if span.has(each[1])], None
        return [info for info in self._rows(state, entries) if info.at <= latest], mark

    def _entries(self, queues: Sequence[str], wanted: Wanted) -> list[Entry]:
        def read() -> list[Entry]:
            found = list[Entry]()
            for some in self._together(queues, wanted.groups, wanted.reverse):
                last = found[-1] if len(found) == wanted.limit else None
                found += _entries_of(self._list(some, wanted, last))
                found = sorted(found, key=order_of, reverse=wanted.reverse)[: wanted.limit]
            return found

        found = self._by_script(read)
        return self._plain_entries(queues, wanted) if found is None else found

    def _together(
        self, queues: Sequence[str], groups: dict[str, list[str]] | None, reverse: bool
    ) -> Iterator[list[str]]:
        """Yield the queues of each call.  Among jobs of one time those of the first queues come first, and what has
        been found tells the next call what it need not look at."""
        some, opened = list[str](), 0
        for queue in sorted(queues, key=str.encode, reverse=reverse):
            more = len(groups[queue]) if groups is not None else 0
            if some and (not self.transport.spans or len(some) == QUEUES or opened + more > OPENED):
                yield some
                some, opened = [], 0
            some, opened = [*some, queue], opened + more
        if some:
            yield some

    def _list(self, queues: Sequence[str], wanted: Wanted, last: Entry | None) -> list[bytes]:
        state, limit, after, groups, reverse, timed, until = wanted
        keys = [key for queue in queues for key in self._script("list", queue)[1]]
        before = (last[0], last[2], last[3].encode("latin-1")) if last else ("", "", "")
        how = "groups" if groups is not None else "timed" if timed else ""
        args: list[Any] = [state.value, limit, "reverse" if reverse else "", *_args_of(after), how, *before]
        args.append("" if until == inf else until)
        for queue in queues:
            args += [queue] if groups is None else [queue, " ".join(groups[queue])]
        flat: list[bytes] = self.transport.run(load("list"), keys, (self._clock(), *args))
        return flat

    def _rows(self, state: State, entries: Sequence[Entry]) -> list[JobInfo]:
        """Read what a list shows of these jobs."""
        by_queue, wanted = dict[str, list[tuple[str, int]]](), dict[tuple[str, str], None]()
        for _, score, queue, member in entries:
            id = id_of(state, member.encode("latin-1"))
            by_queue.setdefault(queue, []).append((id, time_of(state, score)))
            wanted[queue, id] = None
        infos = {(info.queue, info.id): info for info in self._infos_of(state, by_queue)}
        return [infos[each] for each in wanted if each in infos and infos[each].record]

    def _infos_of(self, state: State, by_queue: dict[str, list[tuple[str, int]]]) -> Iterator[JobInfo]:
        for queues in chunks(list(by_queue), QUEUES if self.transport.spans else 1):
            flat = self._by_script(partial(self._details_of, {queue: by_queue[queue] for queue in queues}))
            values = iter(flat or ())
            for queue in queues:
                found = by_queue[queue]
                # The time of a job with `keep_result` is that until which it is kept.
                kept = {id for id, _ in found} if state is State.SUCCEEDED else ()
                if flat is None:
                    yield from self._describe(queue, state, found, whole=False, kept=kept)
                else:
                    rows = [_row(state, islice(values, len(DETAILS))) for _ in found]
                    yield from self._infos(queue, state, found, rows, whole=False, kept=kept)

    def _details_of(self, by_queue: dict[str, list[tuple[str, int]]]) -> list[Any]:
        keys = [key for queue in by_queue for key in self._script("rows", queue)[1]]
        args: list[Any] = [part for some in by_queue.values() for part in (len(some), *(id for id, _ in some))]
        flat: list[Any] = self.transport.run(load("rows"), keys, (self._clock(), PREVIEW + 20, *args))
        return flat


def checked(mark: Mark) -> Mark:
    """Return a mark with a score that the server can read.  Raises ValueError for one that has none."""
    score = float(mark.score)
    if isnan(score):
        raise ValueError(f"{mark} does not belong to a list.")
    return mark._replace(score=repr(score))


def _args_of(after: Mark | None) -> tuple[str | bytes, ...]:
    return (after.score, after.queue, after.member.encode("latin-1")) if after else ("", "", "")


def _entries_of(flat: Sequence[bytes]) -> list[Entry]:
    """Read queue, score and member of each entry."""
    return [
        (flat[i + 1].decode(), float(flat[i + 1]), flat[i].decode(), text_of(flat[i + 2]))
        for i in range(0, len(flat), 3)
    ]


def _names(queues: Sequence[str], state: State, groups: Sequence[FailureGroup]) -> dict[str, list[str]]:
    """Return the names of these groups by queue.  Raises ValueError for a state without groups."""
    letter_of(state)
    names: dict[str, list[str]] = {}
    chosen = frozenset(queues)
    for group in groups:
        if group.jobs and group.queue in chosen:
            names.setdefault(group.queue, []).append(name_of_group(state, group))
    return names


def _begin(span: Span, after: Mark | None, reverse: bool) -> Mark | None:
    """Return the mark behind which the list begins: the end of the span, unless the list is farther already.

    No queue has an empty name.  So all jobs of this time follow this mark, or from the latest down, none does."""
    at = span.before if reverse else span.since
    if not at or (after is not None and (float(after.score) < at if reverse else float(after.score) >= at)):
        return after
    return Mark(str(at), "", "")


def _row(state: State, values: Iterable[Any]) -> list[Any]:
    """Return the details of one job without those of other states; lua/listing/rows.lua has the order of DETAILS."""
    return [value if of in (None, state) else None for of, value in zip(DETAILS.values(), values, strict=True)]
