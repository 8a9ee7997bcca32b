"""Each kind of store in turn, in use; what is enqueued is stored at once, although each test is a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.contract.workflows.steps import ENDS, RAN


@pytest.fixture
def store(make_store: Callable[..., Store], settings: Any) -> Iterator[Store]:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ON_COMMIT": False}
    made = make_store()
    use_store(made)
    RAN.clear()
    ENDS.clear()
    yield made
    use_store(None)
