"""The scene, in use by console, API and commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_jobs import remote
from django_jobs.stores import use_store
from tests.integration.api import work
from tests.integration.odd.scene import QUEUES, Scene

SETTINGS: dict[str, Any] = {
    "STORE": "memory",
    "QUEUES": {queue: {} for queue in QUEUES},
    "API": {"REMOTE_HOSTS": ["localhost"]},
    "ARCHIVE": {"DAYS": 180},
    "ON_COMMIT": False,
}


@pytest.fixture
def scene(make_redis_store: Any, settings: Any, clock: Any, monkeypatch: Any, db: None) -> Iterator[Scene]:
    for module in ("counts", "snapshot"):  # so that pages read the snapshot of the fleet, too
        monkeypatch.setattr(f"django_jobs.browse.{module}.LIVE_QUEUES", 1)
    settings.ROOT_URLCONF = "tests.integration.odd.urls"
    settings.DJANGO_JOBS = SETTINGS
    remote.forget()
    work.offer()
    store = make_redis_store(archive=True)
    use_store(store)
    yield Scene(store, clock)
    use_store(None)
    work.forget()
    remote.forget()
