"""For tests of jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_jobs.core import registry


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    """A job that a test defines is not the next test's."""
    before = set(registry.names())
    yield
    for name in set(registry.names()) - before:
        registry.unregister(name)
