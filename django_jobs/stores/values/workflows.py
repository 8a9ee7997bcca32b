"""Workflows and batches: what the store takes and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Most steps of a workflow, and most jobs of a batch.
MOST_STEPS, MOST_JOBS = 10_000, 100_000
#: Notes that one call reads, and ends that one call applies.
NOTES_AT_ONCE, ENDS_AT_ONCE = 200, 1000
#: ms after which another reader follows the notes of a queue, if the one whose turn it is makes no call.
READ_WITHIN = 3_000
#: How a step ended, if it was deleted: it can never end in another way.  And: it waits or runs (again).
DELETED, LIVE = "deleted", "live"


class Note(NamedTuple):
    """Jobs of one workflow that ended, or wait again after their end, as one step of their queue noted them."""

    #: names the note for `take_notes`: its beginning, which has its number.
    key: bytes
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


class ReadyStep(NamedTuple):
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
    ready: Sequence[ReadyStep]
