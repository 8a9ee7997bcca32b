"""One remote job type: its row, and the job definition that is made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from django.db import close_old_connections

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.outcome import SnoozeFor
from django_jobs.remote.models import RemoteJobType
from django_jobs.remote.push import push

#: Delay (ms) before a pull job that a Django worker claimed is offered again: its own worker may claim it by then.
LEAVE_FOR = 5_000


class RemoteType(NamedTuple):
    """One row of RemoteJobType.  `timeout` is in seconds; without a `url`, workers fetch its jobs."""

    name: str
    queue: str
    delivery_strategy: str
    attempts: int
    concurrency: int
    timeout: int
    url: str
    credentials: str
    #: posts; None = no limit.
    per_minute: int | None = None


def read_rows() -> list[RemoteType]:
    """Read the rows from the database; if an event loop is running, on a thread, as Django requires."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _rows()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_rows_and_close).result()


def _rows() -> list[RemoteType]:
    return [RemoteType(*row) for row in RemoteJobType.objects.values_list(*RemoteType._fields)]


def _rows_and_close() -> list[RemoteType]:
    try:
        return _rows()
    finally:
        close_old_connections()


def django_queues() -> set[str]:
    """Return the queues in which jobs for `runworkers` can be expected, whatever remote types exist."""
    return {definition.queue for definition in registry.all_definitions()} | {"default"}


def pull_only(types: Iterable[RemoteType]) -> frozenset[str]:
    """Return the queues that hold only jobs of pull types.  In other queues, each side puts back the other's jobs.
    Nobody fetches from a queue that has left the settings."""
    queues: dict[bool, set[str]] = {True: set(), False: set()}
    for kind in types:
        queues[bool(kind.url)].add(kind.queue)
    return frozenset(filter(get_settings().queues.__contains__, queues[False] - queues[True] - django_queues()))


def make_definition(kind: RemoteType) -> JobDefinition:
    """Return the job definition of a remote type, for the registry."""
    return JobDefinition(
        _pusher(kind) if kind.url else _leave,
        name=kind.name,
        queue=kind.queue,
        max_attempts=1 if kind.delivery_strategy == "at_most_once" else kind.attempts,
        delivery=kind.delivery_strategy,
        max_concurrency=kind.concurrency,
        api=True,
        # The lease of its claim is the time limit of a remote attempt; no process of ours has to be limited.
        timeout=None,
    )


def _pusher(kind: RemoteType) -> Callable[[Any], Any]:
    def deliver(data: Any = None) -> Any:
        return push(kind.url, kind.credentials, kind.timeout, data, kind.per_minute)

    return deliver


def _leave(data: Any = None) -> SnoozeFor:
    """Put the job back: only workers that fetch over HTTP can run it.  It has not started here, so a job delivered
    at most once may wait, too.  Therefore not `raise Snooze`, which would end such a job."""
    return SnoozeFor(LEAVE_FOR, begun=False)
