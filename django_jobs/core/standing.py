"""Where a waiting job stands among others.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from django_jobs.core.values import State


class Standing(NamedTuple):
    """What a store knows, besides JobInfo, of why a job has not started."""

    #: the state to which the rest belongs; None for any but queued, blocked and running.
    state: State | None = None
    #: jobs that run in its queue, with killed ones that may still run.
    running: int = 0
    #: what a blocked job waits for: "limit" | "pause" | "stop" | "unknown".
    blocked_by: str = ""
    #: slots of its concurrency limit that are taken, and the ids of some jobs that have them.
    held: int = 0
    holders: tuple[str, ...] = ()
    #: jobs that wait for one of these slots.
    behind: int = 0
    #: "shared" | "alone" | "suspect": where a queued job waits.
    lane: str = ""
    #: jobs that will be claimed from that lane before it, and how many of these have a higher priority.
    ahead: int = 0
    higher: int = 0
    #: for a running job: when the lease of its holder ends (ms); 0 = it has none.
    lease_ends: int = 0
    #: who may still run the killed attempt of a job, which is dead, or blocked until that has ended.
    stopping: str = ""
