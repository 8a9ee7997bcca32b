"""Each row of the table of behaviours is true: what it calls the same is the same on Celery, and the rest is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from django_jobs.compat import celery
from django_jobs.compat.celery import signals
from django_jobs.compat.celery.conf import conf
from django_jobs.core import registry
from django_jobs.testing import Jobs
from tests.docs.pages import ROOT
from tests.integration.compat.rows import ROWS, Row, Side, outcome_of
from tests.support.backends.missing import missing

PAGE = ROOT / "docs" / "howto" / "celery-layer.md"


@pytest.fixture(scope="module")
def on_celery() -> dict[str, Any]:
    """What each row gave on Celery."""
    if find_spec("celery") is None:
        missing("Celery is not installed.")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.integration.compat.rows"], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.fixture
def here(jobs: Jobs) -> Iterator[Side]:
    """This side, run by the test kit."""
    names = SimpleNamespace(
        **{name: getattr(celery, name) for name in ("Task", "chain", "chord", "group", "Ignore", "AsyncResult")},
        signals=signals,
    )
    make = celery.shared_task  # its first use registers the job that runs error callbacks
    before, known = dict(conf._set), set(registry.names())
    with override_settings(CELERY_RESULT_BACKEND="redis://"):
        yield Side(names, make, conf, jobs.run_due)
    conf._set.clear()
    conf._set.update(before)
    for name in set(registry.names()) - known:
        registry.unregister(name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_the_same_or_different_as_the_page_says(row: Row, on_celery: dict[str, Any], here: Side) -> None:
    assert (outcome_of(here, row) == on_celery[row.name]) == (not row.here), on_celery[row.name]


def test_the_page_has_each_row() -> None:
    rows = [f"| {row.what} | {f'different: {row.here}' if row.here else 'same'} |" for row in ROWS]
    assert [
        line for line in PAGE.read_text().splitlines() if line.endswith((" same |",)) or "| different:" in line
    ] == rows
