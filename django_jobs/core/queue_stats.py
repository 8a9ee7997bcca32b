"""The numbers of one queue, as stores tell them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Pause(NamedTuple):
    """A closed queue or job type.  `until` in ms; 0 = until resumed."""

    reason: str = ""
    until: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Numbers of one queue at one moment.

    `latency` = for how long (ms, by the store's clock) the oldest job waits that could run now, whatever its priority:
    since it was enqueued, due, let in, revived or handed back (JobInfo.since), the last of these; but not before the
    last pause of the queue ended.  Scheduled jobs and retries that are due count.  0 where no job could run: blocked
    ones cannot, nor can any while the queue is paused."""

    queue: str
    counts: dict[str, int] = field(default_factory=dict)
    latency: int = 0
    paused: Pause | None = None
    paused_types: dict[str, Pause] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
