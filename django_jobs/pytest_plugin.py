"""pytest plugin with the fixture `jobs`.  Does not import Django before a test uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_jobs.testing import Jobs


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """Jobs in memory that the test itself inspects and runs: see django_jobs.testing.Jobs."""
    from django_jobs.testing import Jobs

    with Jobs() as jobs:
        yield jobs
