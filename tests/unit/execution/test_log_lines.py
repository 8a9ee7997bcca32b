"""The lines of jobs that ended: one at INFO for each, and an error for each that died."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Cancelled, Dead, Outcome, RetryIn, Succeeded
from django_jobs.core.values import Attempt, Claim, Expired, Job, Recovered, State
from django_jobs.events.announce import announce, announce_expired, announce_recovered
from django_jobs.serialization.record import encode

ENQUEUED = 1_800_000_000_000
RECORD = encode(Job("a", "q", "shop.pay", b'[["4111-1111"],{}]', ENQUEUED))
CLAIM = Claim("a", "q", 7, RECORD, failures=2, claimed_at=ENQUEUED + 12, worker="w")
LOG = Attempt(3, "failed", 0)


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "django_jobs.worker"):
        yield


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize(
    ("outcome", "error", "line"),
    [
        (Succeeded(), None, "succeeded, attempt 3, waited 12 ms, ran 340 ms"),
        (RetryIn(10, LOG), ValueError("4111"), "retry, attempt 3, waited 12 ms, ran 340 ms: ValueError"),
        (Cancelled(LOG), None, "cancelled, attempt 3, waited 12 ms, ran 340 ms"),
        (Dead(LOG), ValueError("4111"), "dead, attempt 3, waited 12 ms, ran 340 ms: ValueError"),
    ],
)
def test_each_end_is_one_line_at_info(
    caplog: pytest.LogCaptureFixture, outcome: Outcome, error: Exception | None, line: str
) -> None:
    announce(Attempted(CLAIM, outcome, "shop.pay", error=error, run_ms=340, wait_ms=12))

    assert lines(caplog, logging.INFO) == [f"shop.pay a on q: {line}"]
    assert "4111" not in caplog.text


def test_a_dead_job_is_an_error_as_well_that_names_no_argument(caplog: pytest.LogCaptureFixture) -> None:
    announce(Attempted(CLAIM, Dead(LOG), "shop.pay", error=ValueError("4111"), run_ms=340))

    (said,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert said.getMessage() == ("shop.pay a on q is dead after attempt 3 (ValueError). See `manage.py jobs show a`")
    about = (said.job_name, said.job_id, said.job_queue, said.job_attempt)  # type: ignore[attr-defined]
    assert about == ("shop.pay", "a", "q", 3)


def lost(state: State) -> Recovered:
    return Recovered("a", RECORD, state, 1, "w", 3, ENQUEUED + 12, ENQUEUED + 30_012)


def test_a_job_that_died_with_its_worker_has_the_same_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    announce_recovered("q", [lost(State.DEAD)])

    assert lines(caplog, logging.INFO) == [
        "shop.pay a on q: dead, attempt 3, waited 12 ms, ran 30000 ms: worker w was lost"
    ]
    assert lines(caplog, logging.ERROR) == [
        "shop.pay a on q is dead after attempt 3 (worker w was lost). See `manage.py jobs show a`"
    ]


def test_a_job_that_was_to_stop_when_its_worker_died_ends_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    announce_recovered("q", [lost(State.CANCELLED)])

    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "cancelled, attempt 3, waited 12 ms, ran 30000 ms" in caplog.text


def test_a_job_that_runs_again_after_its_worker_was_lost_is_a_warning_and_no_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    announce_recovered("q", [lost(State.QUEUED)])

    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    ("record", "since", "name", "waited"),
    [(RECORD, 0, "shop.pay", 5000), (RECORD, ENQUEUED + 4000, "shop.pay", 1000), (b"\x80 rubbish", 0, "", 0)],
)
def test_a_job_that_expired_says_how_long_it_waited_since_it_could_run(
    caplog: pytest.LogCaptureFixture, record: bytes, since: int, name: str, waited: int
) -> None:
    announce_expired("q", [Expired("a", record, since)], ENQUEUED + 5000)

    assert lines(caplog, logging.INFO) == [f"{name} a on q: expired, attempt 0, waited {waited} ms, ran 0 ms"]
