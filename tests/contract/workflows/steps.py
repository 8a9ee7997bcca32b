"""Jobs that are steps, what they did, and a worker for them that needs no process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_jobs import Discard, Fail, job
from django_jobs.core.values import Claim, Lane
from django_jobs.execution.executor import Executor
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import engine

LEASE = 86_400_000
#: (name, arguments) of each start.
RAN: list[tuple[Any, ...]] = []
#: names of steps that fail, and how.
ENDS: dict[str, type[Exception]] = {}


@job(name="tests.steps.act", max_attempts=1)
def act(name: str, *values: Any) -> Any:
    """Return the name and what was passed, or end as ENDS says."""
    RAN.append((name, *values))
    if name in ENDS:
        raise ENDS[name](name)
    return [name, *values]


@job(name="tests.steps.nothing")
def nothing(*_: Any) -> None:
    """Return nothing."""
    RAN.append(("nothing",))


DEAD, CANCELLED = Fail, Discard


def claims(store: Store) -> Iterator[Claim]:
    for queue in store.queues():
        for lane in (Lane.SHARED, Lane.ALONE):
            yield from store.claim(queue, "w", 1000, lane=lane, lease=LEASE).claims


def run(store: Store, limit: int = 1000) -> list[str]:
    """Run jobs until none is left, at most `limit`, and do what follows.  Returns the names of those that ran."""
    began, ran = len(RAN), 0
    while True:
        found = list(claims(store))
        for claim in found:
            Executor(close_connections=False).run(claim, store)
            ran += 1
            if ran >= limit:
                return ran_since(began)
        read = [engine.advance(store, queue) for queue in store.unread(store.queues())]
        if not found and not any(read):
            return ran_since(began)


def ran_since(began: int) -> list[str]:
    return [name for name, *_ in RAN[began:]]


@pytest.fixture
def store(make_store: Any) -> Iterator[Store]:
    """Each kind of store in turn, in use."""
    made = make_store()
    use_store(made)
    RAN.clear()
    ENDS.clear()
    yield made
    use_store(None)
