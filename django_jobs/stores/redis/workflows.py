"""Workflows and batches, each one hash in a slot of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import StoreError, StoreFull, StoreUnavailable
from django_jobs.serialization.checked import read_number
from django_jobs.stores.redis.connection.entries import read_ended, texts
from django_jobs.stores.redis.connection.part import LOOKED_INTO_AT_ONCE, WORKFLOWS
from django_jobs.stores.redis.connection.scripts import Argument, load
from django_jobs.stores.redis.lists import Lists
from django_jobs.stores.values.sizes import MAX_BYTES, in_batches
from django_jobs.stores.values.workflows import MOST_JOBS, NOTES_AT_ONCE, READ_WITHIN, End, Followed, Note, ReadyStep

#: Fields in one command.
_FIELDS = 1000


class Workflows(Lists):
    """Workflows and batches: one set of fields (text → bytes) each, changed by whole steps only.

    The end of a job that belongs to a workflow, and the note that it ended, are one step in the job's queue.  All other
    methods here touch one workflow, which may be on another server than any of its queues."""

    # -- the notes in a queue ----------------------------------------------------

    def unread(self, queues: Sequence[str]) -> list[str]:
        """Return those queues that have notes or calls.  One round trip for many queues."""
        found = self._read_over("unread", queues, at_once=LOOKED_INTO_AT_ONCE)
        return [queue for queue, (number,) in found.items() if number]

    def take_notes(
        self, queue: str, reader: str, followed: Sequence[Note] = (), most: int = NOTES_AT_ONCE
    ) -> list[Note]:
        """Remove the notes that this reader has followed, and return the next, `most` at most: none if there are no
        more, or if another reader has its turn.

        A reader has its turn from its first call until a call returns no notes, or until it has made no call for
        READ_WITHIN ms.  Then another reader gets the same notes; what follows from them may be done twice."""
        args: list[Argument] = [reader, READ_WITHIN, most, MAX_BYTES, *(note.key for note in followed)]
        return [read_note(text) for text in self._run("take_notes", queue, *args)]

    def end_calls(self, queue: str, position: int = 0) -> tuple[list[tuple[str, JobInfo]], int]:
        """Return some of the ends after which a job is still to be enqueued, and the position of the next part, 0 if
        this is the last.  They stay until `drop_end_calls`.

        Each is a key, "number:state:id", and what was known of the job then.  The state is "deleted" if the job was
        deleted before it ended, and "on_dead" in the entry of the job that `on_dead` names."""
        key = self.keys.of(queue)["end_calls"]
        reply, flat = self.transport.command("HSCAN", key, position, "COUNT", NOTES_AT_ONCE)
        found = [(flat[i].decode(errors="replace"), read_ended(queue, flat[i + 1])) for i in range(0, len(flat), 2)]
        return found, int(reply)

    def void(self, queue: str, ids: Sequence[str]) -> dict[str, State | None]:
        """Return those of these jobs that are not in the store, each with the state in which it ended, None if it was
        never there or this is not known.  A job that retries have moved is looked for where it went.  From now on, none
        of these ids can be enqueued, for `StoreOptions.idempotency` ms, and for an hour at least."""
        flat = texts(self._run("void", queue, self.options.idempotency, *ids)) if ids else []
        gone = {flat[i]: State(flat[i + 1]) if flat[i + 1] else None for i in range(0, len(flat), 2)}
        for id in self._moves(queue, [id for id in ids if id not in gone]):  # retries were in other queues
            last = self._last_queue(queue, id)
            if last != queue and self._find_from(queue, id) is None:
                gone |= self.void(last, [id])
        return gone

    # -- one workflow ------------------------------------------------------------

    def add_workflow(self, id: str, fields: Mapping[str, bytes | int], *, check_in: int) -> None:
        """Store a new workflow, all of it or nothing; a second call with this id changes nothing.  The first check is
        due in `check_in` ms."""
        # First the index: what breaks off in the middle is found there, and deleted.
        self._index("add", id, check_in)
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

        `verb`: "close": the batch gets no more jobs.  "stop": what has not started will never start.  "drop": the
        same for the steps that are named; nothing happens to those that have started."""
        (followed,) = self._apply_ends([(id, ends)], verb)
        return followed

    def end_steps_of_many(self, ends: Sequence[tuple[str, Sequence[End]]]) -> list[Followed | StoreError]:
        """Do `end_steps` for each of these workflows and its ends, ENDS_AT_ONCE at most, in one call; on a Cluster, in
        one for each.  If the store refuses one, the error takes the place of its answer."""
        if len(ends) == 1 or self.transport.spans:
            try:
                return [*self._apply_ends(ends)]
            except (StoreUnavailable, StoreFull):
                raise
            except StoreError as error:
                if len(ends) == 1:
                    return [error]
        # One by one.  Those that the refused call has reached return again what they returned then.
        return [found for each in ends for found in self.end_steps_of_many([each])]

    def _apply_ends(self, ends: Sequence[tuple[str, Sequence[End]]], verb: str = "") -> list[Followed]:
        """The number of the call is kept with the first of the workflows."""
        keys = [self.keys.workflow(id) for id, _ in ends]
        args = [part for _, some in ends for part in _arguments_of(some)]
        replies = self._call(load("workflow_end"), keys, WORKFLOWS + ends[0][0], [verb, *args])
        return [_read_followed(reply) for reply in replies]

    def join_batch(self, id: str, queue: str, ids: Sequence[str], new: Mapping[str, bytes | int]) -> str:
        """Note that these jobs, at most MAX_BATCH, will be enqueued as jobs of the batch.  `new`: its fields if it is
        not there yet; {} if it must be.  Returns "", or why they do not belong to it: "gone", "done", "cancelled",
        "full"."""
        given: list[Argument] = [part for item in new.items() for part in item]
        if new and id not in self._indexed:
            self._index("add", id, 60_000)
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
        return texts(self._run_in_fleet("workflows_due", ["workflow_checks"], limit, again_in))

    def check_workflows_in(self, times: Sequence[tuple[str, int]]) -> None:
        """Check each of these workflows in so many ms."""
        if times:
            self._index("check", *(part for each in times for part in each))

    def forget_workflow(self, id: str) -> None:
        """Delete it with all its fields."""
        self.transport.command("UNLINK", self.keys.workflow(id))
        self._index("drop", id, 0)

    def _on(self, id: str, script: str, *args: Argument) -> Any:
        return self._call(load(script), [self.keys.workflow(id)], WORKFLOWS + id, args)

    def _index(self, verb: str, *times: str | int) -> None:
        self._run_in_fleet("workflow_index", ["workflows", "workflow_checks"], verb, *times)


def _arguments_of(ends: Sequence[End]) -> list[Argument]:
    """Return the ends of one workflow in groups of one note each, as lua/workflows/workflow_end.lua takes them."""
    groups, args = 0, list[Argument]()
    for (number, state, noted), group in groupby(ends, lambda end: (end.number, end.state, end.result is not None)):
        some = [*group]
        groups += 1
        args += (number, state, "r" if noted else "-", len(some))
        for end in some:
            args += (end.step,) if end.result is None else (end.step, end.result)
    return [groups, *args]


def _read_followed(reply: Any) -> Followed:
    state, live, ready = reply
    return Followed(state.decode(), int(live), [_read_ready(entry) for entry in _in_threes(ready)])


def read_note(text: bytes) -> Note:
    """Read an entry of `notes`, as lua/lib/ends/notes.lua writes it."""
    head, *lines = text.split(b"\n")
    number, _, state, workflow = ([*head.decode(errors="replace").split(":", 3), "", "", ""])[:4]
    jobs: list[tuple[str, bytes | None]] = []
    for line in lines:
        id, tab, result = line.partition(b"\t")
        jobs.append((id.decode(errors="replace"), result if tab else None))
    return Note(text[:20], workflow, read_number(number.encode()), state, jobs)


def _in_threes(flat: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for i in range(0, len(flat), 3):
        yield flat[i : i + 3]


def _read_ready(entry: Sequence[Any]) -> ReadyStep:
    step, what, given = entry
    results = {given[i].decode(): given[i + 1] for i in range(0, len(given), 2)}
    return ReadyStep(step.decode(), what, results)
