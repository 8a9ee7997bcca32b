"""Workflows and batches, each one hash in a slot of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from django_jobs.core.values import State
from django_jobs.stores.redis.connection.entries import read_number, texts
from django_jobs.stores.redis.connection.part import LOOKED_INTO_AT_ONCE, Part
from django_jobs.stores.redis.connection.scripts import Argument, load
from django_jobs.stores.values.sizes import in_batches
from django_jobs.stores.values.workflows import MOST_JOBS, NOTES_AT_ONCE, End, Followed, Note, Ready

#: Fields in one command.
_FIELDS = 1000


class Workflows(Part):
    """Workflows and batches: one set of fields (text → bytes) each, changed by whole steps only.

    The end of a job that belongs to a workflow, and the note that it ended, are one step in the job's queue.  All other
    methods here touch one workflow, which may be on another server than any of its queues."""

    # -- the notes in a queue ----------------------------------------------------

    def unread(self, queues: Sequence[str]) -> list[str]:
        """Return those queues that have notes.  One round trip for many queues."""
        found = self._read_over("unread", queues, at_once=LOOKED_INTO_AT_ONCE)
        return [queue for queue, (number,) in found.items() if number]

    def notes(self, queue: str) -> list[Note]:
        """Return the oldest notes, at most NOTES_AT_ONCE.  They stay until `drop_notes`."""
        found = self.transport.command("LRANGE", self.keys.of(queue)["notes"], 0, NOTES_AT_ONCE - 1)
        return [_read_note(text) for text in found]

    def drop_notes(self, queue: str, keys: Collection[bytes | int]) -> None:
        """Remove notes, after everything that follows from them is in the store."""
        for key in keys:  # by value: others may have read the same notes; they are at the head of the list
            self.transport.command("LREM", self.keys.of(queue)["notes"], 1, key)

    def void(self, queue: str, ids: Sequence[str]) -> dict[str, State | None]:
        """Return those of these jobs that are not in the store, each with the state in which it ended, None if it was
        never there or this is not known.  From now on, none of these ids can be enqueued, for
        `StoreOptions.idempotency` ms."""
        flat = texts(self._run("void", queue, self.options.idempotency, *ids)) if ids else []
        return {flat[i]: State(flat[i + 1]) if flat[i + 1] else None for i in range(0, len(flat), 2)}

    # -- one workflow ------------------------------------------------------------

    def add_workflow(self, id: str, fields: Mapping[str, bytes | int], *, check_in: int) -> None:
        """Store a new workflow, all of it or nothing; a second call with this id changes nothing.  The first check is
        due in `check_in` ms."""
        # First the index: what breaks off in the middle is found there, and deleted.
        self._index("add", check_in, id)
        whole = dict(fields)
        last = {"kind": whole.pop("kind")}
        items = list(whole.items())
        for batch in in_batches(items, lambda item: len(item[1]) if isinstance(item[1], bytes) else 8, _FIELDS):
            if len(whole) <= _FIELDS and len(batch) == len(whole):
                batch, last = [*batch, *last.items()], {}
            self._build(id, batch)
        if last:
            self._build(id, list(last.items()))

    def _build(self, id: str, items: Sequence[tuple[str, bytes | int]]) -> None:
        self._on(id, "workflow_build", *(part for item in items for part in item))

    def workflow_fields(self, id: str, names: Sequence[str]) -> list[bytes | None]:
        """Return the values of these fields."""
        found: list[bytes | None] = []
        for first in range(0, len(names), _FIELDS):
            found += self.transport.command("HMGET", self.keys.workflow(id), *names[first : first + _FIELDS])
        return found

    def fields_of_many(self, ids: Sequence[str], names: Sequence[str]) -> list[list[bytes | None]]:
        """Return the values of these fields of each of these workflows, in one round trip."""
        return self.transport.pipeline([("HMGET", self.keys.workflow(id), *names) for id in ids])

    def workflow_part(self, id: str, prefix: str, position: str, limit: int) -> tuple[list[tuple[str, bytes]], str]:
        """Return some of the fields whose names begin with `prefix`, without it, and their values: about `limit`, in
        one round trip; and the position of the next part, "" if this is the last.  `position` "" is the beginning.
        A field that is there all the time is in one part at least.  Raises ValueError if `position` is none."""
        if position and not (position.isascii() and position.isdigit() and len(position) <= 20):
            raise ValueError(f"{position!r:.100} is no position")
        command = ("HSCAN", self.keys.workflow(id), int(position or 0), "MATCH", f"{prefix}*", "COUNT", limit)
        reply, flat = self.transport.command(*command)
        part = [(flat[i].decode(errors="replace").removeprefix(prefix), flat[i + 1]) for i in range(0, len(flat), 2)]
        return part, str(int(reply)) if int(reply) else ""

    def workflow_scan(self, id: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield all fields whose names begin with `prefix`, as `workflow_part` returns them."""
        position = ""
        while True:
            part, position = self.workflow_part(id, prefix, position, _FIELDS)
            yield from part
            if not position:
                return

    def mark_started(self, id: str, callbacks: Sequence[str] = ()) -> None:
        """Note that all first steps of a workflow are in the store, so that their records need not be kept here; or
        that these callbacks of a batch are, so that nobody enqueues them again."""
        self.end_steps(id, [End(callback, 0, "") for callback in callbacks], "started")

    def end_steps(self, id: str, ends: Sequence[End], verb: str = "") -> Followed:
        """Apply ends, at most ENDS_AT_ONCE, and return what may start because of them.  An end that was applied before
        changes nothing, but what it started is returned again: enqueueing an id twice has no effect.

        `verb`: "close": the batch gets no more jobs.  "stop": what has not started will never start."""
        args: list[Argument] = [verb]
        for step, number, state, result in ends:
            args += (step, number, state, "" if result is None else b"=" + result)
        state, live, ready = self._on(id, "workflow_end", *args)
        return Followed(state.decode(), int(live), [_read_ready(entry) for entry in _in_threes(ready)])

    def join_batch(self, id: str, queue: str, ids: Sequence[str], new: Mapping[str, bytes | int]) -> str:
        """Note that these jobs, at most MAX_BATCH, will be enqueued as jobs of the batch.  `new`: its fields if it is
        not there yet; {} if it must be.  Returns "", or why they do not belong to it: "gone", "done", "cancelled",
        "full"."""
        given: list[Argument] = [part for item in new.items() for part in item]
        if new and id not in self._indexed:
            self._index("add", 60_000, id)
            self._indexed = frozenset([*list(self._indexed)[-1000:], id])
        args = (MOST_JOBS, "join", queue, len(new), *given, *ids)
        return str(self._on(id, "workflow_join", *args).decode())

    _indexed: frozenset[str] = frozenset()

    def leave_batch(self, id: str, queue: str, ids: Sequence[str]) -> None:
        """Take back `join_batch` for jobs that were not enqueued after all."""
        self._on(id, "workflow_join", MOST_JOBS, "leave", queue, 0, *ids)

    # -- all workflows -----------------------------------------------------------

    def workflow_ids(self, offset: int = 0, limit: int = 50) -> list[str]:
        """Return the ids of workflows and batches, newest first.  Some may have gone meanwhile."""
        if limit <= 0:
            return []
        key = self.keys.fleet("workflows")
        return texts(self.transport.command("ZREVRANGE", key, offset, offset + limit - 1))

    def count_workflows(self) -> int:
        """Return how many there are."""
        return int(self.transport.command("ZCARD", self.keys.fleet("workflows")))

    def workflows_due(self, limit: int, again_in: int) -> list[str]:
        """Return the ids of those whose check is due.  They are due again in `again_in` ms."""
        args = (self._clock(), limit, again_in)
        return texts(self.transport.run(load("workflows_due"), [self.keys.fleet("workflow_checks")], args))

    def check_workflow_in(self, id: str, ms: int) -> None:
        """Check this workflow in `ms`."""
        self._index("check", ms, id)

    def forget_workflow(self, id: str) -> None:
        """Delete it with all its fields."""
        self.transport.command("UNLINK", self.keys.workflow(id))
        self._index("drop", 0, id)

    def _on(self, id: str, script: str, *args: Argument) -> Any:
        return self.transport.run(load(script), [self.keys.workflow(id)], (self._clock(), *args))

    def _index(self, verb: str, ms: int, *ids: str) -> None:
        keys = [self.keys.fleet("workflows"), self.keys.fleet("workflow_checks")]
        self.transport.run(load("workflow_index"), keys, (self._clock(), verb, ms, *ids))


def _read_note(text: bytes) -> Note:
    """Read an entry of `notes`, as lua/lib/notes.lua writes it."""
    head, *lines = text.split(b"\n")
    number, _, state, workflow = ([*head.decode(errors="replace").split(":", 3), "", "", ""])[:4]
    jobs: list[tuple[str, bytes | None]] = []
    for line in lines:
        id, tab, result = line.partition(b"\t")
        jobs.append((id.decode(errors="replace"), result if tab else None))
    return Note(text, workflow, read_number(number.encode()), state, jobs)


def _in_threes(flat: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for i in range(0, len(flat), 3):
        yield flat[i : i + 3]


def _read_ready(entry: Sequence[Any]) -> Ready:
    step, what, given = entry
    results = {given[i].decode(): given[i + 1] for i in range(0, len(given), 2)}
    return Ready(step.decode(), what, results)
