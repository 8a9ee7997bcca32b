"""`runworkers --reload`: changed code is what runs next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.workers import WorkerSite
from tests.support.pools import ROOT
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until

JOBS = """
from django_jobs import job

@job(name="version")
def version():
    return {version}
"""


class Changing:
    """A project of one job whose code changes, with a worker that reloads it."""

    def __init__(self, site: WorkerSite, folder: Path, **env: str) -> None:
        self.site, self.log_file = site, folder / "log"
        self.app = folder / "project" / "changing"
        self.app.mkdir(parents=True)
        (self.app / "__init__.py").touch()
        self.write(JOBS.format(version=1))
        (self.app / "settings.py").write_text(
            "from tests.integration.worker_project.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'changing']\n"
        )
        env = {
            **site.environment(**env),
            "DJANGO_SETTINGS_MODULE": "changing.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.app.parent)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "django", "runworkers", "--reload", "--processes", "1", "--no-periodic"],
                env=env, cwd=ROOT, stdout=log, stderr=log, preexec_fn=die_with_parent,
            )  # fmt: skip

    def write(self, code: str) -> None:
        """Save this.  The watcher looks at times of whole files: a second write is a change even in the same second.

        At once: a worker that starts at that moment would import the half of a module, and the watcher that starts
        after it would take the whole one for what the worker has."""
        (new := self.app / "jobs.new").write_text(code)
        new.replace(self.app / "jobs.py")

    def runs(self, version: int) -> bool:
        """Does this version run, if it is saved now?"""
        self.write(JOBS.format(version=version))
        return json.loads(self.site.wait(self.site.put("version")).result or b"") == version

    def says(self, words: str) -> bool:
        return words in self.log_file.read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WorkerSite]:
    made = WorkerSite(tmp_path, f"embedded:{tmp_path / 'store'}")
    yield made
    made.close()


def test_a_change_of_code_starts_the_worker_again(site: WorkerSite, tmp_path: Path) -> None:
    changing = Changing(site, tmp_path)
    try:
        assert json.loads(site.wait(site.put("version")).result or b"") == 1
        wait_until(lambda: changing.runs(2), "the new code runs", every=0.5)

        # Half a word is saved: the worker waits for the rest.
        def noticed() -> bool:
            changing.write("from django_jobs import (")
            return changing.says("waits for the next change")

        wait_until(noticed, "it says that it waits", every=0.5)
        waiting = site.put("version")

        def mended() -> bool:
            if site.info(waiting).result == b"3":
                return True
            changing.write(JOBS.format(version=3))
            return False

        wait_until(mended, "the mended code runs", every=0.5)
        assert changing.process.poll() is None
        changing.process.terminate()
        # The last write may have started it once more: until it has begun to listen to signals, SIGTERM just ends it.
        assert changing.process.wait(60) in (0, -signal.SIGTERM), changing.log_file.read_text()
    finally:
        changing.end()


def test_a_change_is_seen_though_there_was_no_room_for_a_process_to_watch(site: WorkerSite, tmp_path: Path) -> None:
    """fork fails with EAGAIN when the worker starts, and while it waits for code that can be loaded."""
    (full := tmp_path / "full").touch()
    changing = Changing(site, tmp_path, NO_ROOM=str(full))
    try:
        wait_until(lambda: changing.says("Starting the process that watches the code failed"), "it says so")
        full.unlink()
        wait_until(lambda: changing.runs(2), "the new code runs", every=0.5)

        def says_so() -> bool:
            return changing.says("Starting a process for the changed code failed")

        def noticed() -> bool:
            """Without room from too early on, the new worker has no process that watches, and needs room for one."""
            full.touch()
            changing.write("from django_jobs import (")
            tries = 0

            def settled() -> bool:
                nonlocal tries
                tries += 1
                return says_so() or tries > 150

            wait_until(settled, "it says so, or has had fifteen seconds", every=0.1)
            if not says_so():
                full.unlink()
            return says_so()

        wait_until(noticed, "it says so", every=0.5)
        assert changing.process.poll() is None
        full.unlink()
        waiting = site.put("version")

        def mended() -> bool:
            if site.info(waiting).result == b"3":
                return True
            changing.write(JOBS.format(version=3))
            return False

        wait_until(mended, "the mended code runs", every=0.5)
    finally:
        changing.end()
