"""JobRow: a row of the project shows how its job stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction

from django_jobs import InvalidArguments, UnknownJob, job
from django_jobs.core import registry
from django_jobs.models import JobRow
from django_jobs.models.job_row import NOTE_END, note_end
from django_jobs.testing import Jobs

TOLD: list[str] = []


@job(name="tests.rows.export", max_attempts=1)
def export(rows: int) -> int:
    if rows < 0:
        raise ValueError(f"no {rows} rows")
    return rows


@job(name="tests.rows.told")
def told(end: dict[str, Any]) -> None:
    TOLD.append(end["state"])
    note_end(end)


@pytest.fixture
def report(transactional_db: None) -> Iterator[Any]:
    class Report(JobRow):
        class Meta:
            app_label = "sessions"

    with connection.schema_editor() as editor:
        editor.create_model(Report)
    yield Report
    with connection.schema_editor() as editor:
        editor.delete_model(Report)
    del apps.all_models["sessions"]["report"]
    apps.clear_cache()
    registry.unregister(NOTE_END)


def test_the_row_shows_the_end_of_its_job(jobs: Jobs, report: Any) -> None:
    row = report()
    handle = row.enqueue(export, 7)
    row.refresh_from_db()
    assert (row.job_id, row.state, row.ended_at) == (handle.id, "queued", None)
    jobs.run_all()
    row.refresh_from_db()
    assert (row.state, row.error) == ("succeeded", "")
    assert row.started_at <= row.ended_at


def test_each_end_is_shown_and_an_earlier_one_that_comes_late_is_not(jobs: Jobs, report: Any) -> None:
    row = report()
    handle = row.enqueue(export.using(max_attempts=1), -7)
    jobs.run_all()
    row.refresh_from_db()
    assert (row.state, row.error) == ("dead", "ValueError: no -7 rows")
    first = row.ended_at
    jobs.travel(60)
    jobs.store.revive(handle.queue, [handle.id])
    jobs.run_all()
    row.refresh_from_db()
    assert row.ended_at > first
    end = {"id": handle.id, "state": "cancelled", "error": None, "started_at": None, "ended_at": first}
    note_end(end)
    row.refresh_from_db()
    assert row.state == "dead"


def test_what_rolls_back_leaves_neither_row_nor_job(jobs: Jobs, report: Any) -> None:
    with pytest.raises(InvalidArguments):
        report().enqueue(export, 1, 2)

    def fails() -> None:
        with transaction.atomic():
            report().enqueue(export, 7)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (report.objects.count(), jobs.enqueued()) == (0, [])


def test_a_row_whose_job_was_not_added_says_so(jobs: Jobs, report: Any) -> None:
    first, equal, cancelled = report(), report(), report()
    unique = export.using(unique="queued")
    with transaction.atomic():
        first.enqueue(unique, 7)
        equal.enqueue(unique, 7)
        cancelled.enqueue(export, 8).cancel()
    assert (first.state, equal.state, cancelled.state) == ("queued", "duplicate", "cancelled")
    jobs.run_all()
    assert sorted(report.objects.values_list("state", flat=True)) == ["cancelled", "duplicate", "succeeded"]


def test_a_row_that_was_enqueued_again_shows_the_later_job(jobs: Jobs, report: Any) -> None:
    row = report()
    with transaction.atomic():
        row.enqueue(export, 7).cancel()
        row.enqueue(export, 8)
    assert row.state == "queued"
    jobs.run_all()
    row.refresh_from_db()
    assert row.state == "succeeded"


def test_a_job_with_an_end_of_its_own_keeps_it(jobs: Jobs, report: Any) -> None:
    TOLD.clear()
    row = report()
    row.enqueue(export.using(on_end=told), 7)
    jobs.run_all()
    row.refresh_from_db()
    assert (TOLD, row.state) == (["succeeded"], "succeeded")


def test_a_project_without_such_a_model_has_no_job_for_it() -> None:
    with pytest.raises(UnknownJob):
        registry.get(NOTE_END)
