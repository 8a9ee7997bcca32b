"""One claim to its outcome on the memory store: no processes, no threads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs.core.definition import JobDefinition
from django_jobs.core.registry import digest, register, unregister
from django_jobs.core.values import Claim, NewJob
from django_jobs.execution.executor import Executor
from django_jobs.stores.redis import Store
from tests.conftest import Clock


class Bench:
    """Enqueues, claims and runs one job at a time."""

    def __init__(self, store: Store, clock: Clock, make_job: Callable[..., NewJob]) -> None:
        self.store, self.clock, self.make_job = store, clock, make_job
        self.names: list[str] = []

    def define(self, func: Callable[..., Any], **options: Any) -> None:
        definition = JobDefinition(func, name=f"bench.{func.__name__}", **options)
        register(definition)
        self.names.append(definition.name)

    def put(self, name: str, *args: Any, record: bytes | None = None, **options: Any) -> str:
        new = self.make_job(name=name, args=json.dumps([args, {}]).encode(), **options)
        self.store.enqueue("default", [new if record is None else new._replace(record=record)])
        return new.id

    def claims(self) -> list[Claim]:
        return self.store.claim("default", "w", 1, lease=30_000, knows=digest()).claims

    def claim(self) -> Claim:
        (claim,) = self.claims()
        return claim

    def run(self, func: Callable[..., Any] | None, *args: Any, middleware: Any = (), **options: Any) -> Any:
        name, record = options.pop("name", None), options.pop("record", None)
        if func is not None:
            self.define(func, **options)
            name = f"bench.{func.__name__}"
        job_id = self.put(name, *args, record=record)
        Executor(middleware=middleware, clock=self.clock, close_connections=False).run(self.claim(), self.store)
        return self.store.get("default", job_id)


@pytest.fixture
def bench(redis_store: Store, clock: Clock, make_job: Callable[..., NewJob]) -> Iterator[Bench]:
    bench = Bench(redis_store, clock, make_job)
    yield bench
    for name in bench.names:
        unregister(name)
