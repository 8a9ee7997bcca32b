"""What happened to a job and when, from what the store keeps of it.  Pure: no clock, no store.

All times are the store's, in ms.  The store keeps the last lines of the attempts log, and of the present attempt when
it began and since when the job could run.  It keeps no hand-backs, snoozes and pauses: they are parts of a wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django_jobs.core.attempt import counted
from django_jobs.core.values import FINISHED, Attempt, Job, JobInfo, State
from django_jobs.serialization.payloads import ready_ms


class TimelineItem(NamedTuple):
    """A moment (`end` is `start`) or a span of a job's life.

    Kinds of moments: "enqueued", "attempt" (of an unknown length), "note" (a line about no attempt), "ended".  Kinds of
    spans: "waited", "held" (it could not run, or a worker handed it back), "unclear" (it waited, and ran for an unknown
    time), "attempt", "succeeded"; and, not over: "waits", "runs", "blocked", "due" (`end` is when it may run)."""

    kind: str
    start: int
    end: int
    attempt: Attempt | None = None
    #: the attempt counts towards max_attempts.
    counts: bool = True


def timeline(info: JobInfo, job: Job, now: int) -> list[TimelineItem]:
    """Return the parts of the job's life in their order, without gaps; `now` ends those that are not over (ms)."""
    parts = [TimelineItem("enqueued", job.enqueued_at, job.enqueued_at)]
    for attempt, counts in zip(info.attempts, counted(info), strict=True):
        parts += _attempt(parts[-1].end, attempt, counts)
    return [*parts, *_present(info, job, parts[-1].end, now)]


def unkept(info: JobInfo) -> int:
    """Return how many attempts that count have no line any more in the log."""
    return max(0, info.failures + info.crashes - sum(counted(info)))


def _attempt(since: int, attempt: Attempt, counts: bool) -> Iterator[TimelineItem]:
    end = max(since, attempt.at)
    if attempt.run_ms < 0:
        yield from _span("unclear" if attempt.attempt else "waited", since, end)
        yield TimelineItem("attempt" if attempt.attempt else "note", end, end, attempt, counts)
        return
    # The worker measured how long it ran; the store noted when it heard of the end.  It did not begin before `since`.
    began = max(since, end - attempt.run_ms)
    yield from _span("waited", since, began)
    yield TimelineItem("attempt", began, end, attempt, counts)


def _present(info: JobInfo, job: Job, since: int, now: int) -> Iterator[TimelineItem]:
    """Yield what followed the last line of the log."""
    now = max(now, since)
    if info.state in {State.QUEUED, State.RUNNING}:
        until = max(since, info.at) if info.state is State.RUNNING else now
        ready = min(max(since, ready_ms(info, job)), until)
        yield from _span("held", since, ready)
        if info.state is State.QUEUED:
            yield TimelineItem("waits", ready, until)
        else:
            yield from _span("waited", ready, until)
            yield TimelineItem("runs", until, max(now, until))
    elif info.state is State.BLOCKED:
        yield TimelineItem("blocked", since, now)
    elif info.state in {State.SCHEDULED, State.RETRY}:
        yield TimelineItem("due", since, max(since, info.at))
    elif info.state is State.SUCCEEDED:
        end = max(since, info.at)
        began = max(since, end - info.run_ms) if info.run_ms >= 0 else end
        yield from _span("waited" if info.run_ms >= 0 else "unclear", since, began)
        yield TimelineItem("succeeded", began, end)
    elif info.state in FINISHED:
        end = max(since, info.at)
        yield from _span("waited", since, end)
        yield TimelineItem("ended", end, end)


def _span(kind: str, start: int, end: int) -> Iterator[TimelineItem]:
    if end > start:
        yield TimelineItem(kind, start, end)
