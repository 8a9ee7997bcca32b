"""Servers of the test run's own, in a folder of their own, that cannot outlive the run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Ends server and folder when its input ends: when the test run dies, even by SIGKILL, the pipe is closed.
_SCRIPT = '"$@" & server=$!; read -r _; kill -9 $server; wait $server; rm -rf "$0"'


@contextmanager
def removed_at_the_end(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def guarded(folder: Path, command: Sequence[str | Path], **account: Any) -> Iterator[None]:
    """Run a server, which writes its log into the folder, and kill it.  `account`: arguments of Popen."""
    with (folder / "log").open("wb") as log:
        guard = subprocess.Popen(
            ["sh", "-c", _SCRIPT, folder, *command],
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=folder, **account,
        )  # fmt: skip
    try:
        yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(timeout=60)
