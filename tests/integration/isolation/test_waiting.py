"""A job that waits for another would keep the thread that the other needs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from django_jobs import JobHandle, chain, job
from django_jobs.testing import Jobs


@job(name="tests.waiting.other")
def other() -> int:
    return 1


@job(name="tests.waiting.waits", max_attempts=1)
def waits() -> int:
    handle: JobHandle[int] = other.enqueue()
    return handle.wait(60)


@job(name="tests.waiting.waits_for_workflow", max_attempts=1)
def waits_for_workflow() -> None:
    chain(other.s()).enqueue().wait(60)


@pytest.mark.parametrize("task", [waits, waits_for_workflow], ids=lambda task: task.name)
def test_it_is_refused_at_once_and_says_what_to_do(jobs: Jobs, task: Any) -> None:
    handle = task.enqueue()
    jobs.run_all()
    assert handle.refresh().state == "dead"
    assert re.search(r"on a thread that runs jobs.*await_result", handle.error or "")
