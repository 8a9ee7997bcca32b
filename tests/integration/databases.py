"""Workers whose jobs use PostgreSQL or SQLite, and what the server sees of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.integration.workers import WorkerSite
from tests.support.backends.postgres import Postgres
from tests.support.pools import ROOT
from tests.support.waiting import wait_until

#: alias → what the project says of its connections.
KINDS: dict[str, dict[str, Any]] = {
    f"age_{age}{'_checked' if checks else ''}".lower(): {"CONN_MAX_AGE": age, "CONN_HEALTH_CHECKS": checks}
    for age in (0, 60, None)
    for checks in (False, True)
}

#: The alias whose connections the server closes when they idle.
IMPATIENT = "impatient"


class DatabaseSite(WorkerSite):
    """`databases` is the setting DATABASES; the tables must be there."""

    def __init__(self, folder: Path, store: str, databases: dict[str, Any], **jobs_settings: Any) -> None:
        super().__init__(folder, store, **jobs_settings)
        self.databases = databases
        #: does a receiver of job_succeeded write a note, too?
        self.receivers = False

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            **super().environment(**extra),
            "DJANGO_SETTINGS_MODULE": "tests.integration.database_project.settings",
            "TEST_DATABASES": json.dumps(self.databases),
            "TEST_RECEIVERS": "yes" if self.receivers else "",
        }

    def migrate(self) -> None:
        """Make the tables of the default database."""
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "--run-syncdb", "--verbosity=0"],
            env=self.environment(), cwd=ROOT, check=True, timeout=240,
        )  # fmt: skip

    def flag(self) -> Path:
        """A file that is not there yet."""
        return self.folder / f"flag-{uuid4().hex}"

    def seen(self, kind: str, id: str) -> int:
        """How many such events of that job are in the ledger."""
        return sum(event.kind == kind and event.id == id for event in self.ledger.read())

    def wait_seen(self, kind: str, id: str) -> None:
        wait_until(lambda: self.seen(kind, id), f"{kind} of {id}", seconds=10)

    def succeed(self, name: str, *args: Any) -> Any:
        """Run a job that must succeed in its first attempt.  Returns its result."""
        info = self.wait(self.put(name, *args))
        assert [(attempt.error_type, attempt.error) for attempt in info.attempts] == []
        return json.loads(info.result or b"null")


def databases(postgres: Postgres) -> dict[str, Any]:
    """DATABASES: one database under many names; the name is what the server knows the connection by, too."""
    kinds = {"default": {}, **KINDS, IMPATIENT: {"CONN_MAX_AGE": None}}
    named = {alias: postgres.settings(OPTIONS={"application_name": alias}, **kind) for alias, kind in kinds.items()}
    named[IMPATIENT]["OPTIONS"]["options"] = "-c idle_session_timeout=1s"
    return named


class Server:
    """PostgreSQL as its administrator sees it."""

    def __init__(self, postgres: Postgres) -> None:
        self.connection = postgres.connect()

    def ask(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, parameters).fetchall()

    def connected(self, alias: str) -> dict[int, str]:
        """pid of each backend that serves this alias → its state."""
        query = (
            "SELECT pid, state FROM pg_stat_activity WHERE application_name = %s AND backend_type = 'client backend'"
        )
        return dict(self.ask(query, alias))

    def cut(self, alias: str) -> int:
        """Terminate every backend of this alias; returns how many once they are gone."""
        gone = self.connected(alias)
        for pid in gone:
            self.ask("SELECT pg_terminate_backend(%s, 5000)", pid)
        return len(gone)

    def attempts(self, text: str) -> list[int]:
        """The attempt that wrote each row with that text."""
        query = "SELECT attempt FROM database_project_note WHERE text = %s ORDER BY id"
        return [attempt for (attempt,) in self.ask(query, text)]
