"""An id that the caller gives: how many jobs come of it, and what the handle says."""

from __future__ import annotations

import pytest

from django_jobs import JobFailed, job
from django_jobs.stores import get_store
from django_jobs.testing import Jobs
from tests.integration.enqueueing import in_memory

__all__ = ["in_memory"]

charged: list[int] = []


@job(name="tests.ids.charge", delivery="at_most_once")
def charge(order: int) -> None:
    charged.append(order)


@job(name="tests.ids.fail", max_attempts=1)
def fail() -> None:
    raise ValueError("no")


@pytest.fixture(autouse=True)
def _nothing_charged() -> None:
    charged.clear()


def forget(id: str) -> None:
    """As HISTORY does after some other jobs."""
    assert get_store().delete("default", [id]) == [id]


@pytest.mark.accepts("K08")
def test_the_second_call_adds_nothing_though_the_first_job_has_left_the_history(jobs: Jobs) -> None:
    charge.using(job_id="charge-7").enqueue(7)
    jobs.run_all()
    forget("charge-7")
    again = charge.using(job_id="charge-7").enqueue(7)
    jobs.run_all()
    assert charged == [7]
    assert again.state == "succeeded"
    assert again.refresh().wait(1) is None


def test_the_handle_of_a_job_that_failed_and_left_says_so(jobs: Jobs) -> None:
    fail.using(job_id="f").enqueue()
    jobs.run_all()
    forget("f")
    again = fail.using(job_id="f").enqueue()
    assert again.state == "dead"
    with pytest.raises(JobFailed, match="dead"):
        again.wait(1)


def test_a_job_that_must_not_run_twice_is_remembered_under_the_id_that_was_made_for_it(jobs: Jobs) -> None:
    first = charge.enqueue(7)
    jobs.run_all()
    forget(first.id)
    charge.using(job_id=first.id).enqueue(7)
    jobs.run_all()
    assert charged == [7]
