"""Real workers that stop, die and end: which of them is a finding."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.operations import diagnosis
from django_jobs.operations.diagnosis.notifying import Notice
from django_jobs.stores import use_store
from tests.integration.workers import WorkerSite, site
from tests.support.waiting import wait_until

__all__ = ["site"]
pytestmark = pytest.mark.django_db


def silent() -> list[str]:
    return [each.subject for each in diagnosis.check().findings if each.kind == "silent_worker"]


def test_a_worker_that_stands_still_or_died_is_found_and_one_that_ended_is_not(site: WorkerSite, settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "LEASE": 2}
    use_store(site.store)
    try:
        first, second = site.pool(), site.pool()
        by_pid = wait_until(
            lambda: len(found := {each.info["pid"]: each.name for each in site.store.workers()}) == 2 and found,
            "both report",
        )
        assert silent() == []
        os.kill(first.pid, signal.SIGSTOP)
        wait_until(lambda: silent() == [by_pid[first.pid]], "the one that stands still is found")
        os.kill(first.pid, signal.SIGCONT)
        wait_until(lambda: silent() == [], "it reports again")
        assert first.stop() == 0
        second.kill()
        wait_until(lambda: silent() == [by_pid[second.pid]], "the one that died is found")
        wait_until(lambda: not site.store.workers(), "it is no longer taken for alive")
        assert silent() == [by_pid[second.pid]]
        site.pool()
        wait_until(lambda: len(site.store.workers()) == 1, "another reports")
        assert silent() == [], "it replaces the one that died on this machine"
    finally:
        use_store(None)


def note(notice: Notice) -> None:
    """A callable for NOTIFY: leave a line in a file."""
    with open(os.environ["NOTICES"], "a") as file:
        file.write(f"{notice.event} {notice.kind}: {notice.says}\n")


def test_a_worker_tells_of_findings(redis_server: str, tmp_path: Path) -> None:
    site = WorkerSite(tmp_path, redis_server, NAMESPACE=f"w{uuid4().hex[:10]}", NOTIFY=[f"{__name__}.note"])
    notices = tmp_path / "notices"
    try:
        site.put("work", 1, queue="nobody")
        for _ in range(2):
            site.pool(extra={"NOTICES": str(notices)})
        said = "started no_worker: 1 job of nobody is waiting, and no worker serves this queue."
        wait_until(lambda: notices.exists() and said in notices.read_text(), "it is told", seconds=30)
        lines = notices.read_text().splitlines()
        assert len(lines) == len(set(lines)), "once in the fleet"
    finally:
        site.close()
