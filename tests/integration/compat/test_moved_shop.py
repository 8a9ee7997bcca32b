"""A shop that was written for Celery is moved by changing its imports: its own tests pass on both systems."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_jobs.compat.celery.conf import conf
from django_jobs.compat.celery.schedules import entries
from django_jobs.testing import Jobs
from tests.integration.compat.moved_shop import checks
from tests.support.backends.missing import missing

HERE = Path(checks.__file__).parent
#: A name of the layer → Celery's module that has it.
HOMES = {"AsyncResult": "celery.result", "crontab": "celery.schedules", "get_task_logger": "celery.utils.log"}
#: Runs the shop's tests on Celery.
ON_CELERY = """
    import json, sys, time, traceback
    import django
    from django.conf import settings
    settings.configure(CELERY_BROKER_URL="memory://", CELERY_RESULT_BACKEND="cache+memory://", INSTALLED_APPS=[])
    django.setup()
    from celery.contrib.testing.worker import start_worker
    from shop import checks, tasks
    from shop.celery_app import app
    app.set_default()
    app.finalize()

    def until(condition):
        ends = time.monotonic() + 15
        while not condition():
            assert time.monotonic() < ends, "it never came"
            time.sleep(0.05)

    found = {}
    with start_worker(app, pool="solo", concurrency=1, perform_ping_check=False, loglevel="CRITICAL"):
        for check in checks.CHECKS:
            checks.begin()
            try:
                check(until)
                found[check.__name__] = ""
            except Exception:
                found[check.__name__] = traceback.format_exc()
    print(json.dumps(found))
"""


def written_for_celery(text: str) -> str:
    """A module of the shop as it was before: other imports, and nothing else."""
    lines = []
    for line in text.splitlines():
        if match := re.fullmatch(r"from django_jobs\.compat\.celery(\.\w+)? import (.*)", line):
            module, names = f"celery{match[1] or ''}", match[2].split(", ")
            for name in names:
                lines.append(f"from {HOMES.get(name, module)} import {name}")
        else:
            lines.append(line.replace("tests.integration.compat.moved_shop", "shop"))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shop as it was."""
    folder = tmp_path_factory.mktemp("before")
    shutil.copytree(HERE, folder / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "shop").glob("*.py"):
        path.write_text(written_for_celery(path.read_text()))
    return folder


@pytest.fixture(scope="module")
def on_celery(before: Path) -> dict[str, str]:
    """What each of the shop's tests said on Celery; "" if it passed."""
    if find_spec("celery") is None:
        missing("Celery is not installed.")
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ON_CELERY)], cwd=before, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.fixture
def until(jobs: Jobs) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Run jobs until a condition is true."""

    def work(condition: Callable[[], Any]) -> None:
        for _ in range(50):
            if condition():
                return
            jobs.run_due()
        raise AssertionError("it never came")

    kept = dict(conf._set)
    yield work
    conf._set.clear()
    conf._set.update(kept)


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_the_shop_passes_its_tests_here(check: Any, until: Any) -> None:
    checks.begin()
    check(until)


@pytest.mark.parametrize("name", [check.__name__ for check in checks.CHECKS])
def test_the_shop_passed_its_tests_on_celery(name: str, on_celery: dict[str, str]) -> None:
    assert on_celery[name] == ""


def test_nothing_but_imports_has_changed(before: Path) -> None:
    for path in HERE.glob("*.py"):
        old, new = (before / "shop" / path.name).read_text().splitlines(), path.read_text().splitlines()
        others = [line for line in old if line not in new] + [line for line in new if line not in old]
        assert [line for line in others if not line.startswith("from ")] == []


def test_the_audit_finds_nothing_to_rewrite_in_the_shop_as_it_was(before: Path) -> None:
    with override_settings(BASE_DIR=before):
        call_command("jobs", "audit-celery", stdout=StringIO())


def test_the_schedule_of_the_shop_runs_here() -> None:
    from tests.integration.compat.moved_shop.celery_app import app

    assert app.conf.beat_schedule
    assert {entry.label: entry.cron for entry in entries()} == {"nightly": "30 3 * * *", "every-minute": "@every 60s"}
