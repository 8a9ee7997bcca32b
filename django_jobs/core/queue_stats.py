"""The numbers of one queue, as stores return them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: A scheduled job or a retry that has been due for longer than this (ms) is overdue.
OVERDUE = 60_000


class Pause(NamedTuple):
    """The pause of a queue or job type.  `until` in ms; 0 = until resumed."""

    reason: str = ""
    until: int = 0
    since: int = 0
    #: who paused it; "" if that is not known.
    by: str = ""


#: Between reason and person in the stored text.  Older versions show both as the reason.
_BY = "\0"


def signed(reason: str, by: str) -> str:
    """Return a pause's reason and the person as one text, as stores keep it."""
    return f"{reason.replace(_BY, ' ')}{_BY}{by.replace(_BY, ' ')}" if by else reason.replace(_BY, " ")


def read_pause(text: str, until: int, since: int) -> Pause:
    """Return a pause; `text` is what `signed` returned."""
    reason, _, by = text.partition(_BY)
    return Pause(reason, until, since, by)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Numbers of one queue at one moment.

    `latency` is how long (ms, by the store's clock) the oldest job that could run now has been waiting, whatever its
    priority.  It counts from the last of these: enqueued, due, let in, revived or handed back (JobInfo.since); but
    not from before the last pause of the queue ended.  Scheduled jobs and retries that are due count.  It is 0 if no
    job could run: blocked jobs cannot run, and no job can while the queue is paused."""

    queue: str
    counts: dict[str, int] = field(default_factory=dict)
    latency: int = 0
    paused: Pause | None = None
    paused_types: dict[str, Pause] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    #: scheduled jobs and retries that have been due for longer than OVERDUE, also while the queue is paused.
    overdue: int = 0
    #: ms: when the first of them was due; 0 if there is none.
    overdue_since: int = 0
    #: ms: when the oldest of the dead jobs died; 0 if there is none.
    dead_since: int = 0
    #: finished jobs that wait for the archiver.
    unarchived: int = 0
    #: as `latency`, also while the queue is paused.
    age: int = 0
