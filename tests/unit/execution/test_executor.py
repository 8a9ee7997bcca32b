"""One claim to its outcome: what the function does, what cannot be run, and async functions."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_jobs.core.context import JobContext, RunningJob, current_job
from django_jobs.core.values import State
from django_jobs.exceptions import Discard, Fail, Retry, Snooze
from django_jobs.execution.executor import Executor
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]


@pytest.mark.accepts("G13", "G18", "G52")
def test_a_job_runs_with_its_arguments_and_its_result_is_kept(bench: Bench) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    info = bench.run(add, 2, 3)
    assert (info.state, info.result) == (State.SUCCEEDED, b"5")


@pytest.mark.accepts("G50", "G53", "R15", "P16")
def test_a_job_that_raises_waits_for_its_retry_with_the_reason_in_its_log(bench: Bench) -> None:
    def boom() -> None:
        raise ValueError("no paper")

    info = bench.run(boom, backoff=[60])
    assert (info.state, info.failures) == (State.RETRY, 1)
    (attempt,) = info.attempts
    assert (attempt.outcome, attempt.error_type, attempt.error) == ("failed", "builtins.ValueError", "no paper")
    assert "in boom" in attempt.traceback


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), StopIteration(), GeneratorExit()])
def test_no_exception_of_a_job_is_the_end_of_the_worker(bench: Bench, error: BaseException) -> None:
    def leave() -> None:
        raise error

    async def aleave() -> None:
        raise error

    assert bench.run(leave).state is State.RETRY
    assert bench.run(aleave).state is State.RETRY


@pytest.mark.parametrize(
    ("signal", "state", "failures"),
    [
        (Retry(in_=5), State.RETRY, 1),
        (Snooze(in_=5), State.SCHEDULED, 0),
        (Discard("old"), State.CANCELLED, 0),
        (Fail("no"), State.DEAD, 1),
    ],
)
def test_function_and_middleware_may_decide_what_happens_next(
    bench: Bench, signal: Exception, state: State, failures: int
) -> None:
    def decide() -> None:
        raise signal

    def layer(get_next: Any) -> Any:
        def refuse(job: RunningJob) -> None:
            raise signal

        return refuse

    def fine() -> None:
        raise AssertionError("the middleware lets nothing through")

    for info in (bench.run(decide), bench.run(fine, middleware=[layer])):
        assert info.state is state
        if state is not State.CANCELLED:
            assert info.failures == failures


@pytest.mark.accepts("G21", "G82")
def test_arguments_that_no_longer_fit_the_function_say_so(bench: Bench) -> None:
    def changed(order_id: int, *, currency: str) -> None:
        raise AssertionError

    info = bench.run(changed, 1)
    assert "cannot be called like this" in info.attempts[0].error
    assert info.state is State.RETRY


def test_a_type_error_inside_the_job_keeps_its_own_words(bench: Bench) -> None:
    def wrong() -> None:
        len(5)  # type: ignore[arg-type]

    assert "has no len()" in bench.run(wrong).attempts[0].error


@pytest.mark.accepts("G77")
def test_a_name_that_is_not_known_here_waits_and_is_never_thrown_away(bench: Bench) -> None:
    info = bench.run(None, name="deploy.me")
    assert (info.state, info.failures, info.parked_at) == (State.BLOCKED, 0, bench.clock.now)

    bench.clock.advance(25 * 3600 * 1000)
    assert bench.claims() == []
    assert bench.store.get("default", info.id) == info


def test_a_record_of_a_newer_format_waits_and_is_not_touched(bench: Bench) -> None:
    bench.define(len)
    record = b"-\nbench.len\t2\n\n\n1\n\n{what this is only a newer version knows}"
    info = bench.run(None, name="bench.len", record=record)
    assert (info.state, info.failures, info.record) == (State.BLOCKED, 0, record)
    assert bench.claims() == []


def test_an_option_that_only_a_newer_version_knows_does_not_keep_a_job_from_running(bench: Bench) -> None:
    bench.define(len)
    record = b'-\nbench.len\n{"colour": "red"}\n{"shape": [1]}\n1\n\n[["abc"],{}]'
    info = bench.run(None, name="bench.len", record=record)
    assert (info.state, info.result) == (State.SUCCEEDED, b"3")


def test_the_log_says_what_helps_a_name_nobody_knows(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.run(None, name="deploy.me")
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "No job is named 'deploy.me'." in line
    assert "add its old name to aliases" in line
    assert "Restart workers that run older code" in line


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"garbage",
        b"\xff\xfe\x00",
        b"-\nbench.x\n{]\n\n1\n\n[[],{}]",
        b"-\nbench.x\n\n\n1\n\n{}",
        b"-\nbench.x\n\n\n1\n\n[",
    ],
)
def test_what_cannot_be_read_is_dead_with_its_bytes_kept(bench: Bench, record: bytes) -> None:
    def x() -> None:
        raise AssertionError

    bench.define(x)
    job_id = bench.put("bench.x", record=record)
    Executor(middleware=(), clock=bench.clock).run(bench.claim(), bench.store)

    info = bench.store.get("default", job_id)
    assert info is not None
    assert (info.state, info.record, info.attempts[0].outcome) == (State.DEAD, record, "corrupt")


# -- async ---------------------------------------------------------------------------


def test_an_async_job_runs_and_knows_itself_everywhere(bench: Bench) -> None:
    def deep() -> str:
        job = current_job()
        assert job is not None
        return job.name

    async def fetch() -> list[str]:
        await asyncio.sleep(0)
        return [deep(), await sync_to_async(deep)(), *await asyncio.gather(*[asyncio.to_thread(deep)] * 1)]

    assert json.loads(bench.run(fetch).result) == ["bench.fetch"] * 3


def test_a_claim_may_be_run_inside_a_running_loop(bench: Bench) -> None:
    async def inside() -> str:
        await asyncio.sleep(0)
        return "fine"

    async def outer() -> Any:
        return bench.run(inside).result

    bench.store.close()
    assert asyncio.run(outer()) == b'"fine"'


@pytest.mark.accepts("P07")
def test_whatever_a_job_writes_into_what_it_is_given_it_ends_as_it_returned(bench: Bench) -> None:
    def meddles(ctx: JobContext) -> str:
        for name, value in (("id", "other"), ("queue", "other"), ("attempt", 99), ("token", 0), ("state", "dead")):
            for holder in (ctx, ctx.job):
                with suppress(AttributeError, TypeError):
                    setattr(holder, name, value)
        return "done"

    info = bench.run(meddles, takes_context=True)
    assert (info.state, info.result) == (State.SUCCEEDED, b'"done"')
