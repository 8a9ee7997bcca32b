"""A PostgreSQL server of the test run's own, on a socket in a folder of its own, that cannot outlive the run."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg.conninfo import make_conninfo

from tests.support.backends.guard import guarded, removed_at_the_end
from tests.support.waiting import wait_until

_QUICK = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=80"]


class Postgres(NamedTuple):
    """Where a server is."""

    host: str
    port: str = ""
    user: str = "postgres"
    password: str = ""
    name: str = "postgres"

    def settings(self, **options: Any) -> dict[str, Any]:
        """An entry of DATABASES; keyword arguments are of that entry."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": self.name,
            "USER": self.user,
            "PASSWORD": self.password,
            "HOST": self.host,
            "PORT": self.port,
            **options,
        }

    def connect(self) -> psycopg.Connection[Any]:
        """A connection of the test's own, past Django."""
        given = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        wanted = {key: value for key, value in given.items() if value}
        return psycopg.connect(make_conninfo(dbname=self.name, connect_timeout=30, **wanted), autocommit=True)


def from_url(url: str) -> Postgres:
    """The server that POSTGRES_URL names: postgresql://user:password@host:port/database."""
    parts = urlsplit(url)
    host = parts.hostname or dict(parse_qsl(parts.query)).get("host", "")
    port, user, password = str(parts.port or ""), parts.username or "postgres", parts.password or ""
    return Postgres(unquote(host), port, unquote(user), unquote(password), parts.path.lstrip("/") or "postgres")


def programs() -> Path | None:
    """The folder of initdb and postgres: the newest of Debian's, else the one on PATH, else None."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if debian:
        return debian[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@contextmanager
def running_postgres(programs: Path) -> Iterator[Postgres]:
    """Start a new, empty server without TCP, yield where it is, and kill it."""
    folder = Path(tempfile.mkdtemp(prefix="djpg"))
    account = _account(folder)
    with removed_at_the_end(folder):
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"],
            check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=240, **account,
        )  # fmt: skip
        options = [f"unix_socket_directories={folder}", "listen_addresses=", *_QUICK]
        command = [programs / "postgres", "-D", folder / "data", *(f"--{option}" for option in options)]
        with guarded(folder, command, **account):
            server = Postgres(str(folder))
            wait_until(lambda: _answers(server), f"PostgreSQL starts, see {folder}/log", seconds=30, every=0.05)
            yield server


def _account(folder: Path) -> dict[str, Any]:
    """Arguments for subprocess: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    owner = names.get("postgres") or names["nobody"]
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _answers(server: Postgres) -> bool:
    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True
