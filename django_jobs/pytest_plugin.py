"""pytest plugin: the fixture `jobs`, and a store in memory for each test.  Imports Django only when a test uses it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from django_jobs.runtime.scopes import scope, scopes

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

    # What fixtures enqueued before is part of the test.
    before = next((each.store for each in reversed(scopes) if each.store is not None), None)
    with Jobs(beginning=before) as jobs:
        yield jobs


def _scope() -> Iterator[None]:
    """What is enqueued in here, outside of the fixture `jobs`, is gone afterwards."""
    with scope():
        yield


jobs = pytest.fixture(_kit, name=NAME)
_django_jobs_module = pytest.fixture(_scope, name="_django_jobs_module", scope="module", autouse=True)
_django_jobs_class = pytest.fixture(_scope, name="_django_jobs_class", scope="class", autouse=True)
_django_jobs_test = pytest.fixture(_scope, name="_django_jobs_test", autouse=True)
