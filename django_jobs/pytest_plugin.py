"""pytest plugin: the fixture `jobs`.  Imports no Django before a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_jobs.testing import Jobs


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """Jobs in memory, looked at and run by the test itself: see django_jobs.testing.Jobs."""
    from django_jobs.testing import Jobs

    with Jobs() as jobs:
        yield jobs
