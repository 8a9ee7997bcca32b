"""The outcome of one attempt: made by the executor, settled by settle.py, announced by announce.py."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.core.outcome import Outcome
from django_jobs.core.values import FINISHED, PLAIN, Claim, Controls, JobInfo


class Attempted(NamedTuple):
    """One attempt that ended; read by name.  `running` and `definition` are None if the job never started."""

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


def counted(info: JobInfo) -> list[bool]:
    """Tell for each line of the attempts log whether that attempt counts towards `max_attempts`.

    Its number shows it: it was given out again where the attempt does not count, as after a person has let the job run
    again.  The numbers of those that count are unique and increase.  0 is the number of a line about no attempt.
    """
    following: float = inf if info.state in FINISHED else info.failures + info.crashes + 1
    found: list[bool] = []
    for attempt in reversed(info.attempts):
        found.append(0 < attempt.attempt < following)
        following = min(following, attempt.attempt or inf)
    return found[::-1]
