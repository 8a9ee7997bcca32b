"""SqliteStore: lists over several queues together, and the groups of failed jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from django_jobs.core.values import JobInfo, State
from django_jobs.stores.contract.lists import (
    GROUPED,
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
)
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.browsing import FROM, INFO, MOST_VALUES, job_info, short

#: What a list is sorted by, where that is not the time of the state.
_SORTED_BY = {State.QUEUED: ("lane", "rank", "seq"), State.BLOCKED: ("blocked_by", "rank", "seq")}

#: The job types and errors of a queue's failed jobs: each is found behind the one before it, so that its jobs need not
#: be read.
_KINDS = """
    WITH RECURSIVE kinds(name, signature) AS (
        SELECT * FROM (
            SELECT name, signature FROM failures WHERE queue = :queue AND state = :state
            ORDER BY name, signature LIMIT 1
        )
        UNION ALL
        SELECT behind.name, behind.signature FROM kinds JOIN failures AS behind ON behind.job = (
            SELECT job FROM failures
            WHERE queue = :queue AND state = :state AND (name, signature) > (kinds.name, kinds.signature)
            ORDER BY name, signature LIMIT 1
        )
    ) SELECT name, signature FROM kinds
"""

#: Values of the columns that the list is sorted by, queue, row number.
_Entry = tuple[tuple[Any, ...], str, int]


class SqliteLists(SqlitePart, ListStore):
    """See stores/contract/lists.py for the contract of each method."""

    def failure_groups(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureGroup]:
        check_grouped(state)
        sql = (
            "SELECT queue, name, signature, count(*), min(failed_at), max(failed_at) FROM failures"
            f" WHERE queue = ? AND state = ?{'' if kinds is None else ' AND name = ? AND signature = ?'}"
            " GROUP BY name, signature"
        )
        chosen: Collection[tuple[str, ...]] = [()] if kinds is None else kinds
        with self.database.read() as connection:
            return [
                FailureGroup(*row)
                for queue in queues
                for kind in chosen
                for row in connection.execute(sql, (queue, state, *kind))
            ]

    def failure_kinds(self, queues: Sequence[str]) -> dict[State, set[FailureKind]]:
        with self.database.read() as connection:
            return {
                state: {
                    FailureKind(*row)
                    for queue in queues
                    for row in connection.execute(_KINDS, {"queue": queue, "state": state})
                }
                for state in GROUPED
            }

    def failure_sums(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureSum]:
        return add_up(self.failure_groups(queues, state, kinds))

    def failure_tags(self, queues: Sequence[str], state: State, tag: str = "") -> list[FailureGroup]:
        check_grouped(state)
        sql = (
            "SELECT tag, count(*), min(failed_at), max(failed_at) FROM failure_tags"
            f" WHERE queue = ? AND state = ?{' AND tag = ?' if tag else ''} GROUP BY tag"
        )
        chosen = (tag,) if tag else ()
        with self.database.read() as connection:
            return [
                FailureGroup(queue, "", "", jobs, first, last, tag=each)
                for queue in queues
                for each, jobs, first, last in connection.execute(sql, (queue, state, *chosen))
            ]

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
        streams = _streams(queues, state, groups, span)
        last = _read_mark(after, state) if after is not None else None
        found: list[_Entry] = []
        for queue, group in streams:
            found += self._stream(queue, state, limit, last, group, reverse, span)
        found = sorted(found, key=lambda entry: (*entry[0], entry[1], entry[2]), reverse=reverse)[:limit]
        infos = self._infos([job for _, _, job in found])
        mark = Mark(json.dumps(found[-1][0]), found[-1][1], str(found[-1][2])) if len(found) == limit else None
        return [infos[job] for _, _, job in found if job in infos and infos[job].state is state], mark

    def count_within(
        self, queues: Sequence[str], state: State, span: Span, groups: Sequence[FailureGroup] | None = None
    ) -> int:
        found = 0
        with self.database.read() as connection:
            for queue, group in _streams(queues, state, groups, span):
                table, where, values = _chosen(queue, state, group, span)
                found += connection.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchone()[0]
        return found

    def count_bars(
        self, state: State, groups: Sequence[FailureGroup], bars: Bars, *, most: int = 0
    ) -> list[list[int] | None]:
        check_grouped(state)
        found: list[list[int] | None] = [None] * len(groups)
        left, span = most, Span(bars.first, bars.end)
        with self.database.read() as connection:
            for i in sorted(range(len(groups)), key=lambda i: groups[i].jobs):
                table, where, values = _chosen(groups[i].queue, state, groups[i], span)
                # The limit is met before the rows are added up, so a group that has more costs no more.
                rows = f"SELECT at FROM {table} WHERE {where} LIMIT ?"
                sql = f"SELECT (at - ?) / ?, count(*) FROM ({rows}) GROUP BY 1"
                limit = left + 1 if most else -1
                counted = dict(connection.execute(sql, (bars.first, bars.width, *values, limit)).fetchall())
                left -= sum(counted.values())
                if most and left < 0:
                    break
                found[i] = [counted.get(bar, 0) for bar in range(bars.number)]
        return found

    def _stream(
        self,
        queue: str,
        state: State,
        limit: int,
        last: _Entry | None,
        group: FailureGroup | None,
        reverse: bool,
        span: Span | None,
    ) -> list[_Entry]:
        """Return the first jobs of one queue, or of one group in it, behind the last entry."""
        columns = _SORTED_BY.get(state, ("at",))
        table, where, values = _chosen(queue, state, group, span)
        where += "".join(f" AND {column} IS NOT NULL" for column in columns)
        sign, way = ("<", "DESC") if reverse else (">", "ASC")
        if last is not None:
            key, last_queue, job = last
            tied = [*columns, "job"] if queue == last_queue else columns
            orequal = "=" if queue != last_queue and (queue > last_queue) is not reverse else ""
            where += f" AND ({', '.join(tied)}) {sign}{orequal} ({', '.join('?' * len(tied))})"
            values += [*key, job] if queue == last_queue else key
        order = ", ".join(f"{column} {way}" for column in (*columns, "job"))
        sql = f"SELECT {', '.join(columns)}, job FROM {table} WHERE {where} ORDER BY {order} LIMIT ?"
        with self.database.read() as connection:
            return [(tuple(key), queue, job) for *key, job in connection.execute(sql, (*values, limit))]

    def _infos(self, jobs: Sequence[int]) -> dict[int, JobInfo]:
        infos: dict[int, JobInfo] = {}
        with self.database.read() as connection:
            for start in range(0, len(jobs), MOST_VALUES):
                some = jobs[start : start + MOST_VALUES]
                sql = f"SELECT {INFO}, jobs.job {FROM} WHERE jobs.job IN ({', '.join('?' * len(some))})"
                infos |= {found[-1]: short(job_info(found[:-1])) for found in connection.execute(sql, some)}
        return infos


def _streams(
    queues: Sequence[str], state: State, groups: Sequence[FailureGroup] | None, span: Span | None
) -> list[tuple[str, FailureGroup | None]]:
    """Return what is read one by one: queues, or groups of failed jobs in them.  Raises ValueError."""
    if span is not None:
        check_span(state)
    if groups is None:
        return [(queue, None) for queue in queues]
    check_grouped(state)
    chosen = frozenset(queues)
    return [(group.queue, group) for group in groups if group.queue in chosen]


def _chosen(queue: str, state: State, group: FailureGroup | None, span: Span | None) -> tuple[str, str, list[Any]]:
    """Return the table, the condition and its values for the jobs of one queue, or of one group in it."""
    # The state is a literal, because SQLite uses a partial index only if it can see that the condition is met.
    table, where, values = "jobs", f"queue = ? AND state = '{state.value}'", list[Any]([queue])
    if group is not None:
        table, where = "failures", f"{where} AND name = ? AND signature = ?"
        values += [group.name, group.signature]
    if group is not None and group.tag:
        table, where, values = "failure_tags", f"queue = ? AND state = '{state.value}' AND tag = ?", [queue, group.tag]
    if span is not None:
        where += f" AND at >= ?{' AND at < ?' if span.before else ''}"
        where += " AND kept_until IS NULL" if state is State.SUCCEEDED else ""
        values += [span.since, span.before] if span.before else [span.since]
    return table, where, values


def _read_mark(mark: Mark, state: State) -> _Entry:
    """Read a mark.  Raises ValueError."""
    key = json.loads(mark.score)
    columns = _SORTED_BY.get(state, ("at",))
    if not isinstance(key, list) or len(key) != len(columns) or any(type(each) not in (int, str) for each in key):
        raise ValueError(f"{mark} does not belong to a list of jobs that are {state}.")
    return tuple(key), mark.queue, int(mark.member)
