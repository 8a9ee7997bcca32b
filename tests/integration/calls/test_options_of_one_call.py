"""Options of a job type that one call changes: the job has them with it, and the worker obeys them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from django_jobs import PREVIOUS, InvalidWorkflow, JobContext, chain, get_job, job
from django_jobs.stores import get_store
from django_jobs.testing import Jobs
from tests.integration.sample_jobs import failing, receipt

TOO_LATE = "The attempt ran longer than its time limit of 0.01 s and was ended."


@job(name="tests.one_call.slow")
def slow() -> str:
    threading.Event().wait(0.05)
    return "done"


@job(name="tests.one_call.slow_and_limited", timeout=0.01)
def slow_and_limited() -> str:
    return slow()


@job(name="tests.one_call.asked", takes_context=True, soft_timeout=3600)
def asked(ctx: JobContext) -> str:
    threading.Event().wait(0.05)
    return ctx.stop_reason or "goes on"


@job(name="tests.one_call.waits")
async def waits() -> str:
    await asyncio.sleep(0.2)
    return "done"


@job(name="tests.one_call.waits_no_longer", soft_timeout=0.01)
async def waits_no_longer() -> str:
    return await waits()


@job(name="tests.one_call.patient", backoff=[1000])
def patient() -> None:
    raise ValueError("no")


@job(name="tests.one_call.forgetful", keep_result=0)
def forgetful() -> str:
    return "found"


def ended(jobs: Jobs, handle: Any) -> Any:
    jobs.run_all()
    return get_job(handle.id)


def pause_of(jobs: Jobs, handle: Any) -> float:
    """Return in how many seconds after its failure a job is tried again."""
    ended(jobs, handle)
    info = get_store().get(handle.queue, handle.id)
    assert info is not None
    return (info.at - info.attempts[-1].at) / 1000


class TestTimeLimit:
    def test_a_call_may_set_one(self, jobs: Jobs) -> None:
        assert ended(jobs, slow.enqueue()).result == "done"
        assert TOO_LATE in ended(jobs, slow.using(timeout=0.01).enqueue()).error

    def test_a_call_may_do_without(self, jobs: Jobs) -> None:
        assert TOO_LATE in ended(jobs, slow_and_limited.enqueue()).error
        assert ended(jobs, slow_and_limited.using(timeout=None).enqueue()).result == "done"

    def test_jobs_of_enqueue_many_have_it(self, jobs: Jobs) -> None:
        handles = slow.using(timeout=0.01).enqueue_many([(), ()])
        assert all(TOO_LATE in ended(jobs, handle).error for handle in handles)


class TestSoftLimit:
    def test_a_call_may_set_or_change_it(self, jobs: Jobs) -> None:
        assert ended(jobs, asked.enqueue()).result == "goes on"
        assert ended(jobs, asked.using(soft_timeout=0.01).enqueue()).result == "timeout"
        assert "soft_timeout of 0.01 s" in ended(jobs, waits.using(soft_timeout=0.01).enqueue()).error

    def test_a_call_may_do_without(self, jobs: Jobs) -> None:
        assert "soft_timeout of 0.01 s" in ended(jobs, waits_no_longer.enqueue()).error
        assert ended(jobs, waits_no_longer.using(soft_timeout=None).enqueue()).result == "done"


class TestPauses:
    def test_a_call_may_set_them(self, jobs: Jobs) -> None:
        assert pause_of(jobs, failing.using(backoff=[300, 5]).enqueue(7)) == pytest.approx(300, abs=1)
        assert pause_of(jobs, failing.using(backoff=0.5).enqueue(7)) == pytest.approx(0.5, abs=0.1)
        assert pause_of(jobs, patient.using(backoff=[300]).enqueue()) == pytest.approx(300, abs=1)

    def test_a_call_may_do_without(self, jobs: Jobs) -> None:
        assert pause_of(jobs, patient.enqueue()) == pytest.approx(1000, abs=1)
        assert 16 <= pause_of(jobs, patient.using(backoff=None).enqueue()) < 40


class TestResult:
    def test_a_call_may_leave_it_out(self, jobs: Jobs) -> None:
        missing = ended(jobs, receipt.using(keep_result=0).enqueue(7)).result_missing
        assert missing == "The job has keep_result=0, so its result is never stored."

    def test_a_call_may_keep_it(self, jobs: Jobs) -> None:
        assert not ended(jobs, forgetful.enqueue()).result
        assert ended(jobs, forgetful.using(keep_result=60).enqueue()).result == "found"

    def test_no_step_may_name_a_result_that_is_not_kept(self, jobs: Jobs) -> None:
        with pytest.raises(InvalidWorkflow, match="has keep_result=0"):
            chain(receipt.using(keep_result=0).s(7), receipt.s(PREVIOUS)).enqueue()


def test_a_later_using_adds_to_an_earlier_one(jobs: Jobs) -> None:
    handle = slow.using(timeout=0.01).using(keep_result=0, backoff=[300]).enqueue()

    assert pause_of(jobs, handle) == pytest.approx(300, abs=1)
    assert TOO_LATE in get_job(handle.id).error  # type: ignore[operator]
