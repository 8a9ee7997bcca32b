"""What a job's code raises while the end of its attempt is worked out ends neither the process nor another attempt."""

from __future__ import annotations

import json

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site

__all__ = ["site"]

CASES = {
    "returns_lazy": ([], State.SUCCEEDED),
    "raises_unprintable": ([], State.DEAD),
    "raises_frozen": ([], State.DEAD),
    "backoff_leaves": ([], State.RETRY),
    "retries_in_ages": ([True], State.RETRY),
    "snoozes_for_ages": ([False], State.SCHEDULED),
    "retries_without_key": ([1], State.RETRY),
}


@pytest.mark.parametrize("name", CASES)
def test_no_code_of_a_job_ends_the_process(site: WorkerSite, name: str) -> None:
    arguments, state = CASES[name]
    options = {"max_attempts": 1} if state is State.DEAD else {}
    id = site.put(name, *arguments, **options)
    site.pool()
    assert site.wait(id, state, State.DEAD, State.SUCCEEDED).crashes == 0
    assert site.info(id).state is state


def test_a_thread_that_an_attempt_left_behind_stops_no_later_attempt(site: WorkerSite) -> None:
    site.pool()
    id = site.put("leaves_a_thread", str(site.folder / "goes on"))
    assert json.loads(site.wait(id).result or b"") == "stops: None"
