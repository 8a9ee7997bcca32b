"""`soft_timeout`: a job is told that its time is over; a coroutine is cancelled."""

from __future__ import annotations

import asyncio
import time

import pytest

from django_jobs import JobContext
from django_jobs.checks import check_jobs
from django_jobs.core.definition import JobDefinition
from django_jobs.core.registry import register, unregister
from django_jobs.core.values import State
from django_jobs.exceptions import InvalidJob
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]


def test_a_function_sees_it_and_goes_on_as_it_likes(bench: Bench) -> None:
    def work(ctx: JobContext) -> str | None:
        deadline = time.monotonic() + 30
        while not ctx.should_stop and time.monotonic() < deadline:
            time.sleep(0.005)
        return ctx.stop_reason

    info = bench.run(work, soft_timeout=0.05, takes_context=True)
    assert (info.state, info.result) == (State.SUCCEEDED, b'"timeout"')


def test_a_coroutine_is_cancelled_and_that_is_a_failure_like_any(bench: Bench) -> None:
    tidied = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            tidied.append(True)

    info = bench.run(work, soft_timeout=0.05)
    (attempt,) = info.attempts
    assert (info.state, attempt.outcome, attempt.error_name) == (State.RETRY, "failed", "TimeoutError")
    assert "soft_timeout of 0.05 s" in attempt.error
    assert tidied


def test_a_coroutine_that_returns_all_the_same_has_succeeded(bench: Bench) -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "what was done so far"
        return "all"

    info = bench.run(work, soft_timeout=0.05)
    assert (info.state, info.result) == (State.SUCCEEDED, b'"what was done so far"')


def test_a_timeout_of_its_own_keeps_its_words(bench: Bench) -> None:
    async def work() -> None:
        raise TimeoutError("the bank said nothing")

    assert bench.run(work, soft_timeout=30, max_attempts=1).attempts[0].error == "the bank said nothing"


def work() -> None:
    return


@pytest.mark.parametrize("soft", [5, 6])
def test_it_must_come_before_the_time_limit(soft: float) -> None:
    with pytest.raises(InvalidJob, match="is not less than timeout=5"):
        JobDefinition(work, soft_timeout=soft, timeout=5)


def test_a_default_that_contradicts_a_job_is_found_by_check(settings) -> None:  # type: ignore[no-untyped-def]
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "JOB_DEFAULTS": {"timeout": 3}}
    definition = JobDefinition(work, name="contradicts", soft_timeout=5)
    register(definition)
    try:
        assert [(m.id, m.obj) for m in check_jobs() if m.obj is definition] == [("django_jobs.E016", definition)]
    finally:
        unregister("contradicts")
