"""A job is killed at its time limit inside atomic(): the database is before or after, never between, and the job runs
again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from django_jobs.core.values import JobInfo
from tests.integration.databases import DatabaseSite, Server
from tests.support.backends.postgres import Postgres
from tests.support.waiting import wait_until

#: ms: enough for the second attempt on a slow machine; each row of the first holds its COMMIT up for as long.
LIMIT = 1500
#: COMMIT takes three seconds where the first attempt of a "slow" job wrote: a constraint is checked then.
SLOW_COMMIT = """
    CREATE OR REPLACE FUNCTION takes_its_time() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END';
    DROP TRIGGER IF EXISTS at_commit ON database_project_note;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON database_project_note DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.attempt = 1 AND NEW.text LIKE 'slow commit%') EXECUTE FUNCTION takes_its_time();
"""


@pytest.fixture
def on_postgres(postgres: Postgres, tmp_path: Path) -> Iterator[DatabaseSite]:
    made = DatabaseSite(tmp_path, f"embedded:{tmp_path / 'store'}", {"default": postgres.settings()})
    made.migrate()
    made.pool(threads=1)
    yield made
    made.close()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[DatabaseSite]:
    file = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "notes.sqlite3"), "OPTIONS": {"timeout": 30}}
    made = DatabaseSite(tmp_path, f"embedded:{tmp_path / 'store'}", {"default": file})
    made.migrate()
    made.pool(threads=1)
    yield made
    made.close()


def was_killed_once_and_succeeded(info: JobInfo) -> bool:
    return [attempt.outcome for attempt in info.attempts] == ["timeout"] and info.result == b"2"


@pytest.mark.timed(beside=1)
@pytest.mark.postgres
def test_killed_before_the_commit_nothing_of_that_attempt_is_there(on_postgres: DatabaseSite, server: Server) -> None:
    text = uuid4().hex
    info = on_postgres.wait(on_postgres.put("timed_halves", "default", text, "/never", timeout=LIMIT))

    assert was_killed_once_and_succeeded(info), info
    assert server.attempts(text) == [2, 2]


@pytest.mark.timed(beside=1)
@pytest.mark.postgres
def test_killed_during_the_commit_postgresql_has_all_of_that_attempt_or_nothing(
    on_postgres: DatabaseSite, server: Server
) -> None:
    server.connection.execute(SLOW_COMMIT)
    text, flag = f"slow commit {uuid4().hex}", on_postgres.flag()
    flag.touch()
    id = on_postgres.put("timed_halves", "default", text, str(flag), timeout=LIMIT)
    query = "SELECT 1 FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'"
    wait_until(lambda: server.ask(query), "it commits", seconds=5)

    assert was_killed_once_and_succeeded(on_postgres.wait(id))
    wait_until(lambda: not server.ask(query), "the server has noticed", seconds=10)
    rows = server.attempts(text)
    assert rows.count(2) == 2
    assert rows.count(1) in (0, 2)


@pytest.mark.timed(beside=1)
def test_killed_during_the_commit_sqlite_has_nothing_of_that_attempt(on_sqlite: DatabaseSite) -> None:
    text, flag = uuid4().hex, on_sqlite.flag()
    flag.touch()
    reader = sqlite3.connect(on_sqlite.folder / "notes.sqlite3", isolation_level=None)
    # Who reads holds up the COMMIT of who writes: the job is killed while it waits there.
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM database_project_note").fetchall()
    id = on_sqlite.put("timed_halves", "default", text, str(flag), timeout=LIMIT)
    wait_until(lambda: on_sqlite.info(id).attempts, "it was killed", seconds=10)
    reader.execute("COMMIT")

    assert was_killed_once_and_succeeded(on_sqlite.wait(id))
    rows = reader.execute("SELECT attempt FROM database_project_note WHERE text = ?", [text]).fetchall()
    reader.close()
    assert rows == [(2,), (2,)]
