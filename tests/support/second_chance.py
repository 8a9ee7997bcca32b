"""In continuous integration, a test that measures time and failed runs once more, when all others have ended.

The second run is a process of its own with this one test in it.  A test that passes then is printed under "flaky:" with
both times.  More than two failures are no accident: then nothing runs again, and the run fails.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.backends.missing import CI

#: So many tests may fail and run once more.
MOST = 2
NAME = "second-chance"


class SecondChance:
    """A plugin of the process that reports: the only one, or the controller of pytest-xdist."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: dict[str, pytest.TestReport] = {}
        self._flaky: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.setdefault(report.nodeid, report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The processes of pytest-xdist have run their last test, and the summary is not printed yet."""
        if not 0 < len(self._failed) <= MOST or not all(has_chance(each) for each in self._failed.values()):
            return
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        for id, report in self._failed.items():
            passed, seconds = run_alone(id, session.config.rootpath)
            took = f"{id}: failed after {self._seconds[id]:.1f} s, then "
            if passed:
                reporter.stats["failed"] = [each for each in reporter.stats["failed"] if each.nodeid != id]
                self._flaky.append(f"{took}passed alone in {seconds:.1f} s\n{report.longreprtext}")
            else:
                self._flaky.append(f"{took}failed alone after {seconds:.1f} s, too")
        if not reporter.stats["failed"] and not reporter.stats.get("error"):
            del reporter.stats["failed"]
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._flaky:
            terminalreporter.section("flaky:")
            terminalreporter.write_line("\n".join(self._flaky))


def has_chance(report: pytest.TestReport) -> bool:
    """Did a test that measures time fail, and not what surrounds it?"""
    return report.when == "call" and "timed" in report.keywords


def run_alone(id: str, root: Path) -> tuple[bool, float]:
    """Run this test in a process of its own.  Returns whether it passed, and its seconds."""
    with TemporaryDirectory(prefix="djt") as folder:
        written = Path(folder) / "result.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", f"no:{NAME}", f"--junitxml={written}", id]
        done = subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=False)
        cases = list(ElementTree.parse(written).iter("testcase")) if written.exists() else []
    return done.returncode == 0, sum(float(case.get("time", 0)) for case in cases)


def pytest_configure(config: pytest.Config) -> None:
    if CI and not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(SecondChance(), NAME)
