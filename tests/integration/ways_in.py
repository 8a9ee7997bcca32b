"""Every call that enqueues, once: name → what to do with a job (an awaitable where the call is async)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from asgiref.sync import async_to_sync

from django_jobs import JobHandle
from django_jobs.enqueueing.submit import enqueue_by_name
from tests.integration.sample_jobs import receipt

LATER = datetime(2090, 1, 1, tzinfo=UTC)

_PLAIN: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda job: job.enqueue(7),
    "enqueue_in": lambda job: job.enqueue_in(60, 7),
    "enqueue_at": lambda job: job.enqueue_at(LATER, 7),
    "try_enqueue": lambda job: job.try_enqueue(7),
    "enqueue_many": lambda job: job.enqueue_many([(7,)]),
    "enqueue_unique": lambda job: job.enqueue_unique(7),
    "enqueue_unique_in": lambda job: job.enqueue_unique_in(60, 7),
    "enqueue_unique_at": lambda job: job.enqueue_unique_at(LATER, 7),
    "enqueue_unique_by_key": lambda job: job.enqueue_unique_by_key("k", 7),
    "enqueue_unique_by_key_in": lambda job: job.enqueue_unique_by_key_in("k", 60, 7),
}
_ASYNC: dict[str, Callable[[Any], Any]] = {
    "aenqueue": lambda job: job.aenqueue(7),
    "aenqueue_in": lambda job: job.aenqueue_in(60, 7),
    "aenqueue_at": lambda job: job.aenqueue_at(LATER, 7),
    "atry_enqueue": lambda job: job.atry_enqueue(7),
    "aenqueue_many": lambda job: job.aenqueue_many([(7,)]),
    "aenqueue_unique": lambda job: job.aenqueue_unique(7),
    "aenqueue_unique_in": lambda job: job.aenqueue_unique_in(60, 7),
    "aenqueue_unique_at": lambda job: job.aenqueue_unique_at(LATER, 7),
    "aenqueue_unique_by_key": lambda job: job.aenqueue_unique_by_key("k", 7),
    "aenqueue_unique_by_key_in": lambda job: job.aenqueue_unique_by_key_in("k", 60, 7),
}
CALLS = {**_PLAIN, **_ASYNC}
#: The calls, and the ways that others take: with options, and by the name alone (command, API, schedules).
WAYS_IN: dict[str, Callable[[Any], Any]] = {
    **CALLS,
    # An id of its own each time: one that was used stands for that one job, also when it is deleted.
    "using": lambda job: receipt.using(job_id=f"mine-{uuid4()}").enqueue(7),
    "by_name": lambda job: enqueue_by_name("sample.receipt", [7]),
}


def _one(answer: Any) -> JobHandle:
    handle = answer[0] if isinstance(answer, list) else answer
    assert isinstance(handle, JobHandle)
    return handle


def enqueue(way_in: str, job: Any = receipt) -> JobHandle:
    """Enqueue that way, from sync code."""
    answer = WAYS_IN[way_in](job)
    return _one(async_to_sync(_awaited)(answer) if inspect.isawaitable(answer) else answer)


async def aenqueue(way_in: str, job: Any = receipt) -> JobHandle:
    """Enqueue that way, from async code: what is sync is called as it is."""
    answer = WAYS_IN[way_in](job)
    return _one(await answer if inspect.isawaitable(answer) else answer)


async def _awaited(answer: Any) -> Any:
    return await answer
