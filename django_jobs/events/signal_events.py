"""What the receivers of one signal are told of one job: sent here, or put into words for a process that may wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from django_jobs import signals
from django_jobs.core import registry
from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.exceptions import UnknownJob

logger = logging.getLogger("django_jobs.worker")


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


def is_wanted(notice: Notice) -> bool:
    """Does anybody listen to it?"""
    if getattr(signals, notice.signal).receivers:
        return True
    definition = _definition_of(notice)
    return definition is not None and notice.signal in definition.told_of


def _definition_of(notice: Notice) -> JobDefinition | None:
    if notice.definition is None:
        with suppress(UnknownJob):
            return registry.get(notice.name)
    return notice.definition


def send(notice: Notice) -> None:
    """Call the receivers, here and now."""
    definition = _definition_of(notice)
    getattr(signals, notice.signal).send_robust(
        definition,
        job_id=notice.id,
        name=notice.name,
        queue=notice.queue,
        attempt=notice.attempt,
        job=notice.job,
        **notice.more,
    )
    if definition is not None and notice.signal in definition.told_of:
        try:
            definition.tell(notice)
        except Exception:
            logger.exception("%s of job %s (%s) was not passed on", notice.signal, notice.id, notice.name)


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
