"""A waiting job as tests see it, and its text in failed assertions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import JobInfo, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import InvalidArguments
from django_jobs.formatting import call_text
from django_jobs.serialization.arguments import load
from django_jobs.serialization.record import decode


class EnqueuedJob(NamedTuple):
    """One waiting job.  `at` is the time when it is due; None = now."""

    id: str
    name: str
    queue: str
    args: list[Any]
    kwargs: dict[str, Any]
    state: State
    priority: int
    at: datetime | None
    handle: JobHandle
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        when = f" at {self.at.isoformat()}" if self.at else ""
        return f"{call_text(self.name, self.args, self.kwargs)} in {self.queue!r}{when} ({self.state})"


def seen(info: JobInfo) -> EnqueuedJob:
    """Return a stored job as an EnqueuedJob."""
    job = decode(info.id, info.queue, info.record)
    args, kwargs = load(job.args)
    at = datetime.fromtimestamp(info.at / 1000, UTC) if info.state in (State.SCHEDULED, State.RETRY) else None
    handle = JobHandle(info.id, job.name, info.queue)
    handle.show(info)
    priority = job.controls.priority
    return EnqueuedJob(info.id, job.name, info.queue, args, kwargs, info.state, priority, at, handle, job.tags)


def same_call(definition: JobDefinition, job: EnqueuedJob, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether both are equal calls, however the arguments were passed."""
    args, kwargs = definition.as_sent(args, kwargs)
    try:
        expected, actual = definition.bind(args, kwargs), definition.bind(job.args, job.kwargs)
    except InvalidArguments:
        return (args, kwargs) == (job.args, job.kwargs)
    expected.apply_defaults()
    actual.apply_defaults()
    return expected.arguments == actual.arguments
