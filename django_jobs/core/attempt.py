"""The outcome of one attempt: made by the executor, settled by settle.py, announced by announce.py; and its line."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.core.outcome import Outcome
from django_jobs.core.values import FINISHED, PLAIN, Attempt, Claim, Controls, JobInfo

#: Begins each of two texts behind a traceback.  No text of an attempt has this character (`clean` in core/outcome.py).
_MARK = "\x1f"


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

    Those before a person let the job run again do not, and neither does one whose number came again after a hand-back.
    0 is the number of a line about no attempt."""
    following: float = inf if info.state in FINISHED else info.earlier + info.failures + info.crashes + 1
    found: list[bool] = []
    for attempt in reversed(info.attempts):
        found.append(info.earlier < attempt.attempt < following)
        following = min(following, attempt.attempt or inf)
    return found[::-1]


def packed(attempt: Attempt) -> Attempt:
    """Return an attempt for the log: release and frame stand behind the traceback.  Version 0.2.0 refuses a line that
    has a field more, and the page of an archived job with it."""
    if not (attempt.release or attempt.frame):
        return attempt
    parts = (attempt.traceback, attempt.release, attempt.frame)
    return attempt._replace(traceback=_MARK.join(parts), release="", frame="")


def unpacked(attempt: Attempt) -> Attempt:
    """Return an attempt from the log, with release and frame."""
    if _MARK not in attempt.traceback:
        return attempt
    trace, release, frame, *_ = (*attempt.traceback.split(_MARK), "")
    return attempt._replace(traceback=trace, release=release, frame=frame)


#: The fields of a line: those that version 0.2.0 knows.
LINE = Attempt._fields[:-2]
