"""One signal about one job: sent in this process, or converted to JSON for a process that may wait for receivers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from django_jobs import signals
from django_jobs.core import registry
from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition

logger = logging.getLogger("django_jobs.worker")


class SignalEvent(NamedTuple):
    """One signal about one job."""

    #: the signal's name in signals.py.
    signal: str
    name: str
    queue: str
    id: str
    attempt: int
    #: further keyword arguments of this signal.
    more: Mapping[str, Any]
    #: not sent to other processes: there the definition is looked up by name, and `job` is None.
    definition: JobDefinition | None = None
    job: RunningJob | None = None


#: A function that sends an event to its receivers, or passes it on to be sent.
Deliver = Callable[[SignalEvent], object]


def is_wanted(signal_event: SignalEvent) -> bool:
    """Does the signal have a receiver for this job?"""
    if getattr(signals, signal_event.signal).receivers:
        return True
    definition = _definition_of(signal_event)
    return definition is not None and signal_event.signal in definition.told_of


def _definition_of(signal_event: SignalEvent) -> JobDefinition | None:
    if signal_event.definition is None:
        return registry.known(signal_event.name)
    return signal_event.definition


def send(signal_event: SignalEvent) -> None:
    """Call the receivers at once, on this thread."""
    definition = _definition_of(signal_event)
    getattr(signals, signal_event.signal).send_robust(
        definition,
        job_id=signal_event.id,
        name=signal_event.name,
        queue=signal_event.queue,
        attempt=signal_event.attempt,
        job=signal_event.job,
        **signal_event.more,
    )
    if definition is not None and signal_event.signal in definition.told_of:
        try:
            definition.tell(signal_event)
        except Exception:
            logger.exception(
                "%s of job %s (%s) was not passed on", signal_event.signal, signal_event.id, signal_event.name
            )


def to_words(signal_event: SignalEvent) -> dict[str, Any]:
    """Return the event in a form for JSON.  Its error is a text, or the TimeoutError that a parent makes and never
    raises: the text of that error is enough."""
    more, error = dict(signal_event.more), signal_event.more.get("error")
    if isinstance(error, TimeoutError):
        more["error"] = {"TimeoutError": str(error)}
    return {**signal_event._asdict(), "more": more, "definition": None, "job": None}


def from_words(words: Mapping[str, Any]) -> SignalEvent:
    """Return the event that `to_words` was given, without `definition` and `job`."""
    signal_event = SignalEvent(**words)
    error = signal_event.more.get("error")
    if isinstance(error, dict):
        return signal_event._replace(more={**signal_event.more, "error": TimeoutError(error["TimeoutError"])})
    return signal_event
