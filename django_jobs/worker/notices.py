"""What the receivers of one signal are told of one job: sent here, or put into words for a process that may wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from django_jobs import registry, signals
from django_jobs.context import RunningJob
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import UnknownJob


class Notice(NamedTuple):
    """One signal about one job."""

    #: its name in signals.py
    signal: str
    name: str
    queue: str
    id: str
    attempt: int
    #: what this signal tells beyond the above.
    more: Mapping[str, Any]
    #: these stay in the process: elsewhere the definition is looked up by name, and nobody has seen the job run.
    definition: JobDefinition | None = None
    job: RunningJob | None = None


#: Who sees to it that the receivers hear of it.
Deliver = Callable[[Notice], object]


def has_receivers(signal: str) -> bool:
    """Does anybody listen to it?"""
    return bool(getattr(signals, signal).receivers)


def send(notice: Notice) -> None:
    """Call the receivers, here and now."""
    definition = notice.definition
    if definition is None:
        with suppress(UnknownJob):
            definition = registry.get(notice.name)
    getattr(signals, notice.signal).send_robust(
        definition,
        job_id=notice.id,
        name=notice.name,
        queue=notice.queue,
        attempt=notice.attempt,
        job=notice.job,
        **notice.more,
    )


def to_words(notice: Notice) -> dict[str, Any]:
    """For JSON.  An error is text already, or the TimeoutError that a parent makes and never raises: its text says it
    all."""
    more, error = dict(notice.more), notice.more.get("error")
    if isinstance(error, TimeoutError):
        more["error"] = {"TimeoutError": str(error)}
    return {**notice._asdict(), "more": more, "definition": None, "job": None}


def from_words(words: Mapping[str, Any]) -> Notice:
    """What `to_words` was given."""
    notice = Notice(**words)
    error = notice.more.get("error")
    if isinstance(error, dict):
        return notice._replace(more={**notice.more, "error": TimeoutError(error["TimeoutError"])})
    return notice
