"""The test kit in async tests, and under another name."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from django.test import TestCase

from django_jobs import job
from django_jobs.testing import JobsTestMixin

ROOT = Path(__file__).resolve().parents[3]
PROJECT = """
import pytest

@pytest.fixture
def jobs():
    return "the project's own"

def test_both(jobs, kit):
    assert jobs == "the project's own"
    assert kit.run_all() == []
"""


@job(name="tests.kit.double")
async def double(n: int) -> int:
    return 2 * n


class AsyncTests(JobsTestMixin, TestCase):
    async def test_async_jobs_run_in_an_async_test(self) -> None:
        now, later = await double.aenqueue(2), await double.aenqueue_in(timedelta(hours=1), 3)
        assert [handle.result for handle in await self.jobs.arun_all()] == [4]
        assert [handle.result for handle in await self.jobs.arun_due()] == [6]
        assert (await now.arefresh()).state == (await later.arefresh()).state == "succeeded"


def test_the_fixture_has_another_name_where_a_project_has_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PROJECT)
    (tmp_path / "settings_of_it.py").write_text("SECRET_KEY = 'x'\nDJANGO_JOBS = {'STORE': 'memory'}\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nDJANGO_SETTINGS_MODULE = settings_of_it\npythonpath = .\ndjango_jobs_fixture = kit\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "DJANGO"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr
