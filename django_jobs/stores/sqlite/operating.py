"""SqliteStore: the methods by which people change jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_jobs.core.queue_stats import signed
from django_jobs.core.values import FINISHED, MAY_HAVE_STARTED, PLAIN, WAITING, Attempt, Controls, Edited, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.record import decode
from django_jobs.stores.contract.operating import OperatingStore, check_finished
from django_jobs.stores.contract.queues import QueueStore
from django_jobs.stores.contract.workflows import DELETED
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.claiming import admit_resumed
from django_jobs.stores.sqlite.database.editing import edit
from django_jobs.stores.sqlite.database.endings import is_ending, keep_slot
from django_jobs.stores.sqlite.database.rows import Row
from django_jobs.stores.sqlite.database.transaction import Transaction

_REVIVABLE = frozenset(set(State) - {State.QUEUED, State.RUNNING, State.SUCCEEDED})
#: jobs of a type that come back in the call that ends its pause.
_RESUMED = 500


class SqliteOperating(SqlitePart, OperatingStore, QueueStore):
    """See stores/contract/operating.py and queues.py for the contract of each method."""

    def cancel(self, queue: str, ids: Sequence[str]) -> dict[str, State]:
        states: dict[str, State] = {}
        with self.writing(queue) as move:
            for row in _existing(move, ids):
                state = State(row.state)
                if state in WAITING:
                    state = State.CANCELLED
                    move.move(row, state)
                elif state is State.RUNNING:
                    move.execute("UPDATE jobs SET stop = ? WHERE job = ?", (move.now, row.job))
                states[row.id] = state
        return states

    def revive(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        record: bytes | None = None,
        at: int | None = None,
        start_again: bool = True,
    ) -> list[str]:
        if (record is not None or at is not None) and len(ids) != 1:
            raise ValueError(f"A new record or a time goes with one job, not {len(ids)}.")

        def to_queued(move: Transaction, row: Row) -> bool:
            if row.state not in _REVIVABLE or (at is not None and (row.at or 0) != at):
                return False
            if not start_again and row.at_most_once and row.state in MAY_HAVE_STARTED:
                return False
            if record is not None:
                row = move.replace_record(row, record, _controls(row.id, queue, record))
            changes: dict[str, int | None] = {"run_ms": -1, "expires_at": None}  # a person wants it to run
            if row.state in FINISHED:
                changes |= {"failures": 0, "crashes": 0, "parked_at": 0}
            if is_ending(move, row.id):
                changes |= {"lane": int(row.alone or row.at_most_once), "seq": move.number(), "since": move.now}
                move.move(row, State.BLOCKED, blocked_by=f"ending:{row.id}", **changes)
            else:
                move.move(row, State.QUEUED, **changes)
            if row.lock and row.lock_mode != "period":
                move.lock(row.lock, row.id)
            return True

        return self._each(queue, ids, to_queued)

    def edit(self, queue: str, id: str, record: bytes, *, was: bytes) -> Edited:
        with self.writing(queue) as move:
            row = move.row(id)
            if row is None:
                return Edited.GONE
            stored = move.record(row)
            if stored == record:
                return Edited.EDITED
            if row.state not in WAITING:
                return Edited.MOVED
            if stored != was:
                return Edited.CHANGED
            controls = _controls(id, queue, record)
            holder = move.locker(controls.unique) if controls.unique and controls.unique != row.lock else None
            if holder is not None and getattr(holder, "id", holder) != id:
                return Edited.DUPLICATE
            edit(move, row, record, controls)
            return Edited.EDITED

    def delete(self, queue: str, ids: Sequence[str]) -> list[str]:
        def away(move: Transaction, row: Row) -> bool:
            if row.state == State.RUNNING or is_ending(move, row.id):
                return False
            if row.state != State.SUCCEEDED:
                move.note_step(row, DELETED)
            move.remove(row)
            return True

        return self._each(queue, ids, away)

    def kill(self, queue: str, ids: Sequence[str], reason: str) -> list[str]:
        def to_dead(move: Transaction, row: Row) -> bool:
            if row.state in FINISHED:
                return False
            if row.state == State.RUNNING:
                keep_slot(move, row)
            attempt = row.failures + row.crashes + 1 if row.state == State.RUNNING else 0
            move.log(row, Attempt(attempt, "killed", move.now, worker=row.holder or "", error=reason))
            move.move(row, State.DEAD)
            return True

        return self._each(queue, ids, to_dead)

    def reschedule(self, queue: str, ids: Sequence[str], run_at: int) -> list[str]:
        def to_scheduled(move: Transaction, row: Row) -> bool:
            if row.state not in WAITING:
                return False
            move.move(row, State.RETRY if row.state == State.RETRY else State.SCHEDULED, at=run_at)
            return True

        return self._each(queue, ids, to_scheduled)

    def pause(self, queue: str, *, name: str | None = None, reason: str = "", until: int = 0, by: str = "") -> None:
        with self.writing(queue) as move:
            values = (queue, name or "", until, move.now, signed(reason, by))
            move.execute("INSERT OR REPLACE INTO pauses VALUES (?, ?, ?, ?, ?)", values)

    def resume(self, queue: str, *, name: str | None = None) -> None:
        with self.writing(queue) as move:
            if name:
                move.execute("DELETE FROM pauses WHERE queue = ? AND name = ?", (queue, name))
            else:  # its jobs can run from now on, or since the pause ended by itself
                sql = "UPDATE pauses SET until = ? WHERE queue = ? AND name = '' AND (until = 0 OR until > ?)"
                move.execute(sql, (move.now, queue, move.now))
            # Makes waiting workers check again, as a moved job would.
            move.execute("UPDATE counts SET changes = changes + 1 WHERE queue = ? AND state = 'queued'", (queue,))
            if name:
                move.admit_type(name, _RESUMED)
            admit_resumed(move, move.pauses())

    def ids(self, queue: str, state: State, cursor: str = "", limit: int = 1000) -> tuple[list[str], str]:
        sql = "SELECT job, id FROM jobs WHERE queue = ? AND state = ? AND job > ? ORDER BY job LIMIT ?"
        with self.database.read() as connection:
            found = connection.execute(sql, (queue, state, int(cursor or 0), limit)).fetchall()
        return [id for _, id in found], str(found[-1][0]) if len(found) == limit else ""

    def restore(self, queue: str, id: str, record: bytes, state: State) -> bool:
        check_finished(state)
        with self.writing(queue) as move:
            if move.row(id) is not None:
                return False
            move.note_step(move.add(id, record, _controls(id, queue, record), state, move.now), state)
            return True

    def _each(self, queue: str, ids: Sequence[str], act: Callable[[Transaction, Row], bool]) -> list[str]:
        with self.writing(queue) as move:
            return [row.id for row in _existing(move, ids) if act(move, row)]


def _existing(move: Transaction, ids: Sequence[str]) -> list[Row]:
    # An id that is given twice is one job: the second time, its row would be out of date.
    return [row for id in dict.fromkeys(ids) if (row := move.row(id)) is not None]


def _controls(id: str, queue: str, record: bytes) -> Controls:
    try:
        return decode(id, queue, record).controls
    except CorruptRecord:
        # The job is kept nevertheless; the worker that claims it reports the fault.
        return PLAIN
