"""The part of the store contract for workflows and batches; docs/contributing/internals.md says how they stand in it.

The end of a job that belongs to a workflow, and the note that it ended, are one step in the job's queue.  All other
methods here touch one workflow, which may be on another server than any of its queues.

Errors: StoreUnavailable, StoreFull, StoreCorrupt, StoreMisconfigured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from django_jobs.core.values import State

#: Most steps of a workflow, and most jobs of a batch.
MOST_STEPS, MOST_JOBS = 10_000, 100_000
#: Notes that one call reads, and ends that one call applies.
NOTES_AT_ONCE, ENDS_AT_ONCE = 32, 1000
#: Fields of a workflow that one call reads.
FIELDS_AT_ONCE = 1000
#: How a step ended, if it was deleted: it can never end in another way.  And: it waits or runs (again).
DELETED, LIVE = "deleted", "live"


class Note(NamedTuple):
    """Jobs of one workflow that ended, or wait again after their end, as one step of their queue noted them."""

    #: names the note for `drop_notes`.
    key: bytes | int
    workflow: str
    #: grows with every note of the queue.
    number: int
    #: a finished State, DELETED or LIVE.
    state: str
    #: ids, each with the JSON text of the result if a later step needs it (b"" for None), else None.
    jobs: Sequence[tuple[str, bytes | None]]


class End(NamedTuple):
    """What a note means for one step of its workflow."""

    #: the step's number as text; in a batch the id of the job.
    step: str
    #: that of the note; of an end that was found without a note: "=" and the number of the step's last note.
    number: int | str
    state: str
    result: bytes | None = None


class Ready(NamedTuple):
    """A step that may start now, or was started before by the same note."""

    step: str
    #: as it was stored in the field "d:<step>"; None: too long for this answer, the caller reads it.
    what: bytes | None
    #: step → its result, for the steps that this one names.
    results: Mapping[str, bytes]


class Followed(NamedTuple):
    """What `end_steps` returns."""

    #: "running" | "succeeded" | "stopped" | "cancelled"; "" = there is no such workflow.
    state: str
    #: steps that were started and have not ended.
    live: int
    ready: Sequence[Ready]


class WorkflowStore(ABC):
    """Workflows and batches: one set of fields (text → bytes) each, changed by whole steps only."""

    # -- the notes in a queue ----------------------------------------------------

    @abstractmethod
    def unread(self, queues: Sequence[str]) -> list[str]:
        """Return those queues that have notes.  One round trip for many queues."""

    @abstractmethod
    def notes(self, queue: str) -> list[Note]:
        """Return the oldest notes, at most NOTES_AT_ONCE.  They stay until `drop_notes`."""

    @abstractmethod
    def drop_notes(self, queue: str, keys: Collection[bytes | int]) -> None:
        """Remove notes, after everything that follows from them is in the store."""

    @abstractmethod
    def void(self, queue: str, ids: Sequence[str]) -> dict[str, State | None]:
        """Return those of these jobs that are not in the store, each with the state in which it ended, None if it was
        never there or this is not known.  From now on, none of these ids can be enqueued, for
        `StoreOptions.idempotency` ms."""

    # -- one workflow ------------------------------------------------------------

    @abstractmethod
    def add_workflow(self, id: str, fields: Mapping[str, bytes | int], *, check_in: int) -> None:
        """Store a new workflow, all of it or nothing; a second call with this id changes nothing.  The first check is
        due in `check_in` ms."""

    @abstractmethod
    def workflow_fields(self, id: str, names: Sequence[str]) -> list[bytes | None]:
        """Return the values of these fields."""

    @abstractmethod
    def fields_of_many(self, ids: Sequence[str], names: Sequence[str]) -> list[list[bytes | None]]:
        """Return the values of these fields of each of these workflows, in as few round trips as the store can."""

    @abstractmethod
    def workflow_part(self, id: str, prefix: str, position: str, limit: int) -> tuple[list[tuple[str, bytes]], str]:
        """Return some of the fields whose names begin with `prefix`, without it, and their values: about `limit`, in
        one round trip; and the position of the next part, "" if this is the last.  `position` "" is the beginning.
        A field that is there all the time is in one part at least.  Raises ValueError if `position` is none."""

    def workflow_scan(self, id: str, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield all fields whose names begin with `prefix`, as `workflow_part` returns them."""
        position = ""
        while True:
            part, position = self.workflow_part(id, prefix, position, FIELDS_AT_ONCE)
            yield from part
            if not position:
                return

    @abstractmethod
    def mark_started(self, id: str, callbacks: Sequence[str] = ()) -> None:
        """Note that all first steps of a workflow are in the store, so that their records need not be kept here; or
        that these callbacks of a batch are, so that nobody enqueues them again."""

    @abstractmethod
    def end_steps(self, id: str, ends: Sequence[End], verb: str = "") -> Followed:
        """Apply ends, at most ENDS_AT_ONCE, and return what may start because of them.  An end that was applied before
        changes nothing, but what it started is returned again: enqueueing an id twice has no effect.

        `verb`: "close": the batch gets no more jobs.  "stop": what has not started will never start."""

    @abstractmethod
    def join_batch(self, id: str, queue: str, ids: Sequence[str], new: Mapping[str, bytes | int]) -> str:
        """Note that these jobs, at most MAX_BATCH, will be enqueued as jobs of the batch.  `new`: its fields if it is
        not there yet; {} if it must be.  Returns "", or why they do not belong to it: "gone", "done", "cancelled",
        "full"."""

    @abstractmethod
    def leave_batch(self, id: str, queue: str, ids: Sequence[str]) -> None:
        """Take back `join_batch` for jobs that were not enqueued after all."""

    # -- all workflows -----------------------------------------------------------

    @abstractmethod
    def workflow_ids(self, offset: int = 0, limit: int = 50) -> list[str]:
        """Return the ids of workflows and batches, newest first.  Some may have gone meanwhile."""

    @abstractmethod
    def count_workflows(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def workflows_due(self, limit: int, again_in: int) -> list[str]:
        """Return the ids of those whose check is due.  They are due again in `again_in` ms."""

    @abstractmethod
    def check_workflow_in(self, id: str, ms: int) -> None:
        """Check this workflow in `ms`."""

    @abstractmethod
    def forget_workflow(self, id: str) -> None:
        """Delete it with all its fields."""
