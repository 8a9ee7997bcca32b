"""Patience with a store that cannot be reached, and what people hear of it."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from django_jobs.exceptions import StoreFull, StoreUnavailable
from django_jobs.worker.retry import LONGEST_PAUSE, RetryState


def test_an_outage_is_said_once_and_its_pauses_grow_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    retry_state = RetryState("Somebody")
    pauses = [retry_state.failed(StoreUnavailable()) for _ in range(12)]

    assert retry_state.is_on
    assert max(pauses) <= LONGEST_PAUSE
    assert pauses[0] <= 0.1 < pauses[-1]
    assert retry_state.worked()
    assert not retry_state.worked()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_an_outage_is_said_once_though_many_in_a_process_meet_it(caplog: pytest.LogCaptureFixture) -> None:
    several = [RetryState("One"), RetryState("Another"), RetryState("A third")]
    for retry_state in several:
        retry_state.failed(StoreUnavailable("Redis is away."))
    for retry_state in several:
        retry_state.worked()
    several[1].failed(StoreUnavailable("Redis is away again."))

    assert [record.args[0] for record in caplog.records if record.levelno >= logging.WARNING] == [
        "One",
        "A third",
        "Another",
    ]


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
