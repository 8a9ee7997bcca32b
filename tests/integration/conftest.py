"""The test kit tests the rest: its fixture comes from the plugin, installed or not.  And a PostgreSQL to talk to."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from django_jobs.core import registry
from django_jobs.pytest_plugin import jobs
from tests.integration import sample_jobs
from tests.integration.databases import Server
from tests.support.backends.missing import missing
from tests.support.backends.postgres import Postgres, from_url, programs, running_postgres

__all__ = ["jobs"]


@pytest.fixture(autouse=True)
def _job_of_another_queue() -> Iterator[None]:
    """The sample job for the queue "mail" is known only here: elsewhere the checks would miss its queue."""
    registry.register(sample_jobs.other)
    yield
    registry.unregister("sample.other")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that tests may write to: POSTGRES_URL, else a server that lives as long as the run."""
    if url := os.environ.get("POSTGRES_URL"):
        yield from_url(url)
        return
    found = programs()
    if found is None:
        missing("No PostgreSQL server programs are installed and no POSTGRES_URL is set.")
    with running_postgres(found) as server:
        yield server


@pytest.fixture(scope="session")
def server(postgres: Postgres) -> Iterator[Server]:
    """That PostgreSQL as its administrator sees it."""
    server = Server(postgres)
    yield server
    server.connection.close()
