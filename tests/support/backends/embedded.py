"""The server of an embedded store, its shells, and what of them a test run leaves behind."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from django_jobs.stores.embedded.server import PIPE
from tests.support.processes import is_alive, open_files
from tests.support.waiting import wait_until


def running(place: Path, *, deleted: bool = False) -> dict[int, str]:
    """The living processes whose folder is this directory, and what they are: "server" or "shell"."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                folder, program = os.readlink(entry / "cwd"), program_of(entry)
            except OSError:
                continue
            if folder == f"{place}{' (deleted)' * deleted}" and is_alive(int(entry.name)):
                found[int(entry.name)] = "server" if program.endswith("-server") else "shell"
    return found


def program_of(entry: Path) -> str:
    """The name under which a process was started: Debian's redis-server is a link to a program of another name."""
    return (entry / "comm").read_text().strip()


def servers(place: Path) -> list[int]:
    return [pid for pid, kind in running(place).items() if kind == "server"]


def shells(place: Path) -> list[int]:
    return [pid for pid, kind in running(place).items() if kind == "shell"]


def wait_until_it_ends(place: Path, **options: Any) -> None:
    """Server and shells, within a minute."""
    wait_until(lambda: not running(place, **options), f"the server of {place} has ended", every=0.1)


def left_behind(base: Path) -> list[str]:
    """Servers below the folder of a test run, and servers in memory of processes that have ended (store.py names the
    directory after the process).  A server that this process has used ends after it."""
    found, used = [], open_files(os.getpid())
    for entry in Path("/proc").iterdir():
        try:
            folder, program = Path(os.readlink(entry / "cwd")), program_of(entry)
        except OSError:  # not a process, or it has ended
            continue
        in_memory = re.fullmatch(r"django_jobs-(\d+)-\w+", folder.name)
        is_ours = not is_alive(int(in_memory[1])) if in_memory else base in folder.parents and (folder / PIPE).exists()
        is_ours = is_ours and str(folder / PIPE) not in used
        if program.endswith("-server") and is_ours:
            found.append(f"{entry.name} in {folder}")
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A whole test run leaves no private server: the last users have ended, so the servers do."""
    if hasattr(session.config, "workerinput") or sys.platform != "linux" or session.config.option.collectonly:
        return
    base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    try:
        wait_until(lambda: not left_behind(base), "no server is left", every=0.1)
    except AssertionError:
        print("Servers that the tests left behind:", *left_behind(base), sep="\n")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
