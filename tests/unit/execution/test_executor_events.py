"""What is told of an attempt: signals, and one line in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs import signals
from django_jobs.core.context import current_job
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import State
from django_jobs.exceptions import Discard, Fail, Snooze
from django_jobs.execution.executor import Executor
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]


@pytest.fixture
def heard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    heard: list[tuple[str, dict[str, Any]]] = []
    names = [name for name in vars(signals) if name.startswith("job_")]

    def listener(told: str) -> Callable[..., None]:
        return lambda **given: heard.append((told, given))

    receivers = {name: listener(name) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver, weak=False)
    yield heard
    for name, receiver in receivers.items():
        getattr(signals, name).disconnect(receiver)


def test_signals_tell_the_story_of_a_job(bench: Bench, heard: list[tuple[str, dict[str, Any]]]) -> None:
    def fine() -> None:
        assert current_job() is not None

    def bad() -> None:
        raise ValueError

    def worst() -> None:
        raise Fail("x")

    def gone() -> None:
        raise Discard("x")

    for func in (fine, bad, worst, gone):
        bench.run(func)

    assert [name for name, _ in heard] == [
        "job_started",
        "job_succeeded",
        "job_started",
        "job_failed",
        "job_retried",
        "job_started",
        "job_failed",
        "job_dead",
        "job_started",
        "job_cancelled",
    ]
    for _, given in heard:
        assert given["sender"].name == given["name"] == given["job"].name
        assert given["queue"] == "default"
        assert given["attempt"] == 1


def test_a_receiver_that_fails_harms_nobody(bench: Bench) -> None:
    def receiver(**given: Any) -> None:
        raise RuntimeError

    def fine() -> None:
        return None

    signals.job_started.connect(receiver)
    signals.job_succeeded.connect(receiver)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging.getLogger("django.dispatch"), "disabled", True)
            assert bench.run(fine).state is State.SUCCEEDED
    finally:
        signals.job_started.disconnect(receiver)
        signals.job_succeeded.disconnect(receiver)


def test_an_end_after_the_claim_was_lost_changes_nothing_and_is_said_loudly(
    bench: Bench, caplog: pytest.LogCaptureFixture, heard: list[tuple[str, dict[str, Any]]]
) -> None:
    def slow() -> None:
        return None

    bench.define(slow)
    job_id = bench.put("bench.slow")
    claim = bench.claim()
    bench.clock.advance(31_000)
    bench.store.recover("default")

    Executor(middleware=(), clock=bench.clock).run(claim, bench.store)

    info = bench.store.get("default", job_id)
    assert info is not None
    assert info.state is State.QUEUED
    assert "claim was lost" in caplog.text
    assert [name for name, _ in heard] == ["job_started"]


def _fails():
    raise ValueError("no")


def _snoozes():
    raise Snooze(in_=60)


@pytest.mark.parametrize("func", [_fails, _snoozes])
def test_a_job_that_was_asked_to_stop_is_told_as_cancelled(redis_store, make_job, caplog, func):
    """The store decides between again and cancelled; signals, the log and the caller hear what it did."""
    from django_jobs import signals
    from django_jobs.core import registry
    from django_jobs.core.outcome import Cancelled
    from django_jobs.execution.executor import Executor

    heard = []

    def hear(signal, name):
        def receiver(**kwargs):
            heard.append(name)

        signal.connect(receiver, weak=False, dispatch_uid=name)
        return receiver

    registry.register(JobDefinition(func, name="tests.asked_to_stop"))
    hear(signals.job_cancelled, "cancelled")
    hear(signals.job_retried, "retried")
    try:
        redis_store.enqueue("default", [make_job("a", name="tests.asked_to_stop")])
        (claim,) = redis_store.claim("default", "w", 1, lease=30_000).claims
        redis_store.cancel("default", ["a"])
        with caplog.at_level(logging.INFO, "django_jobs.worker"):
            attempted = Executor(middleware=(), close_connections=False).run(claim, redis_store)
    finally:
        signals.job_cancelled.disconnect(dispatch_uid="cancelled")
        signals.job_retried.disconnect(dispatch_uid="retried")
        registry.unregister("tests.asked_to_stop")
    assert isinstance(attempted.outcome, Cancelled)
    assert heard == ["cancelled"]
    assert "a on default: cancelled, attempt 1" in caplog.text
