"""What tasks of Celery's kind do on a real worker: limits, lost processes, and the signals of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.compat.celery import AsyncResult
from django_jobs.compat.celery.exceptions import TimeLimitExceeded, WorkerLostError
from django_jobs.stores import use_store
from tests.integration.compat.celery_project import more, tasks
from tests.integration.workers import WorkerSite
from tests.support.waiting import wait_until


class CelerySite(WorkerSite):
    """Workers of the project with tasks."""

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            **super().environment(**extra),
            "DJANGO_SETTINGS_MODULE": "tests.integration.compat.celery_project.settings",
            "CELERY_NOTES": str(self.notes),
        }

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def read(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture
def site(redis_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CelerySite]:
    made = CelerySite(tmp_path, redis_server, NAMESPACE=f"c{uuid4().hex[:10]}")
    use_store(made.store)
    yield made
    made.close()


@pytest.fixture
def ended(site: CelerySite) -> Callable[[Any], AsyncResult]:
    """Wait until a task has ended."""

    def wait(result: AsyncResult) -> AsyncResult:
        wait_until(result.ready, f"{result!r} has ended", seconds=20)
        return result

    return wait


@pytest.mark.parametrize("how", ["sleep", "loop", "lock", "read"])
def test_a_soft_limit_is_raised_inside_a_task_that_blocks(site: CelerySite, ended: Any, how: str) -> None:
    site.pool()
    assert ended(tasks.sleeps.delay(how)).result == f"{how} was told"


def test_a_soft_limit_of_one_call_counts(site: CelerySite, ended: Any) -> None:
    site.pool()
    result = ended(tasks.strict.apply_async(soft_time_limit=0.1))
    assert (result.state, type(result.result).__name__) == ("FAILURE", "SoftTimeLimitExceeded")


def test_a_time_limit_ends_a_task_once(site: CelerySite, ended: Any) -> None:
    site.pool()
    result = ended(tasks.strict.delay())
    assert result.state == "FAILURE"
    assert isinstance(result.result, TimeLimitExceeded)


def test_a_task_that_was_lost_with_its_process_runs_again_only_with_acks_late(site: CelerySite, ended: Any) -> None:
    site.pool()
    early = ended(tasks.lost.delay("x"))
    assert isinstance(early.result, WorkerLostError)
    assert site.read().count("lost ran") == 1
    assert ended(tasks.lost_late.delay(str(site.folder / "once"))).state == "SUCCESS"


def test_the_errback_of_a_lost_task_runs(site: CelerySite, ended: Any) -> None:
    site.pool()
    result = tasks.lost.apply_async(("x",), link_error=tasks.told.s())
    wait_until(lambda: f"errback {result.id}" in site.read(), "the errback has run", seconds=20)


def test_retries_and_hooks_of_a_module_that_the_settings_name(site: CelerySite, ended: Any) -> None:
    site.pool()
    assert ended(more.retried.delay()).state == "FAILURE"
    assert [line for line in site.read() if line not in ("began", "ends")] == ["try 0", "try 1", "failed KeyError"]


def test_each_process_says_that_it_begins_and_ends(site: CelerySite) -> None:
    pool = site.pool()
    wait_until(lambda: site.read().count("began") == 2, "both processes have begun", seconds=20)
    assert pool.stop() == 0
    assert site.read().count("ends") == 2
