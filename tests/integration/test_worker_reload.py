"""`runworkers --reload`: changed code is what runs next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.workers import WorkerSite
from tests.survival.pools import ROOT
from tests.survival.processes import die_with_parent
from tests.survival.waiting import wait_until

JOBS = """
from django_jobs import job

@job(name="version")
def version():
    return {version}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WorkerSite]:
    made = WorkerSite(tmp_path, f"embedded:{tmp_path / 'jobs.sqlite3'}")
    yield made
    made.close()


def test_a_change_of_code_starts_the_worker_again(site: WorkerSite, tmp_path: Path) -> None:
    app = tmp_path / "project" / "changing"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    (app / "jobs.py").write_text(JOBS.format(version=1))
    (app / "settings.py").write_text(
        "from tests.integration.worker_project.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'changing']\n"
    )
    env = {
        **site.environment(),
        "DJANGO_SETTINGS_MODULE": "changing.settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(app.parent)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "runworkers", "--reload", "--processes", "1", "--no-periodic"],
        env=env, cwd=ROOT, stdout=log, stderr=log, preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        assert json.loads(site.wait(site.put("version")).result or b"") == 1

        # The watcher looks at times of whole files: a second write is a change even in the same second.
        def changed() -> bool:
            (app / "jobs.py").write_text(JOBS.format(version=2))
            return json.loads(site.wait(site.put("version")).result or b"") == 2

        wait_until(changed, "the new code runs", seconds=9, every=0.5)

        # Half a word is saved: the worker waits for the rest.
        def noticed() -> bool:
            (app / "jobs.py").write_text("from django_jobs import (")
            return "waits for the next change" in (tmp_path / "log").read_text()

        wait_until(noticed, "it says that it waits", seconds=9, every=0.5)
        waiting = site.put("version")

        def mended() -> bool:
            (app / "jobs.py").write_text(JOBS.format(version=3))
            return site.info(waiting).result == b"3"

        wait_until(mended, "the mended code runs", seconds=9, every=0.5)
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait(60)
        log.close()
