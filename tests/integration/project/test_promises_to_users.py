"""What a project may count on, said with the test kit and without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_jobs import State, job
from django_jobs.conf import read
from django_jobs.core import registry
from django_jobs.core.options.declared import JobOptions
from django_jobs.testing import Jobs

calls: list[Any] = []


@job(name="promises.note")
def note(value: str) -> str:
    calls.append(value)
    return value.upper()


@job(name="promises.anote")
async def anote(value: str) -> str:
    await asyncio.sleep(0)
    return value


@job(name="promises.broken")
def broken() -> None:
    raise OSError("no route")


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    calls.clear()


@pytest.mark.accepts("O01", "P15")
def test_a_job_is_a_plain_function_that_can_be_called_without_any_queue() -> None:
    assert note("a") == "A"
    assert asyncio.run(anote("b")) == "b"


@pytest.mark.accepts("P15")
def test_the_same_function_runs_behind_the_queue(jobs: Jobs) -> None:
    handle = note.enqueue("a")
    assert calls == []
    jobs.run_all()
    assert (calls, handle.refresh().result) == (["a"], "A")


@pytest.mark.accepts("P17", "G06")
def test_a_job_that_always_fails_ends_by_itself_as_dead(jobs: Jobs) -> None:
    handle = broken.enqueue()
    rounds = 0
    while handle.refresh().state != State.DEAD:
        rounds += 1
        assert rounds <= 10, "it is tried for ever"
        jobs.run_due()
    assert rounds == JobOptions().max_attempts == 10
    assert handle.error == "OSError: no route"


@pytest.mark.accepts("O09")
def test_waiting_for_a_job_has_a_time_limit_and_an_answer(jobs: Jobs) -> None:
    handle = note.enqueue("a")
    with pytest.raises(TimeoutError, match=r"is queued after 0\.01 s"):
        handle.wait(timeout=0.01)
    jobs.run_all()
    assert handle.wait(timeout=0.01) == "A"


@pytest.mark.accepts("G43", "G39")
def test_without_settings_there_is_one_queue_and_no_limit() -> None:
    settings = read({"STORE": "memory"})
    assert list(settings.queues) == ["default"] == [JobOptions().queue]
    assert settings.queues["default"].max_concurrency == 0
    assert JobOptions().max_concurrency == 0
    assert registry.get("promises.note").max_concurrency == 0
