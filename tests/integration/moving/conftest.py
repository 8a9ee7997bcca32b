"""What the tests of the guides share: real workers, and jobs that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs.core import registry
from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site

__all__ = ["site"]


@pytest.fixture(autouse=True)
def _own_jobs() -> Iterator[None]:
    """Jobs that are defined inside a test are not known to the next one."""
    known = set(registry.names())
    yield
    for name in set(registry.names()) - known:
        registry.unregister(name)


@pytest.fixture
def seen() -> list[Any]:
    """What jobs write down."""
    return []


@pytest.fixture
def timeout_ends_the_process(site: WorkerSite) -> Callable[[], None]:
    """Let a real worker run a job for too long, and look whether the process of the job is another afterwards."""

    def check() -> None:
        pool = site.pool()
        first = site.put("who", timeout=60_000)
        before = site.wait(first).result
        late = site.put("timed", timeout=200, max_attempts=1)
        assert site.wait(late, State.DEAD).attempts
        assert site.wait(site.put("who", timeout=60_000)).result != before
        assert pool.stop() == 0

    return check
