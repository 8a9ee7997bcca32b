"""A store that is well: what a finding is produced on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_jobs.stores.redis import Store
from tests.support.backends.servers import configured
from tests.support.console_data import worker_info


@pytest.fixture
def safe_store(console_store: Store) -> Iterator[Store]:
    """A store with a worker, keeping what it accepts."""
    console_store.publish_worker("web-1:4711", worker_info(queues=["default", "mail"]), 24 * 60 * 60_000)
    with configured(console_store.transport.client, appendonly="yes"):
        yield console_store
