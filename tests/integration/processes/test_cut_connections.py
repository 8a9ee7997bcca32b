"""PostgreSQL ends the worker's connections, whenever it likes: at most the job that uses one notices."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from django_jobs.core.values import State
from tests.integration.databases import IMPATIENT, KINDS, DatabaseSite, Server, databases
from tests.support.backends.postgres import Postgres
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

THREADS = 3


@pytest.fixture(scope="module")
def site(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseSite]:
    """One process of three threads."""
    folder = tmp_path_factory.mktemp("cut")
    made = DatabaseSite(folder, f"embedded:{folder / 'store'}", databases(postgres))
    made.migrate()
    made.pool(threads=THREADS)
    yield made
    made.close()


def warm_up(site: DatabaseSite, alias: str) -> None:
    """Every thread has used its connection of that alias, and is free again."""
    flag = site.flag()
    ids = [site.put("meet", alias, uuid4().hex, str(flag)) for _ in range(THREADS)]
    for id in ids:
        site.wait_seen("met", id)
    flag.touch()
    for id in ids:
        assert site.wait(id).attempts == ()


@pytest.mark.accepts("P18")
@pytest.mark.parametrize("alias", KINDS)
def test_jobs_after_a_cut_never_notice(site: DatabaseSite, server: Server, alias: str) -> None:
    warm_up(site, alias)
    site.succeed("anote", alias, uuid4().hex)
    server.cut(alias)

    # Every thread at once, and the thread of the async jobs: none has had a chance to learn of it from another.
    warm_up(site, alias)
    site.succeed("anote", alias, uuid4().hex)


@pytest.mark.parametrize("name", ["halves", "ahalves"])
@pytest.mark.parametrize("alias", KINDS)
def test_only_the_job_in_progress_fails_and_is_run_again(
    site: DatabaseSite, server: Server, alias: str, name: str
) -> None:
    text, flag = uuid4().hex, site.flag()
    id = site.put(name, alias, text, str(flag))
    site.wait_seen("half", id)
    assert server.cut(alias) >= 1
    flag.touch()

    info = site.wait(id)
    assert [attempt.outcome for attempt in info.attempts] == ["failed"]
    assert info.attempts[0].error_type.endswith(("OperationalError", "InterfaceError"))
    assert server.attempts(text) == [2, 2], "rows of the first attempt are rolled back"
    site.succeed("anote" if name == "ahalves" else "note", alias, uuid4().hex)


@pytest.mark.accepts("K04")
@pytest.mark.parametrize("alias", KINDS)
def test_workers_hold_no_transaction_and_no_more_connections_than_the_settings_keep(
    site: DatabaseSite, server: Server, alias: str
) -> None:
    flag = site.flag()
    id = site.put("meet", alias, uuid4().hex, str(flag))
    site.wait_seen("met", id)
    assert set(server.connected(alias).values()) == {"idle"}, "there is no transaction round a job"
    flag.touch()
    site.wait(id)
    warm_up(site, alias)
    for _ in range(10):
        site.succeed("anote", alias, uuid4().hex)

    # The threads that run jobs, and the one that async jobs share for sync code.
    most = 0 if KINDS[alias]["CONN_MAX_AGE"] == 0 else THREADS + 1
    states = wait_until(
        lambda: [list(states)] if len(states := server.connected(alias).values()) <= most else None, "few connections"
    )[0]
    assert set(states) <= {"idle"}


@pytest.mark.parametrize("how", ["open", "broken", "manual"])
@pytest.mark.parametrize("alias", ["age_none", "age_0"])
def test_the_next_job_finds_no_transaction_of_the_last(
    site: DatabaseSite, server: Server, alias: str, how: str
) -> None:
    text = uuid4().hex
    ids = [site.put("breaks", alias, text, how, max_attempts=1) for _ in range(THREADS * 2)]
    for id in ids:
        site.wait(id, State.SUCCEEDED, State.DEAD)

    for _ in range(THREADS * 2):
        assert site.succeed("state", alias) == [False, True]
    assert server.attempts(text) == [1] * len(ids), "what was left open is rolled back"
    assert "idle in transaction" not in str(server.connected(alias))


def test_the_next_async_job_finds_no_transaction_of_the_last(site: DatabaseSite, server: Server) -> None:
    text = uuid4().hex
    site.wait(site.put("abreaks", "age_none", text))
    assert site.succeed("astate", "age_none") == [False, True]
    assert server.attempts(text) == []


def test_connections_that_time_out_on_the_server_are_not_used_again(site: DatabaseSite, server: Server) -> None:
    warm_up(site, IMPATIENT)
    site.succeed("anote", IMPATIENT, uuid4().hex)
    wait_until(lambda: not server.connected(IMPATIENT), "the server has closed them", seconds=10)

    warm_up(site, IMPATIENT)
    site.succeed("anote", IMPATIENT, uuid4().hex)


def test_a_database_that_is_away_costs_attempts_and_no_more(
    site: DatabaseSite, server: Server, postgres: Postgres
) -> None:
    text = uuid4().hex
    warm_up(site, "age_60")
    with postgres._replace(name="template1").connect() as elsewhere:
        elsewhere.execute(f'ALTER DATABASE "{postgres.name}" ALLOW_CONNECTIONS false')
        try:
            server.cut("age_60")
            id = site.put("note", "age_60", text, max_attempts=10_000)
            wait_until(lambda: site.info(id).failures >= 2, "attempts fail", seconds=10)
        finally:
            elsewhere.execute(f'ALTER DATABASE "{postgres.name}" ALLOW_CONNECTIONS true')

    assert {attempt.outcome for attempt in site.wait(id).attempts} == {"failed"}
    assert len(server.attempts(text)) == 1
    warm_up(site, "age_60")
