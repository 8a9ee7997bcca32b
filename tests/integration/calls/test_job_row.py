"""JobRow: a row of the project shows how its job stands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.test import override_settings

from django_jobs import DuplicateJob, InvalidArguments, QueueFull, StoreUnavailable, UnknownJob, get_job, job
from django_jobs.conf import raw_setting
from django_jobs.core import registry
from django_jobs.enqueueing import commits
from django_jobs.models import JobRow
from django_jobs.models.job_row import NOTE_END, note_end
from django_jobs.operations import kept, relay
from django_jobs.stores.redis import Store
from django_jobs.testing import Jobs
from django_jobs.worker.maintenance.agenda import send_kept

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
    row = report()
    with pytest.raises(InvalidArguments):
        row.enqueue(export, 1, 2)
    assert (row.job_id, row.state) == ("", "")  # a later save() must not say that a job waits

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


@pytest.mark.parametrize("policy", ["skip", "replace", "raise"])
def test_a_row_whose_job_a_worker_has_found_to_be_a_duplicate_says_so(
    policy: str, jobs: Jobs, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, equal, other, unequal = report(), report(), report(), report()
    unique = export.using(unique="queued", on_conflict=policy)
    first.enqueue(unique, 7)
    monkeypatch.setattr(relay, "SPARE", 0.0)
    with override_settings(DJANGO_JOBS={**raw_setting(), "OUTBOX": True}):
        with monkeypatch.context() as away, transaction.atomic():
            away.setattr(Store, "reserve", away_from_here)
            away.setattr(commits, "_away_until", {})
            for row, rows in ((equal, 7), (other, 7), (unequal, 8)):
                row.enqueue(unique, rows)
        assert [each.state for each in (equal, other, unequal)] == ["queued"] * 3
        with connection.schema_editor() as editor:
            editor.alter_db_table(report, report._meta.db_table, "moved")
        assert send_kept()() == 1  # the others wait until the rows can be written
        with connection.schema_editor() as editor:
            editor.alter_db_table(report, "moved", report._meta.db_table)
        assert send_kept()() == 2
        assert [each.state for each in report.objects.order_by("pk")] == ["queued", "duplicate", "duplicate", "queued"]
        jobs.run_all()
    states = [(each.state, each.ended_at is None) for each in report.objects.order_by("pk")]
    assert states == [("succeeded", False), ("duplicate", True), ("duplicate", True), ("succeeded", False)]


@pytest.mark.parametrize("how", ["deleted", "cancelled", "cancelled by its handle", "rolled back"])
def test_a_row_whose_job_is_taken_out_of_the_outbox_says_so(
    how: str, jobs: Jobs, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, other = report(), report()
    with override_settings(DJANGO_JOBS={**raw_setting(), "OUTBOX": True}):
        with monkeypatch.context() as away, transaction.atomic():
            away.setattr(Store, "reserve", away_from_here)
            away.setattr(commits, "_away_until", {})
            handle = row.enqueue(export, 7)
            other.enqueue(export, 8)
        with suppress(ZeroDivisionError), transaction.atomic():
            if how == "deleted":
                kept.delete([entry.pk for entry in kept.rows() if entry.key == handle.id])
            elif how == "cancelled":
                get_job(handle.id).cancel()
            else:
                handle.cancel()
            if how == "rolled back":
                raise ZeroDivisionError
        state = "queued" if how == "rolled back" else "cancelled"
        assert [each.state for each in report.objects.order_by("pk")] == [state, "queued"]
        monkeypatch.setattr(relay, "SPARE", 0.0)
        send_kept()()
        jobs.run_all()
    states = [each.state for each in report.objects.order_by("pk")]
    assert states == ["succeeded" if how == "rolled back" else "cancelled", "succeeded"]


def test_a_row_whose_job_is_refused_at_the_commit_says_so(jobs: Jobs, report: Any) -> None:
    strict = export.using(unique="queued", on_conflict="raise")
    queues = {"default": {}, "small": {"MAX_LENGTH": 1}}
    with override_settings(DJANGO_JOBS={**raw_setting(), "QUEUES": queues}):
        strict.enqueue(7)
        export.using(queue="small").enqueue(7)
        for error, task in ((DuplicateJob, strict), (QueueFull, export.using(queue="small"))):
            with pytest.raises(error):
                report().enqueue(task, 7)
            with pytest.raises(error), transaction.atomic():
                report().enqueue(task, 7)
    assert list(report.objects.order_by("pk").values_list("state", flat=True)) == ["duplicate"] * 2 + ["full"] * 2


def away_from_here(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("Nobody listens.")


def test_a_row_that_was_enqueued_again_shows_the_later_job(jobs: Jobs, report: Any) -> None:
    row = report()
    with transaction.atomic():
        row.enqueue(export, 7).cancel()
        row.enqueue(export, 8)
    assert row.state == "queued"
    jobs.run_all()
    row.refresh_from_db()
    assert row.state == "succeeded"


@pytest.mark.parametrize(("rows", "told"), [(7, ("succeeded", "")), (-7, ("dead", "ValueError: no -7 rows"))])
def test_a_job_that_ended_before_others_could_see_the_row_is_told_at_the_commit(
    rows: int, told: tuple[str, str], jobs: Jobs, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ON_COMMIT, and in a database that is not DATABASE, the job does not wait for the commit of the row."""
    row = report()
    with transaction.atomic():
        row.enqueue(export.using(on_commit=False), rows)
        with monkeypatch.context() as elsewhere:  # a worker does not see the row
            elsewhere.setattr(apps, "get_models", list)
            jobs.run_all()
        assert row.state == "queued"
    row.refresh_from_db()
    assert (row.state, row.error) == told
    assert row.started_at <= row.ended_at


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


def test_a_row_in_another_database_is_told_there() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", OTHER_DATABASE], check=True, timeout=60)


OTHER_DATABASE = """
import django
from django.conf import settings

memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django_jobs"], DATABASES={"default": memory, "other": memory},
    DJANGO_JOBS={"STORE": "memory"}, USE_TZ=True,
)
django.setup()
from unittest.mock import patch
from django.apps import apps
from django.db import connections, transaction
from django_jobs.models import JobRow
from django_jobs.operations import kept, relay
from django_jobs.stores.redis import Store
from django_jobs.testing import Jobs
from django_jobs.worker.maintenance.agenda import send_kept
from tests.integration.calls.test_job_row import export

class Report(JobRow):
    class Meta:
        app_label = "contenttypes"

for connection in connections.all():
    with connection.schema_editor() as editor:
        editor.create_model(Report)
def enqueue(rows):
    row = Report()
    row.save(using="other")
    return row.enqueue(export.using(meta={"mine": 1}), rows)

with Jobs() as jobs:
    for rows in (7, -7):
        handle = enqueue(rows)
        assert b'"mine":1' in jobs.store.get(handle.queue, handle.id).record
    jobs.run_all()
    with transaction.atomic(using="other"):
        enqueue(8)
        with transaction.atomic():  # commits first
            enqueue(-8)
        with patch.object(apps, "get_models", list):  # a worker does not see the rows
            jobs.run_all()
    enqueue(9)
    jobs.run_all()
states = list(Report.objects.using("other").order_by("pk").values_list("state", flat=True))
assert states == [*["succeeded", "dead"] * 2, "succeeded"], states
assert not Report.objects.exists()
"""
