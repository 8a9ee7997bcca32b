"""The digest of what a process can run: by it, parked jobs find a worker that knows them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.remote.job_types import RemoteType
from django_jobs.remote.type_cache import Known


def definition(name: str) -> JobDefinition:
    return JobDefinition(lambda: None, name=name)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
    """The remote types that this process knows."""
    known = Known(lambda: 0.0)
    monkeypatch.setattr(registry, "_resolvers", [(lambda name: None, lambda: known.names)])
    registry.changed()
    yield known
    registry.changed()


def test_it_is_the_same_until_a_name_comes_or_goes(known: Known) -> None:
    before = registry.digest()
    assert registry.digest() == before
    registry.register(definition("tests.digest.one"))
    after = registry.digest()
    assert after != before
    registry.unregister("tests.digest.one")
    assert registry.digest() == before


def test_it_changes_with_the_remote_types(known: Known) -> None:
    before = registry.digest()
    known.replace_types(0.0, [RemoteType("tests.digest.remote", "pull", "at_least_once", 3, 0, 60, "", "")])
    assert registry.digest() != before
    known.replace_types(1.0, [])
    assert registry.digest() == before


def test_a_name_that_comes_while_it_is_made_is_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread imports a module at that moment."""
    left = [definition("tests.digest.one")]

    def meanwhile(text: bytes) -> Any:
        if left:
            registry.register(left.pop())
        return sha256(text)

    monkeypatch.setattr(registry, "sha256", meanwhile)
    first = registry.digest()
    assert not left
    assert registry.digest() != first
