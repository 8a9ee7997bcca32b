"""Says which test opened a socket that nobody closed: Python warns of it in whatever test the collector runs."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = str(Path(__file__).resolve().parents[2])
#: Lines of ours that are named: who opened it, and who called that.
LINES = 4

#: file descriptor → where the socket that had it last was opened.
_opened: dict[int, str] = {}
_init = socket.socket.__init__


def _noted(self: socket.socket, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    lines, frame = list[str](), sys._getframe(1)
    while frame is not None and len(lines) < LINES:
        file = frame.f_code.co_filename
        if file.startswith(ROOT) and "site-packages" not in file:
            lines.append(f"{file.removeprefix(ROOT)}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    _opened[self.fileno()] = f"{os.environ.get('PYTEST_CURRENT_TEST', 'no test')}, by {' < '.join(lines)}"


socket.socket.__init__ = _noted  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (found := re.findall(r"unclosed <socket\.socket fd=(\d+)", report.longreprtext)):
        where = [f"{fd} was opened in {_opened.get(int(fd), 'another process')}" for fd in dict.fromkeys(found)]
        report.sections.append(("sockets that were not closed", "\n".join(where)))
    return report
