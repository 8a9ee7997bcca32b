"""The outcome of one attempt: made by the executor, settled by settle.py, announced by announce.py."""

from __future__ import annotations

from typing import NamedTuple

from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.core.outcome import Outcome
from django_jobs.core.values import PLAIN, Claim, Controls


class Attempted(NamedTuple):
    """One attempt that ended.  `running` and `definition` are None if the job never started."""

    claim: Claim
    outcome: Outcome
    name: str = ""
    running: RunningJob | None = None
    definition: JobDefinition | None = None
    #: the exception, or text if it was raised in a process that no longer exists.
    error: BaseException | str | None = None
    run_ms: int = -1
    wait_ms: int = 0
    controls: Controls = PLAIN
