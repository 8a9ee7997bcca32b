"""SqliteStore: workflows and batches.  lua/workflow_end.lua and workflow_join.lua do the same on Redis.

Long because the two are compared side by side: what an end means for a workflow is one piece there, and here."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from django_jobs.core.values import State
from django_jobs.stores.contract.workflows import (
    MOST_JOBS,
    NOTES_AT_ONCE,
    End,
    Followed,
    Note,
    Ready,
    WorkflowStore,
)
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.database.remembered import is_remembered, remember, remembered

_BAD = frozenset({"dead", "cancelled", "expired", "deleted"})
_ENDED = _BAD | {"succeeded"}
#: Every version of SQLite accepts this many values in one statement.
_MOST_VALUES = 900
#: bytes of what may start, in one answer.
_MOST_BYTES = 1024 * 1024
#: Rows of notes that one call reads.
_ROWS = NOTES_AT_ONCE * 32
_CALLBACKS = ("on_dead", "on_complete", "on_success")


class SqliteWorkflows(SqlitePart, WorkflowStore):
    """See stores/contract/workflows.py for the contract of each method."""

    # -- the notes in a queue ----------------------------------------------------

    def unread(self, queues: Sequence[str]) -> list[str]:
        with self.database.read() as connection:
            found = {queue for (queue,) in connection.execute("SELECT DISTINCT queue FROM notes")}
        return [queue for queue in queues if queue in found]

    def notes(self, queue: str) -> list[Note]:
        sql = "SELECT note, workflow, state, id, result FROM notes WHERE queue = ? ORDER BY note LIMIT ?"
        with self.database.read() as connection:
            found = connection.execute(sql, (queue, _ROWS)).fetchall()
        return [Note(note, workflow, note, state, [(id, result)]) for note, workflow, state, id, result in found]

    def drop_notes(self, queue: str, keys: Collection[bytes | int]) -> None:
        with self.database.write() as connection:
            connection.executemany("DELETE FROM notes WHERE note = ?", [(key,) for key in keys])

    def void(self, queue: str, ids: Sequence[str]) -> dict[str, State | None]:
        gone: dict[str, State | None] = {}
        with self.writing(queue) as move:
            for id in ids:
                if move.row(id) is None:
                    known = remembered(move, id) if is_remembered(move, id) else None
                    gone[id] = known and known.state
                    if gone[id] is None:
                        remember(move, id, "void")
        return gone

    # -- one workflow ------------------------------------------------------------

    def add_workflow(self, id: str, fields: Mapping[str, bytes | int], *, check_in: int) -> None:
        with self.database.write() as connection:
            now = self.now()
            if _Fields(connection, id).get("kind") is None:
                _add(connection, id, now, now + check_in)
                _Fields(connection, id).put_all({**fields, "touched": now})

    def workflow_fields(self, id: str, names: Sequence[str]) -> list[bytes | None]:
        with self.database.read() as connection:
            found = _Fields(connection, id).read(names)
        return [found.get(name) for name in names]

    def fields_of_many(self, ids: Sequence[str], names: Sequence[str]) -> list[list[bytes | None]]:
        with self.database.read() as connection:
            found = [_Fields(connection, id).read(names) for id in ids]
        return [[fields.get(name) for name in names] for fields in found]

    def workflow_part(self, id: str, prefix: str, position: str, limit: int) -> tuple[list[tuple[str, bytes]], str]:
        sql = (
            "SELECT field, value FROM workflow_fields WHERE workflow = ? AND field > ? AND field < ?"
            " ORDER BY field LIMIT ?"
        )
        with self.database.read() as connection:
            found = connection.execute(sql, (id, prefix + position, prefix + "\uffff", limit)).fetchall()
        part = [(field.removeprefix(prefix), _bytes(value)) for field, value in found]
        return part, part[-1][0] if len(part) == limit else ""

    def mark_started(self, id: str, callbacks: Sequence[str] = ()) -> None:
        self.end_steps(id, [End(callback, 0, "") for callback in callbacks], "started")

    def end_steps(self, id: str, ends: Sequence[End], verb: str = "") -> Followed:
        with self.database.write() as connection:
            return _Step(_Fields(connection, id), self.now()).follow(ends, verb)

    def join_batch(self, id: str, queue: str, ids: Sequence[str], new: Mapping[str, bytes | int]) -> str:
        with self.database.write() as connection:
            return _join(connection, _Fields(connection, id), queue, ids, new, self.now())

    def leave_batch(self, id: str, queue: str, ids: Sequence[str]) -> None:
        with self.database.write() as connection:
            fields = _Fields(connection, id)
            known = fields.read([f"s:{each}" for each in ids])
            left = [each for each in dict.fromkeys(ids) if known.get(f"s:{each}", b"").startswith(b"0:live:")]
            fields.put_all({f"s:{each}": f"0:none:{queue}".encode() for each in left})
            fields.add({"total": -len(left), "live": -len(left)})

    # -- all workflows -----------------------------------------------------------

    def workflow_ids(self, offset: int = 0, limit: int = 50) -> list[str]:
        sql = "SELECT id FROM workflows ORDER BY created DESC, id DESC LIMIT ? OFFSET ?"
        with self.database.read() as connection:
            return [id for (id,) in connection.execute(sql, (limit, offset))]

    def count_workflows(self) -> int:
        with self.database.read() as connection:
            return int(connection.execute("SELECT count(*) FROM workflows").fetchone()[0])

    def workflows_due(self, limit: int, again_in: int) -> list[str]:
        now = self.now()
        sql = "SELECT id FROM workflows WHERE due <= ? ORDER BY due LIMIT ?"
        with self.database.read() as connection:
            if not connection.execute(sql, (now, 1)).fetchone():
                return []
        with self.database.write() as connection:
            ids = [id for (id,) in connection.execute(sql, (now, limit))]
            again = [(now + again_in, id) for id in ids]
            connection.executemany("UPDATE workflows SET due = ? WHERE id = ?", again)
        return ids

    def check_workflow_in(self, id: str, ms: int) -> None:
        with self.database.write() as connection:
            connection.execute("UPDATE workflows SET due = ? WHERE id = ?", (self.now() + ms, id))

    def forget_workflow(self, id: str) -> None:
        with self.database.write() as connection:
            connection.execute("DELETE FROM workflow_fields WHERE workflow = ?", (id,))
            connection.execute("DELETE FROM workflows WHERE id = ?", (id,))


class _Fields:
    """The fields of one workflow, inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, id: str) -> None:
        self.connection, self.id = connection, id

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        prefix = names[0][:2] if len(names) > _MOST_VALUES else ""
        if prefix.endswith(":") and all(name.startswith(prefix) for name in names):
            # Nearly all fields of one kind: one walk through them takes a tenth of the time of as many searches.
            sql = "SELECT field, value FROM workflow_fields WHERE workflow = ? AND field >= ? AND field < ?"
            everything = self.connection.execute(sql, (self.id, prefix, prefix + "\uffff"))
            wanted = set(names)
            return {field: _bytes(value) for field, value in everything if field in wanted}
        for first in range(0, len(names), _MOST_VALUES):
            some = names[first : first + _MOST_VALUES]
            marks = ", ".join("?" * len(some))
            sql = f"SELECT field, value FROM workflow_fields WHERE workflow = ? AND field IN ({marks})"
            found |= {field: _bytes(value) for field, value in self.connection.execute(sql, (self.id, *some))}
        return found

    def get(self, name: str) -> bytes | None:
        return self.read([name]).get(name)

    def put_all(self, fields: Mapping[str, bytes | int]) -> None:
        sql = "INSERT OR REPLACE INTO workflow_fields VALUES (?, ?, ?)"
        self.connection.executemany(sql, [(self.id, name, value) for name, value in fields.items()])

    def drop(self, names: Iterable[str]) -> None:
        sql = "DELETE FROM workflow_fields WHERE workflow = ? AND field = ?"
        self.connection.executemany(sql, [(self.id, name) for name in names])

    def add(self, counters: Mapping[str, int]) -> None:
        """Add to fields that are numbers."""
        were = self.read(list(counters))
        self.put_all({name: int(were.get(name, 0)) + by for name, by in counters.items() if by})


class _Step:
    """One call of `end_steps`.  Each part is explained in lua/workflow_end.lua."""

    def __init__(self, fields: _Fields, now: int) -> None:
        self.fields, self.now = fields, now
        known = fields.read(["kind", "closed", "stopped", "x", "wanting"])
        self.kind, self.following = known.get("kind"), known.get("x", b"")
        self.closed, self.stopped = "closed" in known, "stopped" in known
        self.wanting = "wanting" in known
        self.is_batch = self.kind == b"batch"
        self.delta: Counter[str] = Counter()
        self.final: dict[str, bytes | int | None] = {}
        self.nexts: dict[str, list[str]] = {}
        #: step that waits → how many of those before it succeeded now, and ended otherwise.
        self.touched: dict[str, list[int]] = {}
        self.again: list[str] = []
        self.ready: dict[str, None] = {}

    def follow(self, ends: Sequence[End], verb: str) -> Followed:
        if self.kind is None:
            return Followed("", 0, [])
        first_ends = self._apply(ends, verb)
        if not self.is_batch and first_ends:
            self._let_go(first_ends)
        if verb == "stop":
            self.stopped = True
            self.final["stopped"] = b"1"
        elif verb == "started":
            self.final["started"] = b"1"
        while self.touched:
            wave, self.touched = self.touched, {}
            waits = self.fields.read([f"l:{step}" for step in wave])
            for step, change in wave.items():
                told = self.final.get(f"l:{step}", waits.get(f"l:{step}"))
                if isinstance(told, bytes):
                    self._look_at(step, told, *change)
        changed = bool(self.final) or any(self.delta.values())
        self.fields.put_all({name: value for name, value in self.final.items() if value is not None})
        self.fields.drop([name for name, value in self.final.items() if value is None])
        self.fields.add({name: by for name, by in self.delta.items() if by})
        if verb == "close" and not self.closed:
            self.fields.put_all({"closed": b"1"})
            self.closed = changed = True
        return self._stand(verb, changed)

    def _apply(self, ends: Sequence[End], verb: str) -> list[str]:
        stands = self.fields.read([f"s:{end.step}" for end in ends])
        first_ends = []
        for step, number, state, result in ends:
            stand = stands.get(f"s:{step}")
            last, old, rest = 0, "live", ""
            if stand is not None:
                said, old, *more = stand.decode().split(":", 2)
                last, rest = int(said), "".join(f":{each}" for each in more)
            if verb == "started":
                self.final[f"b:{step}"] = b"2"
                continue
            expected = int(number[1:]) if isinstance(number, str) else None
            if self.is_batch and (stand is None or old == "none"):
                continue
            late = int(number) <= last if expected is None else expected != last or old == state
            if old == "succeeded" or late:
                self.again.append(step)
                continue
            value = f"{last if expected is not None else number}:{state}{rest}".encode()
            stands[f"s:{step}"] = self.final[f"s:{step}"] = value
            self._moves(step, old, state)
            if state in _ENDED:
                first_ends.append(step)
                if state == "succeeded" and result is not None:
                    self.final[f"r:{step}"] = result
        return first_ends

    def _next_of(self, step: str) -> list[str]:
        if step not in self.nexts:
            text = self.fields.get(f"x:{step}") or self.following
            self.nexts[step] = [each for each in text.decode().split(",") if each.isdigit()]
        return self.nexts[step]

    def _moves(self, step: str, old: str, new: str) -> None:
        if old == new:
            return
        self.delta[old] -= 1
        self.delta[new] += 1
        good, ill = (new == "succeeded") - (old == "succeeded"), (new in _BAD) - (old in _BAD)
        if not self.is_batch and (good or ill):
            for following in self._next_of(step):
                change = self.touched.setdefault(following, [0, 0])
                change[0] += good
                change[1] += ill

    def _let_go(self, steps: Sequence[str]) -> None:
        self.final |= dict.fromkeys(f"d:{step}" for step in steps)
        if not self.wanting:
            return
        users: Counter[str] = Counter()
        for name, wants in self.fields.read([f"w:{step}" for step in steps]).items():
            self.final[name] = None
            users.update(wants.decode().split(","))
        were = self.fields.read([f"u:{step}" for step in users])
        for step, by in users.items():
            left = int(were.get(f"u:{step}", 0)) - by
            self.final[f"u:{step}"] = left if left > 0 else None
            if left <= 0:
                self.final[f"r:{step}"] = None

    def _look_at(self, step: str, told: bytes, good: int, ill: int) -> None:
        first, second, policy = told.decode().split(":")
        left, bad, off = int(first) - good, int(second) + ill, policy.endswith("!")
        if policy[0] == "c" and (bad > 0) != off:
            off = not off
            self.final[f"s:{step}"] = b"0:cancelled" if off else None
            self._moves(step, *(("waiting", "cancelled") if off else ("cancelled", "waiting")))
        if not self.stopped and not off and (left == 0 or (policy[0] == "r" and left == bad)):
            self.final[f"l:{step}"] = None
            self._moves(step, "waiting", "live")
            self.ready[step] = None
        else:
            self.final[f"l:{step}"] = f"{left}:{bad}:{policy[0]}{'!' if off else ''}".encode()

    def _stand(self, verb: str, changed: bool) -> Followed:
        names = ("total", "live", "succeeded", "dead", "ended", "firsts", "started")
        known = self.fields.read(names)
        total, live, succeeded, dead = (int(known.get(name, 0)) for name in names[:4])
        over = live == 0 and (not self.is_batch or self.closed or self.stopped)
        if self.stopped:
            state = "cancelled"
        else:
            state = "running" if not over else "succeeded" if succeeded == total else "stopped"
        if not self.stopped:
            self._start_followers(verb, dead > 0, over, state == "succeeded")
        if changed:
            self.fields.put_all({"state": state.encode(), "touched": self.now})
            has_ended = over and state != "running"
            if has_ended and "ended" not in known:
                self.fields.put_all({"ended": self.now})
            elif "ended" in known and not has_ended:
                self.fields.drop(["ended"])
            if "firsts" in known and "started" in known and verb != "started":
                self.fields.drop(["firsts", *(f"f{i}" for i in range(int(known["firsts"])))])
        return Followed(state, live, list(self._told()))

    def _start_followers(self, verb: str, is_dead: bool, over: bool, all_succeeded: bool) -> None:
        """The callbacks of a batch, each once; and what these notes started before."""
        if self.is_batch:
            for name, is_due in zip(_CALLBACKS, (is_dead, over, all_succeeded), strict=True):
                known = self.fields.read([f"d:{name}", f"b:{name}"])
                begun = known.get(f"b:{name}")
                again = begun == b"1" and (self.again or verb == "close")
                if f"d:{name}" in known and ((is_due and begun is None) or again):
                    self.fields.put_all({f"b:{name}": b"1"})
                    self.ready[name] = None
            return
        for step in self.again:
            for following in self._next_of(step):
                known = self.fields.read([f"l:{following}", f"d:{following}"])
                if known.keys() == {f"d:{following}"}:
                    self.ready[following] = None

    def _told(self) -> Iterator[Ready]:
        size = 0
        for step in self.ready:
            if size >= _MOST_BYTES:
                yield Ready(step, None, {})
                continue
            known = self.fields.read([f"d:{step}", f"w:{step}"])
            wanted = [each for each in known.get(f"w:{step}", b"").decode().split(",") if each]
            found = self.fields.read([f"r:{each}" for each in wanted])
            results = {name.removeprefix("r:"): value for name, value in found.items()}
            what = known.get(f"d:{step}")
            size += len(what or b"") + sum(map(len, results.values()))
            yield Ready(step, what, results)


def _join(
    connection: sqlite3.Connection,
    fields: _Fields,
    queue: str,
    ids: Sequence[str],
    new: Mapping[str, bytes | int],
    now: int,
) -> str:
    known = fields.read(["kind", "closed", "stopped", "total", "live", "ended"])
    total, live = int(known.get("total", 0)), int(known.get("live", 0))
    members = fields.read([f"s:{id}" for id in ids])
    joined = [id for id in dict.fromkeys(ids) if members.get(f"s:{id}", b"0:none:").startswith(b"0:none:")]
    if known.get("kind", b"batch") != b"batch":
        return "gone"
    if not joined and "kind" in known:
        return ""
    if "kind" not in known and not new:
        return "gone"
    if "stopped" in known:
        return "cancelled"
    if "closed" in known and live == 0:
        return "done"
    if total + len(joined) > MOST_JOBS:
        return "full"
    if "kind" not in known:
        _add(connection, fields.id, now, now + 60_000)
        fields.put_all(new)
    fields.put_all({f"s:{id}": f"0:live:{queue}".encode() for id in joined})
    fields.add({"total": len(joined), "live": len(joined)})
    fields.put_all({"state": b"running", "touched": now})
    if "ended" in known:
        fields.drop(["ended"])
    return ""


def _add(connection: sqlite3.Connection, id: str, now: int, due: int) -> None:
    connection.execute("INSERT OR IGNORE INTO workflows VALUES (?, ?, ?)", (id, now, due))


def _bytes(value: bytes | str | int) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
