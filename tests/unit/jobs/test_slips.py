"""What newcomers get wrong is understood, or answered with what to do."""

from __future__ import annotations

import enum
import importlib
import logging
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
from django.core.checks import CheckMessage
from django.db import DatabaseError, models
from django.test import override_settings
from django.utils import translation
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from django_jobs import InvalidArguments, InvalidJob, PayloadError, Retry, checks, get_job, job
from django_jobs.core import registry
from django_jobs.formatting import migrate_hint
from django_jobs.testing import Jobs

MODULE = "slips_of_a_newcomer"
ONE = "from django_jobs import job\n\n\n@job\ndef send(): ...\n"
TWICE = ONE + "\n\n@job\ndef send(): ...\n"


class Size(models.TextChoices):
    SMALL = "s", "small"


class Rank(models.IntegerChoices):
    FIRST = 1, "first"


class Colour(enum.Enum):
    RED = object()


@job(name="tests.slips.take")
def take(value: Any) -> Any:
    return value


@job(name="tests.slips.fail")
def fail(secret: str) -> None:
    raise ValueError("the shelf is empty")


@job(name="tests.slips.again")
def again() -> None:
    raise Retry("not yet", in_=5)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that can be imported as MODULE."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / f"{MODULE}.py"
    sys.modules.pop(MODULE, None)
    registry.unregister(f"{MODULE}.send")


# -- definitions ---------------------------------------------------------------


def test_two_jobs_of_one_name_in_one_module_are_refused_with_their_lines(module: Path) -> None:
    module.write_text(TWICE)
    with pytest.raises(InvalidJob, match=r"slips_of_a_newcomer\.send is defined twice .* at lines 4 and 8"):
        importlib.import_module(MODULE)


def test_a_module_may_be_imported_again_and_its_job_may_have_moved(module: Path) -> None:
    module.write_text(ONE)
    made = importlib.import_module(MODULE)
    module.write_text("\n\n" + ONE)
    importlib.invalidate_caches()
    importlib.reload(made)
    del sys.modules[MODULE]
    assert isinstance(importlib.import_module(MODULE), ModuleType)


@pytest.mark.parametrize("where", ["__main__", "__console__", "builtins", None])
def test_a_job_of_a_script_or_a_shell_is_refused_because_no_worker_finds_it(where: str | None) -> None:
    def tried() -> None: ...

    tried.__module__, tried.__qualname__ = where, "tried"  # type: ignore[assignment]
    with pytest.raises(InvalidJob, match=r"job tried is defined in a script or a shell.*jobs\.py"):
        job(tried)


# -- arguments -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "meant"),
    [(Size.SMALL, "s"), (Rank.FIRST, 1), (mark_safe("<b>"), "<b>"), ([Size.SMALL, {"a": Rank.FIRST}], ["s", {"a": 1}])],
    ids=["TextChoices", "IntegerChoices", "SafeString", "nested"],
)
def test_text_and_numbers_of_django_are_what_they_are(jobs: Jobs, value: Any, meant: Any) -> None:
    handle = take.enqueue(value)
    jobs.run_all(raise_errors=True)
    result = handle.refresh().result
    assert result == meant
    assert type(result) is type(meant)


def test_a_lazy_translation_is_its_text_in_the_language_of_the_caller(jobs: Jobs) -> None:
    with translation.override("de"):
        handle = take.enqueue(gettext_lazy("Yes"))
    with translation.override("en"):
        jobs.run_all(raise_errors=True)
    assert handle.refresh().result == "Ja"


def test_two_forms_of_one_value_are_one_unique_job(jobs: Jobs) -> None:
    assert take.enqueue_unique(Size.SMALL) is not None
    assert take.enqueue_unique("s") is None


def test_an_enum_that_is_neither_text_nor_a_number_is_refused(jobs: Jobs) -> None:
    with pytest.raises(PayloadError, match=r"Colour, which cannot be stored"):
        take.enqueue(Colour.RED)


def test_a_uuid_is_an_id(jobs: Jobs) -> None:
    wanted = uuid4()
    handle = take.using(job_id=wanted).enqueue(1)
    assert handle.id == str(wanted)
    assert get_job(wanted) == handle
    assert [each.id for each in take.enqueue_many([(1,)], job_ids=[uuid4()])] != [handle.id]  # type: ignore[list-item]


def test_a_time_without_a_zone_is_refused_with_what_to_write_in_such_a_project(jobs: Jobs) -> None:
    with (
        override_settings(USE_TZ=False),
        pytest.raises(InvalidArguments, match=r"USE_TZ is False.*datetime\.now\(UTC\)"),
    ):
        take.enqueue_at(datetime(2040, 1, 1), 1)
    with pytest.raises(InvalidArguments, match=r"make_aware") as told:
        take.enqueue_at(datetime(2040, 1, 1), 1)
    assert "USE_TZ" not in str(told.value)


# -- settings ------------------------------------------------------------------


def ids(messages: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


def test_an_embedded_store_without_base_dir_is_noticed() -> None:
    with override_settings(DJANGO_JOBS={"STORE": "embedded"}, BASE_DIR=None):
        assert "django_jobs.W005" in ids(checks.check_settings())
    with override_settings(DJANGO_JOBS={}, DEBUG=True, BASE_DIR=None):
        assert "django_jobs.W005" in ids(checks.check_settings())
    with override_settings(DJANGO_JOBS={"STORE": "embedded:/srv/jobs"}, BASE_DIR=None):
        assert checks.check_settings() == []
    with override_settings(DJANGO_JOBS={"STORE": "embedded"}, BASE_DIR="/srv"):
        assert checks.check_settings() == []


@pytest.mark.parametrize(
    "text",
    [
        "no such table: django_jobs_schedule",
        'relation "django_jobs_schedule" does not exist',
        "Table 'x' doesn't exist",
    ],
)
def test_a_missing_table_names_migrate(text: str) -> None:
    assert migrate_hint(DatabaseError(text)) == ". Run `manage.py migrate`"
    assert migrate_hint(DatabaseError("connection refused")) == ""


# -- errors of jobs in development ---------------------------------------------


def test_in_development_a_failure_is_shown_with_its_traceback(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(DEBUG=True), caplog.at_level(logging.WARNING):
        fail.enqueue("hush")
        jobs.run_all()
    (record,) = [record for record in caplog.records if "failed in attempt 1" in record.getMessage()]
    assert "Traceback" in record.getMessage()
    assert "ValueError: the shelf is empty" in record.getMessage()


def test_in_development_so_is_one_that_runs_where_it_is_enqueued(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(DEBUG=True), jobs.eager(), caplog.at_level(logging.WARNING):
        fail.enqueue("hush")
    assert "ValueError: the shelf is empty" in caplog.text


def test_elsewhere_and_for_a_wish_of_the_job_none_is_shown(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        fail.enqueue("hush")
        with override_settings(DEBUG=True):
            again.enqueue()
            jobs.run_due()
    assert "not yet" not in caplog.text
    with caplog.at_level(logging.WARNING), override_settings(DEBUG=False):
        caplog.clear()
        fail.enqueue("hush")
        jobs.run_all()
    assert "the shelf is empty" not in caplog.text
