"""A MariaDB server of the test run's own, on a socket in a folder of its own, that cannot outlive the run."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.backends.guard import guarded, removed_at_the_end
from tests.support.waiting import wait_until

_QUICK = [
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=32M",
    "--skip-networking",
    "--skip-name-resolve",
]


@contextmanager
def running_mariadb() -> Iterator[dict[str, Any]]:
    """Start a new, empty server, yield an entry of DATABASES, and kill it.  `mariadbd` must be on PATH."""
    folder = Path(tempfile.mkdtemp(prefix="djmy"))
    account: list[str] = []
    if os.geteuid() == 0:
        owner = {entry.pw_name: entry for entry in pwd.getpwall()}.get("mysql") or pwd.getpwnam("nobody")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        account = [f"--user={owner.pw_name}"]
    data, place = folder / "data", folder / "socket"
    with removed_at_the_end(folder):
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
             "--skip-test-db", *account],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, timeout=240,
        )  # fmt: skip
        command = [_program(), "--no-defaults", f"--datadir={data}", f"--socket={place}", *_QUICK, *account]
        with guarded(folder, command):
            wait_until(lambda: _answers(place), f"MariaDB starts, see {folder}/log", seconds=60, every=0.05)
            yield {"ENGINE": "django.db.backends.mysql", "NAME": "jobs", "USER": "root", "HOST": str(place)}


def is_installed() -> bool:
    return _program() != "" and shutil.which("mariadb-install-db") is not None


def _program() -> str:
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin") or ""


def _answers(path: Path) -> bool:
    # Not with pymysql: it leaves a socket open that could not connect.
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
