"""SqliteStore: the methods for viewing jobs."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from django_jobs.core.queue_stats import OVERDUE, read_pause
from django_jobs.core.times import Times
from django_jobs.core.values import FINISHED, NOT_READY, Attempt, JobInfo, QueueStats, State
from django_jobs.formatting import counted
from django_jobs.samples.chart import Sampled
from django_jobs.samples.log import all_of, fields_of, read, types_of
from django_jobs.stores.contract.browsing import BrowsingStore, Remembered
from django_jobs.stores.contract.queues import ParkedName, QueueStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.database.recent import find_recent
from django_jobs.stores.sqlite.database.remembered import has_returned_none, remembered
from django_jobs.stores.sqlite.database.samples import text_of, totals_of
from django_jobs.stores.sqlite.database.times import read_times
from django_jobs.stores.sqlite.database.transaction import OUTBOX
from django_jobs.stores.sqlite.database.unknown import parked, unknown_to_whom

#: What is read of a job, and from where.
INFO = (
    "id, queue, record, state, failures, crashes, at, token, holder, result, run_ms, checkin, lines, parked_at, since"
)
FROM = "FROM jobs JOIN records USING (job) LEFT JOIN results USING (job) LEFT JOIN logs USING (job)"
#: bytes of a result that a page shows.
_SHORT = 1024
_TOTALS = ("enqueued", "succeeded", "failed", "retried", "dead", "cancelled", "expired", "recovered", "trimmed_dead",
           "not_archived")  # fmt: skip
#: Every version of SQLite accepts this many values in one statement.
MOST_VALUES = 900
#: bytes: with less room on its disk the file counts as full; a batch of jobs and its log need up to twice MAX_BYTES.
_LEAST_ROOM = 8 * 1024 * 1024


class SqliteBrowsing(SqlitePart, BrowsingStore, QueueStore):
    """See stores/contract/browsing.py and queues.py for the contract of each method."""

    def get(self, queue: str, id: str) -> JobInfo | None:
        with self.database.read() as connection:
            found = connection.execute(f"SELECT {INFO} {FROM} WHERE id = ? AND queue = ?", (id, queue)).fetchone()
        return found and job_info(found)

    def walk(
        self, queue: str, state: State, cursor: str = "", limit: int = 100, *, until: int = 0
    ) -> tuple[list[str], str]:
        ended = f" AND at <= {until:d}" if until and state in FINISHED else ""
        sql = f"SELECT job, id FROM jobs WHERE queue = ? AND state = ? AND job > ?{ended} ORDER BY job LIMIT ?"
        with self.database.read() as connection:
            found = connection.execute(sql, (queue, state, int(cursor or 0), limit)).fetchall()
        return [id for _, id in found], str(found[-1][0]) if len(found) == limit else ""

    def parked(self, queue: str) -> list[ParkedName]:
        out = []
        with self.database.read() as connection:
            view = self.reading(queue, connection)
            for by in parked(view)[:100]:
                sql = "SELECT count(*) FROM jobs WHERE queue = ? AND state = 'blocked' AND blocked_by = ?"
                name = by.partition(":")[2]
                out.append(ParkedName(queue, name, view.value(sql, queue, by), unknown_to_whom(view, name)))
        return out

    def find(self, queues: Sequence[str], id: str) -> JobInfo | None:
        with self.database.read() as connection:
            for found in connection.execute(f"SELECT {INFO} {FROM} WHERE id = ?", (id,)):
                if found[1] in queues:
                    return job_info(found)
        return None

    def get_many(self, queue: str, ids: Sequence[str]) -> list[JobInfo]:
        infos: dict[str, JobInfo] = {}
        with self.database.read() as connection:
            for start in range(0, len(ids), MOST_VALUES):
                some = ids[start : start + MOST_VALUES]
                sql = f"SELECT {INFO} {FROM} WHERE id IN ({', '.join('?' * len(some))}) AND queue = ?"
                infos |= {found[0]: short(job_info(found)) for found in connection.execute(sql, (*some, queue))}
        return [infos[id] for id in ids if id in infos]

    def reported(self, queue: str, id: str) -> str:
        with self.database.read() as connection:
            return find_recent(self.reading(queue, connection), f"report:{id}")

    def remembered(self, queue: str, id: str) -> Remembered | None:
        with self.database.read() as connection:
            return remembered(self.reading(queue, connection), id)

    def has_returned_none(self, queue: str, id: str) -> bool:
        with self.database.read() as connection:
            return has_returned_none(self.reading(queue, connection), id)

    def page(
        self, queue: str, state: State, offset: int = 0, limit: int = 50, *, reverse: bool = False
    ) -> list[JobInfo]:
        where, order = _ORDERS.get(state, (f"state = '{state.value}' AND at IS NOT NULL", ("at", "job")))
        by = ", ".join(f"jobs.{column} {'DESC' if reverse else 'ASC'}" for column in order)
        # The page is selected on the index alone, so that skipped jobs are never read.
        cut = f"SELECT job FROM jobs WHERE queue = ? AND {where} ORDER BY {by} LIMIT ? OFFSET ?"
        sql = f"SELECT {INFO} {FROM} WHERE job IN ({cut}) ORDER BY {by}"
        with self.database.read() as connection:
            return [short(job_info(found)) for found in connection.execute(sql, (queue, limit, offset))]

    def stats(self, queues: Sequence[str]) -> list[QueueStats]:
        with self.database.read() as connection:
            return [self._stats(connection, queue) for queue in queues]

    def _stats(self, connection: sqlite3.Connection, queue: str) -> QueueStats:
        view = self.reading(queue, connection)
        counts = {state.value: 0 for state in State}
        counts |= connection.execute("SELECT state, sum(n) FROM counts WHERE queue = ? GROUP BY state", (queue,))
        oldest = view.value("SELECT min(since) FROM jobs WHERE queue = ? AND state = 'queued'", queue)
        # Jobs that are due, but not yet promoted by a claim, could run, too.
        first = "SELECT min(at) FROM jobs WHERE queue = ? AND state = ? AND at <= ?"
        found = [oldest, *(view.value(first, queue, state, view.now) for state in (State.SCHEDULED, State.RETRY))]
        since = min((at for at in found if at is not None), default=None)
        pauses = {name: read_pause(*rest) for name, rest in view.pauses().items()}
        totals = dict.fromkeys(_TOTALS, 0)
        totals |= connection.execute("SELECT event, n FROM totals WHERE queue = ?", (queue,))
        unarchived = totals.pop(OUTBOX, 0)
        late = "SELECT count(*), min(at) FROM jobs WHERE queue = ? AND state = ? AND at <= ?"
        overdue = [
            connection.execute(late, (queue, state, view.now - OVERDUE)).fetchone()
            for state in (State.SCHEDULED, State.RETRY)
        ]
        died = view.value("SELECT min(at) FROM jobs WHERE queue = ? AND state = 'dead'", queue)
        return QueueStats(
            queue,
            counts=counts,
            latency=0 if since is None or "" in pauses else max(0, view.now - max(since, view.opened())),
            paused=pauses.pop("", None),
            paused_types=pauses,
            totals=totals,
            overdue=sum(number for number, _ in overdue),
            overdue_since=min((at for _, at in overdue if at is not None), default=0),
            dead_since=died or 0,
            unarchived=unarchived,
        )

    def times(self, queues: Sequence[str]) -> dict[str, dict[str, Times]]:
        with self.database.read() as connection:
            return read_times(connection, queues)

    def series(self, queue: str, since: int) -> dict[int, dict[str, int]]:
        series: dict[int, dict[str, int]] = {}
        sql = "SELECT minute, event, n FROM minutes WHERE queue = ? AND minute >= ? ORDER BY minute"
        with self.database.read() as connection:
            for minute, event, n in connection.execute(sql, (queue, since - since % 60_000)):
                series.setdefault(minute, {})[event] = n
        return series

    def samples(self, queues: Sequence[str], width: int, *, types: bool = False) -> dict[str, Sampled]:
        count, now = types_of if types else all_of, self.now()
        with self.database.read() as connection:
            return {
                queue: Sampled(
                    read(text_of(connection, queue, fields_of(width)[types])), count(totals_of(connection, queue)), now
                )
                for queue in queues
            }

    def queues(self) -> list[str]:
        with self.database.read() as connection:
            return [queue for (queue,) in connection.execute("SELECT queue FROM queues ORDER BY queue")]

    def last_runs(self, queue: str) -> dict[str, int]:
        with self.database.read() as connection:
            return dict(connection.execute("SELECT schedule, at FROM fired WHERE queue = ?", (queue,)).fetchall())

    def describe(self) -> dict[str, str]:
        with self.database.read() as connection:
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            size = pages * connection.execute("PRAGMA page_size").fetchone()[0]
        if self.database.in_memory:
            persistence = "none: everything is lost when the process ends"
        else:
            persistence = f"{mode}, synchronous=NORMAL: survives kill -9; a power cut may lose the last moment"
        return {
            "kind": "memory" if self.database.in_memory else "embedded",
            "version": f"SQLite {sqlite3.sqlite_version}",
            "address": self.database.path,
            "persistence": persistence,
            "eviction": "none",
            "size": counted(size, "byte"),
            "bytes": str(size),
            "journal_mode": str(mode),
            **_disk(self.database.path, in_memory=self.database.in_memory),
        }


def _disk(path: str, *, in_memory: bool) -> dict[str, str]:
    """Return whether this process may write the file, and whether its disk has room for the next changes."""
    if in_memory:
        return {}
    try:
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return {"writable": "no", "disk_full": "unknown"}
    room = disk.f_bavail * disk.f_frsize
    return {
        "room": str(room),
        "writable": "yes" if os.access(path, os.W_OK) else "no",
        "disk_full": "yes" if room < _LEAST_ROOM else "no",
    }


_ORDERS = {
    State.QUEUED: ("state = 'queued'", ("lane", "rank", "seq")),
    State.BLOCKED: ("state = 'blocked'", ("blocked_by", "rank", "seq")),
}


def attempts_of(lines: str | None) -> tuple[Attempt, ...]:
    """Return the attempts log as values."""
    return tuple(Attempt(*json.loads(line)) for line in lines.split("\n")) if lines else ()


def shown_result(result: bytes | None, run_ms: int) -> bytes | None:
    """Return the result: none is stored for None, and a job without a run time has not returned anything."""
    return result if result or run_ms < 0 else b"null"


def job_info(found: tuple[Any, ...]) -> JobInfo:
    """Return one row of `INFO` as a value."""
    id, queue, record, state, failures, crashes, at, token, holder, result, run_ms, checkin, lines, *rest = found
    parked_at, since = rest
    return JobInfo(
        id, queue, record, State(state), failures, crashes, at or 0, token, holder or "", shown_result(result, run_ms),
        run_ms, json.loads(checkin) if checkin else None, attempts_of(lines), parked_at,
        0 if state in NOT_READY else since,
    )  # fmt: skip


def short(info: JobInfo) -> JobInfo:
    """Return the job as lists show it."""
    return info._replace(result=info.result and info.result[:_SHORT], attempts=info.attempts[-1:])
