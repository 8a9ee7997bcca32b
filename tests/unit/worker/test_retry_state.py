"""Patience with a store that cannot be reached, and what people hear of it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from django_jobs.exceptions import StoreFull, StoreUnavailable
from django_jobs.worker import retry
from django_jobs.worker.retry import LONGEST_PAUSE, SAME_OUTAGE, RetryState
from tests.conftest import Seconds


def test_an_outage_is_said_once_and_its_pauses_grow_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    retry_state = RetryState("Somebody")
    pauses = [retry_state.failed(StoreUnavailable()) for _ in range(12)]

    assert retry_state.is_on
    assert max(pauses) <= LONGEST_PAUSE
    assert pauses[0] <= 0.1 < pauses[-1]
    assert retry_state.worked()
    assert not retry_state.worked()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


@pytest.fixture
def clock(time: Seconds, monkeypatch: pytest.MonkeyPatch) -> Seconds:
    """The clock of what is logged."""
    monkeypatch.setattr(retry, "monotonic", time)
    return time


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, str]]:
    """Who logged, and at which level."""
    found = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [(record.args[0] if isinstance(record.args, tuple) else "", record.levelname) for record in found]


def test_an_outage_is_said_once_though_many_in_a_process_meet_it(
    caplog: pytest.LogCaptureFixture, clock: Seconds
) -> None:
    several = [RetryState("One"), RetryState("Another"), RetryState("A third")]
    for retry_state in several:
        retry_state.failed(StoreUnavailable("Redis is away."))
    for retry_state in several:
        retry_state.worked()
    clock.now += SAME_OUTAGE + 0.1
    several[1].failed(StoreUnavailable("Redis is away again."))

    assert said(caplog) == [("One", "ERROR"), ("A third", "WARNING"), ("Another", "ERROR")]


def test_a_call_that_failed_before_the_store_was_back_is_of_the_same_outage(
    caplog: pytest.LogCaptureFixture, clock: Seconds
) -> None:
    """Its thread was held up, and told of it after another one had reached the store."""
    quick, late = RetryState("Quick"), RetryState("Late")
    quick.failed(StoreUnavailable("Redis is away."))
    quick.worked()
    clock.now += SAME_OUTAGE / 2
    late.failed(StoreUnavailable("Redis is away."))
    late.worked()

    assert said(caplog) == [("Quick", "ERROR"), ("Quick", "WARNING")]


def test_an_outage_soon_after_another_is_said_when_it_lasts(caplog: pytest.LogCaptureFixture, clock: Seconds) -> None:
    retry_state = RetryState("Somebody")
    retry_state.failed(StoreUnavailable("Redis is away."))
    retry_state.worked()
    for _ in range(3):
        clock.now += SAME_OUTAGE / 2 + 0.1
        retry_state.failed(StoreUnavailable("Redis is away."))
    retry_state.worked()

    assert said(caplog) == [("Somebody", "ERROR"), ("Somebody", "WARNING")] * 2


class Shared(RetryState):
    """A caller that two threads share.  When the first has read whether its last call failed, the second one calls."""

    _is_on = False
    second: Callable[[], object] | None = None
    thread: Thread | None = None

    @property
    def is_on(self) -> bool:
        answer, call = self._is_on, self.second
        if call is not None:
            self.second, self.thread = None, Thread(target=call)
            self.thread.start()
            self.thread.join(0.2)  # with a lock it has to wait for the first
        return answer

    @is_on.setter
    def is_on(self, value: bool) -> None:
        self._is_on = value


@pytest.mark.parametrize("first", ["failed", "worked"])
def test_threads_that_share_a_caller_say_the_end_of_an_outage_once(
    caplog: pytest.LogCaptureFixture, clock: Seconds, first: str
) -> None:
    shared = Shared("Shared")
    shared.failed(StoreUnavailable("Redis is away."))
    shared.second = shared.worked
    if first == "failed":
        shared.failed(StoreUnavailable("Redis is away."))
    else:
        shared.worked()
    assert shared.thread is not None
    shared.thread.join(60)
    shared.worked()

    assert [message for message in caplog.messages if "works again" in message] == []
    assert said(caplog)[:2] == [("Shared", "ERROR"), ("Shared", "WARNING")]


def test_who_is_refused_says_so_though_others_cannot_reach_the_store(caplog: pytest.LogCaptureFixture) -> None:
    away, refused = RetryState("Away"), RetryState("Refused")
    away.failed(StoreUnavailable("Redis is away."))
    refused.failed(StoreFull("Redis is full."))
    refused.worked()

    assert caplog.messages[1:] == [
        "Refused failed and is tried again until it works: Redis is full.",
        "Refused works again",
    ]


FORKING = """
import logging, os
from django_jobs.exceptions import StoreUnavailable
from django_jobs.worker.retry import RetryState

logging.basicConfig(format="%(message)s")
RetryState("The parent").failed(StoreUnavailable("Redis is away."))
if os.fork() == 0:
    RetryState("Its child").failed(StoreUnavailable("Redis is away."))
    os._exit(0)
os.wait()
"""


def test_a_forked_process_speaks_for_itself() -> None:
    said = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True).stderr

    assert [line.partition(":")[0] for line in said.splitlines()] == ["The parent", "Its child"]
