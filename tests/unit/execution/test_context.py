"""The running job: check-ins, stop requests, where it can be seen, what logging knows of it."""

from __future__ import annotations

import json
import logging
from threading import Event
from typing import Any

import pytest

from django_jobs.core.context import JobContext, RunningJob, StopRequests, current_job, running
from django_jobs.core.values import Claim, Job
from django_jobs.exceptions import StoreUnavailable
from django_jobs.logs import JobContextFilter


def make(sent: list[Any] | None = None, held: bool = True, attempt: int = 1, **given: Any) -> RunningJob:
    def send(claim: Claim, checkin: bytes) -> bool:
        if sent is not None:
            sent.append(json.loads(checkin))
        return held

    return running_job("id-1", attempt, checkin=send, **given)


def running_job(id: str, attempt: int = 1, **given: Any) -> RunningJob:
    return RunningJob(
        Claim(id, "default", 1, b"", failures=attempt - 1), Job(id, "default", "shop.export", b"", 0), [], {}, **given
    )


@pytest.mark.accepts("G26")
def test_a_check_in_reaches_the_store_at_once_and_then_once_a_second() -> None:
    sent: list[Any] = []
    job = make(sent)

    for n in range(100):
        JobContext(job).checkin(f"i={n}", n / 100)
    assert [checkin["message"] for checkin in sent] == ["i=0"]

    job.flush_checkin(job._last_sent + 0.9)
    assert len(sent) == 1
    job.flush_checkin(job._last_sent + 1.0)
    job.flush_checkin(job._last_sent + 9.0)
    assert [checkin["message"] for checkin in sent] == ["i=0", "i=99"]
    assert sent[1]["progress"] == 0.99


@pytest.mark.parametrize(
    ("given", "kept"), [(-3, 0.0), (0, 0.0), (0.25, 0.25), (7, 1.0), (float("nan"), 0.0), (float("inf"), 1.0)]
)
def test_progress_stays_between_nothing_and_all(given: float, kept: float) -> None:
    sent: list[Any] = []
    make(sent).checkin(progress=given)
    assert sent[0]["progress"] == kept


def test_a_message_is_shortened_and_cleaned() -> None:
    sent: list[Any] = []
    make(sent).checkin("\x1b[1m" + "x" * 10_000)
    assert len(sent[0]["message"].encode()) <= 1024
    assert "\x1b" not in sent[0]["message"]


def test_a_store_that_does_not_answer_is_no_reason_to_fail() -> None:
    def send(claim: Claim, checkin: bytes) -> bool:
        raise StoreUnavailable

    job = running_job("id-1", checkin=send)
    job.checkin("on my way")


def test_a_lost_claim_is_a_reason_to_stop() -> None:
    stops = StopRequests()
    job = make(held=False, stops=stops)

    assert not job.should_stop
    job.checkin("still here")
    assert job.should_stop


def test_the_reason_to_stop_is_told() -> None:
    stops = StopRequests()
    ctx = JobContext(make(stops=stops, soft_timeout=0.0001))
    never = JobContext(make(stops=stops, soft_timeout=3600))
    Event().wait(0.001)
    assert (ctx.should_stop, ctx.stop_reason) == (True, "timeout")
    assert (never.should_stop, never.stop_reason) == (False, None)
    stops.everybody = True
    assert (ctx.stop_reason, never.stop_reason) == ("shutdown", "shutdown")
    stops.jobs.add(("default", "id-1"))
    assert never.stop_reason == "cancelled"


@pytest.mark.accepts("G24")
def test_each_attempt_has_a_namespace_of_its_own() -> None:
    first, second = make(), make()
    first.context.customer = "Ada"

    assert JobContext(first).context.customer == "Ada"
    assert not hasattr(second.context, "customer")


@pytest.mark.accepts("G25")
def test_records_logged_inside_a_job_carry_its_id() -> None:
    record = logging.makeLogRecord({})
    token = running.set(make(attempt=3))
    try:
        assert current_job() is not None
        JobContextFilter().filter(record)
    finally:
        running.reset(token)

    assert (record.job_id, record.job_name, record.job_queue, record.job_attempt) == (
        "id-1",
        "shop.export",
        "default",
        3,
    )


def test_records_outside_of_jobs_are_marked_and_what_a_record_says_itself_stays() -> None:
    outside, own = logging.makeLogRecord({}), logging.makeLogRecord({"job_id": "other"})
    JobContextFilter().filter(outside)
    JobContextFilter().filter(own)

    assert current_job() is None
    assert (outside.job_id, outside.job_attempt) == ("-", 0)
    assert own.job_id == "other"
