"""Processes that use an embedded store, and what they left in its directory and among the processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.backends.servers import server_program
from tests.support.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[3]


class User:
    """A process of user.py."""

    def __init__(self, setting: str, *given: str, before: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("preexec_fn", die_with_parent)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.integration.embedded.user", setting, *given],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **options,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"it has ended: {self.process.stderr and self.process.stderr.read()}")
        return json.loads(line)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> Any:
        """The whole answer: "value" or "error" and "text", and "seconds"."""
        self.tell(line)
        return self.read()

    def do(self, line: str) -> Any:
        """The value; an error fails the test."""
        found = self.ask(line)
        assert "value" in found, found
        return found["value"]

    def fails(self, line: str) -> tuple[str, str]:
        """Class and text of the error, which must come within five seconds."""
        found = self.ask(line)
        assert "error" in found, found
        assert found["seconds"] < 5, found
        return found["error"], found["text"]

    def leave(self) -> None:
        """End as a process ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def user() -> Iterator[Callable[..., User]]:
    """Start a process that uses the store of this setting.  Keyword arguments are those of Popen."""
    server_program()
    users: list[User] = []

    def start(setting: str, *given: str, **options: Any) -> User:
        users.append(User(setting, *given, **options))
        if not given:
            assert users[-1].read() == "ready"
        return users[-1]

    yield start
    for each in users:
        each.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of a store, not made yet."""
    return tmp_path / "jobs"
