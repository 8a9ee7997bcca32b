"""What depends on the database, once more on PostgreSQL: transactions, the archive, tokens, schedules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.backends.missing import only_in_ci
from tests.support.backends.postgres import Postgres

ROOT = Path(__file__).resolve().parents[3]
AGAIN = [
    "enqueue/test_on_commit.py",
    "enqueue/test_web_servers.py",
    "api/jobs/test_history.py",
    "api/jobs/test_archive_tags.py",
    "console/lists/test_archive_list.py",
    "api/requests/test_callers.py",
    "api/requests/test_numbers.py",
    "schedules/test_schedule_commands.py",
]


#: Threads of one process share their connection to a database in memory: this needs a server.
TYPES_AT_ONCE = "api/requests/test_sent_twice.py"


@pytest.mark.postgres
@pytest.mark.accepts("R27")
@pytest.mark.redis
@pytest.mark.parametrize(
    ("files", "select"),
    [(AGAIN, "not cluster"), ([TYPES_AT_ONCE], "POST and job-types and moment")],
    ids=["tables", "at-once"],
)
def test_transactions_and_tables_are_the_same_on_postgresql(postgres: Postgres, files: list[str], select: str) -> None:
    only_in_ci()
    database = postgres.settings(TEST={"NAME": f"test_{uuid4().hex[:12]}"})
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", "-k", select]
    again = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(Path(__file__).parents[1] / name for name in files)],
        env={
            **os.environ,
            "STORES": "redis",
            "DJANGO_SETTINGS_MODULE": "tests.settings_on_postgres",
            "TEST_DATABASE": json.dumps(database),
        },
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout[-5000:]
    assert " passed" in again.stdout
