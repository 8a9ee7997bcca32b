"""One remote job type: its row, and the job definition that is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from django.db import close_old_connections

from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.outcome import SnoozeFor
from django_jobs.remote.models import RemoteJobType
from django_jobs.remote.push import push

#: Milliseconds until a pull job that a Django worker met is offered again: its worker may be reading its queue by then.
LEAVE_FOR = 5_000


class RemoteType(NamedTuple):
    """One row of RemoteJobType.  `timeout` is seconds; without a `url` its jobs are fetched."""

    name: str
    queue: str
    delivery_strategy: str
    attempts: int
    concurrency: int
    timeout: int
    url: str
    credentials: str


def read_rows() -> list[RemoteType]:
    """Ask the database; where an event loop runs, on a thread, as Django wants it used."""
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
    """The queues in which jobs for `runworkers` can be expected, whatever remote types there are."""
    return {definition.queue for definition in registry.all_definitions()} | {"default"}


def pull_only(types: Iterable[RemoteType]) -> frozenset[str]:
    """Queues of pull types in which nothing else can be expected.  In others each side passes the other's jobs on."""
    queues: dict[bool, set[str]] = {True: set(), False: set()}
    for kind in types:
        queues[bool(kind.url)].add(kind.queue)
    return frozenset(queues[False] - queues[True] - django_queues())


def make_definition(kind: RemoteType) -> JobDefinition:
    """What the registry gives out for it."""
    return JobDefinition(
        _pusher(kind) if kind.url else _leave,
        name=kind.name,
        queue=kind.queue,
        max_attempts=1 if kind.delivery_strategy == "at_most_once" else kind.attempts,
        delivery=kind.delivery_strategy,
        max_concurrency=kind.concurrency,
        api=True,
        # The time limit of a remote attempt is the lease of its claim, not the life of a process of ours.
        timeout=None,
    )


def _pusher(kind: RemoteType) -> Callable[[Any], Any]:
    def deliver(data: Any = None) -> Any:
        return push(kind.url, kind.credentials, kind.timeout, data)

    return deliver


def _leave(data: Any = None) -> SnoozeFor:
    """Only workers that fetch their jobs over HTTP run this one.  It has not started here, so one that is delivered at
    most once may wait for them, too: no `raise Snooze`, which would end it."""
    return SnoozeFor(LEAVE_FOR)
