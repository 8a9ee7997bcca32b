"""A job leaves a transaction open that Django does not know of: the rows of later jobs must be there all the same."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.integration.databases import DatabaseSite, Server, databases
from tests.support.backends.postgres import Postgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def site(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseSite]:
    """One process of one thread."""
    folder = tmp_path_factory.mktemp("open")
    made = DatabaseSite(folder, f"embedded:{folder / 'store'}", databases(postgres))
    made.migrate()
    made.pool(threads=1)
    yield made
    made.close()


@pytest.mark.parametrize(("opens", "writes"), [("begins", "note"), ("abegins", "anote")])
def test_the_rows_of_the_next_jobs_are_there(site: DatabaseSite, server: Server, opens: str, writes: str) -> None:
    for alias in ("age_60", "age_none"):
        site.succeed(opens, alias)
        for _ in range(3):
            text = uuid4().hex
            site.succeed(writes, alias, text)
            assert server.attempts(text) == [1]
