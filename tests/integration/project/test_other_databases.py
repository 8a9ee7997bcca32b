"""What depends on the database, once more on PostgreSQL and MariaDB: transactions, the archive, tokens, schedules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.backends.mariadb import is_installed, running_mariadb
from tests.support.backends.missing import only_in_ci
from tests.support.backends.postgres import Postgres
from tests.support.dose import DOSE

ROOT = Path(__file__).resolve().parents[3]
AGAIN = [
    # Threads of one process share their connection to a database in memory: some calls need a server.
    "api/requests/test_sent_twice.py",
    "enqueue/test_on_commit.py",
    "enqueue/test_web_servers.py",
    "api/jobs/test_history.py",
    "api/jobs/test_archive_tags.py",
    "console/lists/test_archive_list.py",
    "api/requests/test_callers.py",
    "api/requests/test_numbers.py",
    "schedules/test_schedule_commands.py",
]


@pytest.mark.postgres
@pytest.mark.accepts("R27")
@pytest.mark.redis
def test_transactions_tables_and_the_outbox_are_the_same_on_postgresql(postgres: Postgres) -> None:
    only_in_ci()
    run_again(postgres.settings(), *AGAIN, "outbox")


@pytest.mark.postgres
@pytest.mark.redis
def test_whatever_is_sent_to_the_api_is_no_fault_on_postgresql(postgres: Postgres) -> None:
    # The other lists are of jobs in the store.
    run_again(
        postgres.settings(), "api/requests/test_fuzz.py", chosen="archived or outbox or schedules or address or bulk"
    )


@pytest.mark.redis
def test_the_outbox_is_the_same_on_mariadb() -> None:
    if not is_installed():
        pytest.skip("No MariaDB server is installed.")
    with running_mariadb() as database:
        run_again(database, "outbox", settings="tests.settings_on_mariadb")


def run_again(
    database: dict[str, Any],
    *names: str,
    settings: str = "tests.settings_on_postgres",
    chosen: str = "not test_sent_twice or (POST and job-types)",
) -> None:
    """Run tests with this entry of DATABASES.  `chosen`: which of them, as `pytest -k` takes it."""
    database = {**database, "TEST": {"NAME": f"test_{uuid4().hex[:12]}"}}
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", "--show-capture=no", "-k", chosen]
    again = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(Path(__file__).parents[1] / name for name in names)],
        env={
            **os.environ,
            "STORES": "redis",
            # What does not depend on the database has its dose elsewhere.
            "DOSE": "long" if DOSE == "long" else "quick",
            "DJANGO_SETTINGS_MODULE": settings,
            "TEST_DATABASE": json.dumps(database),
        },
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout[-5000:]
    assert " passed" in again.stdout
