"""Processes that enqueue in transactions are killed anywhere: what was committed runs once, what was not never does."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from django_jobs.core.values import State
from tests.integration.conftest import postgres
from tests.integration.databases import DatabaseSite
from tests.support.dose import dose
from tests.support.pools import ROOT
from tests.support.waiting import wait_until

__all__ = ["postgres"]

#: Kills of a process, for each place.
KILLS = dose(24, long=350, quick=8)
#: Where a process kills itself: behind the commit, behind the store's answer; "": whenever the clock says.
PLACES = ["outbox.committed", "outbox.sent", ""]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def site(request: pytest.FixtureRequest, redis_server: str, tmp_path: Path) -> Iterator[DatabaseSite]:
    if request.param == "sqlite":
        file = tmp_path / "notes.sqlite3"
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": {"timeout": 30}}
    else:
        database = request.getfixturevalue("postgres").settings()
    made = DatabaseSite(tmp_path, redis_server, {"default": database}, OUTBOX=True, NAMESPACE=f"o{tmp_path.name[-9:]}")
    made.migrate()
    ask(made, "DELETE FROM database_project_note")
    ask(made, "DELETE FROM django_jobs_outboxentry")
    yield made
    made.close()


def ask(site: DatabaseSite, query: str) -> list[tuple[Any, ...]]:
    database = site.databases["default"]
    if database["ENGINE"].endswith("sqlite3"):
        import sqlite3

        with closing(sqlite3.connect(database["NAME"], timeout=30)) as connection, connection:
            return connection.execute(query).fetchall()
    import psycopg

    place = {"host": database["HOST"], "port": database["PORT"], "user": database["USER"], "dbname": database["NAME"]}
    with psycopg.connect(**place, password=database.get("PASSWORD"), autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def commits(site: DatabaseSite, rounds: int, longest: float, place: str = "") -> None:
    """Run transactions in processes of which each is killed."""
    command = [sys.executable, "-m", "tests.integration.database_project.committing"]
    environment = site.environment(DJANGO_JOBS_CRASH=f"{place}:1" if place else "")
    options = [str(rounds), str(random.randrange(10**9)), str(longest)]
    subprocess.run([*command, *options], env=environment, cwd=ROOT, check=True, timeout=900)


def is_all_done(site: DatabaseSite) -> bool:
    # Along the way of a job: what is looked at first cannot have come to what was looked at before.
    if ask(site, "SELECT 1 FROM django_jobs_outboxentry LIMIT 1"):
        return False
    flows = [site.store.workflow_fields(id, ("state",)) for id in site.store.workflow_ids(0, 10_000)]
    (stats,) = site.store.stats(["default"])
    waiting = sum(stats.counts[state] for state in (State.QUEUED, State.RUNNING, State.SCHEDULED, State.RETRY))
    return not (waiting or any(state == b"running" for (state,) in flows))


def assert_all_ran_once(site: DatabaseSite, place: str) -> None:
    wait_until(lambda: is_all_done(site), "all is sent and has run", seconds=180, every=0.2)
    committed = {text for (text,) in ask(site, "SELECT text FROM database_project_note WHERE attempt = 0")}
    ran = Counter(text for (text,) in ask(site, "SELECT text FROM database_project_note WHERE attempt > 0"))
    assert committed or not place, "no transaction was committed"
    assert set(ran) - committed == set(), "ran, and was rolled back"
    assert committed - set(ran) == set(), "was committed, and did not run"
    assert [text for text, times in ran.items() if times > 1] == [], "ran twice"


@pytest.mark.parametrize("place", PLACES)
def test_of_a_process_that_dies_round_its_commit_each_job_runs_once_or_never(site: DatabaseSite, place: str) -> None:
    site.pool(threads=2)
    commits(site, KILLS, longest=0 if place else 150, place=place)
    assert_all_ran_once(site, place)


@pytest.mark.parametrize("place", ["outbox.relay_sent", "outbox.relayed"])
def test_of_a_worker_that_dies_while_it_sends_nothing_is_lost_or_doubled(site: DatabaseSite, place: str) -> None:
    commits(site, KILLS, longest=0, place="outbox.committed")
    for number in range(3):
        site.pool(threads=1, crash=f"{place}:1:{site.folder / f'crashed-{number}'}")
    assert_all_ran_once(site, place)
    assert list(site.folder.glob("crashed-*")) != []
