"""Connections of threads that run no jobs: for receivers of signals, and for middleware that cannot run on a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.databases import DatabaseSite, Server, databases
from tests.support.backends.postgres import Postgres
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

ALIAS = "age_none"
THREADS = 2


@pytest.fixture
def make_site(postgres: Postgres, tmp_path: Path) -> Iterator[Callable[..., DatabaseSite]]:
    """Workers whose connections stay open; keyword arguments are of DJANGO_JOBS."""
    made: list[DatabaseSite] = []

    def make(receivers: bool = False, **jobs_settings: object) -> DatabaseSite:
        store = f"embedded:{tmp_path / 'store'}"
        made.append(DatabaseSite(tmp_path, store, databases(postgres), **jobs_settings))
        made[-1].receivers = receivers
        made[-1].migrate()
        made[-1].pool(threads=THREADS)
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.mark.parametrize("name", ["note", "anote"])
def test_receivers_of_signals_write_after_a_cut_as_before(
    make_site: Callable[..., DatabaseSite], server: Server, name: str
) -> None:
    site = make_site(receivers=True)
    for text in (uuid4().hex, uuid4().hex):
        site.succeed(name, ALIAS, text)
        wait_until(lambda text=text: server.attempts(f"{text} told"), "the receiver has written", seconds=10)
        assert server.cut(ALIAS) >= 1
    assert "Error calling" not in site.pools[0].text()


def test_middleware_that_cannot_run_on_a_loop_leaves_no_connections_behind(
    make_site: Callable[..., DatabaseSite], server: Server
) -> None:
    site = make_site(MIDDLEWARE=["tests.integration.database_project.middleware.sync_only"])
    for id in [site.put("anote", ALIAS, "x") for _ in range(40)]:
        assert site.wait(id).attempts == ()

    wait_until(lambda: len(server.connected(ALIAS)) <= THREADS + 1, "few connections", seconds=5)
    server.cut(ALIAS)
    site.succeed("anote", ALIAS, "x")
