"""SqliteStore: reports the ends of jobs.  Each waiting process checks after every change of the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from django_jobs.core.values import FINISHED
from django_jobs.stores.contract.ends import AT_ONCE, EndsStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.database.transaction import Transaction

#: ms for which the store remembers that a job's end is waited for; callers that still wait renew it earlier.
_KNOWN_FOR = 60_000
#: Minimum seconds between two checks: a busy file changes all the time.
_PAUSE = 0.01
_ENDED = ", ".join(f"'{state.value}'" for state in sorted(FINISHED))


class SqliteEnds(SqlitePart, EndsStore):
    """See stores/contract/ends.py for the contract of each method."""

    def watch_ends(self, queue: str, ids: Sequence[str]) -> tuple[Any, list[str]]:
        with self.writing(queue) as move:
            for id in ids:
                found = f"SELECT job, ? FROM jobs WHERE queue = ? AND id = ? AND state NOT IN ({_ENDED})"
                move.execute(f"INSERT OR REPLACE INTO waiters {found}", (move.now + _KNOWN_FOR, queue, id))
            return None, _over(move, ids)

    def next_ends(
        self, queue: str, after: Any, waited: Callable[[], list[str]], timeout: float
    ) -> tuple[list[str], Any]:
        if after is not None:
            self.database.wait(after, timeout)
            time.sleep(_PAUSE)
        after, ids, over = self.database.mark(), waited(), []
        with self.database.read() as connection:
            for start in range(0, len(ids), AT_ONCE):
                over += _over(self.reading(queue, connection), ids[start : start + AT_ONCE])
        return over, after


def _over(view: Transaction, ids: Sequence[str]) -> list[str]:
    """Return the ids of jobs that have ended or are not in the store."""
    some = ", ".join("?" * len(ids))
    sql = f"SELECT id FROM jobs WHERE queue = ? AND id IN ({some}) AND state NOT IN ({_ENDED})"
    going_on = {id for (id,) in view.execute(sql, (view.queue, *ids))}
    return [id for id in ids if id not in going_on]


def is_waited_for(move: Transaction) -> Callable[[int], bool]:
    """Return a function that tells whether the end of a job (its number) is waited for.  If none is, one query."""
    if not move.value("SELECT 1 FROM waiters LIMIT 1"):
        return lambda _: False
    return lambda job: move.execute("DELETE FROM waiters WHERE job = ?", (job,)).rowcount > 0
