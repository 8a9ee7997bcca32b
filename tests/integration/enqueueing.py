"""What the tests of enqueueing share: three queues in memory, and a look at what was stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import JobHandle
from django_jobs.serialization.record import decode
from django_jobs.stores import get_store
from tests.integration import sample_jobs

SETTINGS: dict[str, Any] = {"STORE": "memory", "QUEUES": {"default": {}, "mail": {}, "small": {"MAX_LENGTH": 2}}}


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    """Every test of a module that imports this."""
    sample_jobs.ran.clear()
    with override_settings(DJANGO_JOBS=SETTINGS):
        yield


def stored(handle: JobHandle) -> Any:
    """The job as the store has it."""
    info = get_store().get(handle.queue, handle.id)
    assert info is not None
    return decode(info.id, info.queue, info.record)
