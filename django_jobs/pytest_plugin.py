"""pytest plugin with the fixture `jobs`.  Does not import Django before a test uses it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_jobs.testing import Jobs

#: The name of the fixture, and the option of pytest's configuration that adds another.
NAME, OPTION = "jobs", "django_jobs_fixture"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.addini(
        OPTION, f"Another name for the fixture {NAME!r} of django_jobs, if a project has its own.", default=NAME
    )


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest: add the fixture under the name that the project chose."""
    name = config.getini(OPTION)
    if name != NAME:
        renamed = ModuleType(f"django_jobs_fixture_{name}")
        setattr(renamed, name, pytest.fixture(_kit, name=name))
        config.pluginmanager.register(renamed, renamed.__name__)


def _kit() -> Iterator[Jobs]:
    """Jobs in memory that the test itself inspects and runs: see django_jobs.testing.Jobs."""
    from django_jobs.testing import Jobs

    with Jobs() as jobs:
        yield jobs


jobs = pytest.fixture(_kit, name=NAME)
