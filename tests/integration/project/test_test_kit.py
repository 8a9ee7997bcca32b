"""The test kit, as a project's own tests use it."""

from __future__ import annotations

import asyncio
import signal
import threading
import unittest
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase, override_settings

from django_jobs import Retry, current_job, get_job, job, operations
from django_jobs.signals import job_expired
from django_jobs.stores import get_store
from django_jobs.testing import Jobs, JobsTestMixin
from tests.integration import sample_jobs
from tests.integration.sample_jobs import chain, context, coroutine, counter, failing, other, receipt, snoozing, unique

SETTINGS: dict[str, Any] = {"STORE": "redis://nowhere.invalid:1/0", "QUEUES": {"default": {}, "mail": {}}}


left_loop = threading.Event()


@job(name="tests.kit.stubborn", timeout=0.2)
def stubborn() -> None:
    while True:
        with suppress(Exception):
            threading.Event().wait(30)


@job(name="tests.kit.stubborn_on_loop", timeout=0.2)
async def stubborn_on_loop() -> None:
    try:
        while True:
            with suppress(Exception):
                await asyncio.Event().wait()
    finally:
        left_loop.set()


@job(name="tests.kit.slow", timeout=0.01)
def slow() -> None:
    threading.Event().wait(0.05)


@job(name="tests.kit.elsewhere")
def elsewhere() -> str:
    """Succeed in the queue "mail"."""
    if current_job().queue == "default":
        raise Retry(queue="mail", in_=60)
    return current_job().queue


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """A store that nobody can reach: the kit needs no server."""
    sample_jobs.ran.clear()
    with override_settings(DJANGO_JOBS=SETTINGS):
        yield


class TestLooking:
    def test_waiting_jobs_are_listed_by_name_and_queue(self, jobs: Jobs) -> None:
        receipt.enqueue(7)
        other.enqueue(a=1)
        assert [job.name for job in jobs.enqueued()] == ["sample.receipt", "sample.other"]
        assert [job.kwargs for job in jobs.enqueued(name="sample.other")] == [{"a": 1}]
        assert [job.args for job in jobs.enqueued(name=receipt)] == [[7]]
        assert [job.queue for job in jobs.enqueued(queue="mail")] == ["mail"]

    def test_a_call_is_found_however_its_arguments_were_passed(self, jobs: Jobs) -> None:
        handle = receipt.enqueue(order_id=7)
        assert jobs.assert_enqueued(receipt, [7]) == handle
        jobs.assert_enqueued(receipt, kwargs={"order_id": 7, "copy": False})
        jobs.assert_enqueued("sample.receipt", [7], queue="default", count=1)
        jobs.assert_enqueued(receipt)

    @pytest.mark.parametrize(
        "wrong", [{"args": [8]}, {"queue": "mail"}, {"count": 2}, {"at": datetime(2090, 1, 1, tzinfo=UTC)}], ids=str
    )
    def test_a_wrong_expectation_shows_what_there_is(self, jobs: Jobs, wrong: dict[str, Any]) -> None:
        receipt.enqueue(7)
        other.enqueue_in(60, a=1)
        with pytest.raises(AssertionError) as caught:
            jobs.assert_enqueued(receipt, **wrong)
        message = str(caught.value)
        assert "Expected" in message
        assert "  sample.receipt(7) in 'default' (queued)" in message
        assert "  sample.other(a=1) in 'mail' at 20" in message

    def test_jobs_that_have_run_already_are_named_too(self, jobs: Jobs) -> None:
        receipt.enqueue(7)
        jobs.run_all()
        with pytest.raises(AssertionError) as caught:
            jobs.assert_enqueued(receipt, [7])
        assert "No job is waiting.\nNo longer waiting:\n  sample.receipt(7) in 'default' (succeeded)" in str(
            caught.value
        )

    def test_an_empty_queue_says_so(self, jobs: Jobs) -> None:
        jobs.assert_not_enqueued()
        with pytest.raises(AssertionError, match="No job is waiting"):
            jobs.assert_enqueued(receipt, [7])
        receipt.enqueue(7)
        jobs.assert_not_enqueued(other)
        with pytest.raises(AssertionError, match=r"Expected no jobs, but there are:\n  sample\.receipt\(7\)"):
            jobs.assert_not_enqueued(receipt)

    def test_the_settings_of_the_project_and_of_the_test_hold(self, jobs: Jobs) -> None:
        receipt.using(job_id="order-7").enqueue(7)
        jobs.run_all()
        operations.delete("default", ["order-7"])
        jobs.travel(61)
        assert receipt.using(job_id="order-7").enqueue(7).state == "succeeded"
        with override_settings(DJANGO_JOBS={**SETTINGS, "IDEMPOTENCY": 60}):
            assert receipt.using(job_id="order-7").enqueue(7).state == "queued"
            with Jobs() as others:
                receipt.using(job_id="order-8").enqueue(8)
                others.run_all()
                operations.delete("default", ["order-8"])
                others.travel(61)
                assert receipt.using(job_id="order-8").enqueue(8).state == "queued"

    def test_settings_that_change_do_not_lose_the_jobs(self, jobs: Jobs) -> None:
        receipt.enqueue(7)
        with override_settings(DJANGO_JOBS={**SETTINGS, "THREADS": 2}):
            other.enqueue()
        assert len(jobs.enqueued()) == 2
        assert get_store() is jobs.store


class TestRunning:
    def test_run_all_runs_what_is_due_and_what_that_enqueues(self, jobs: Jobs) -> None:
        first = chain.enqueue(2)
        later = receipt.enqueue_in(60, 7)
        handles = jobs.run_all()
        assert [name for name, _ in sample_jobs.ran] == ["chain"] * 3
        assert handles[0] == first
        assert {handle.state for handle in handles} == {"succeeded"}
        assert later.refresh().state == "scheduled"

    def test_jobs_with_a_time_limit_a_context_or_a_coroutine_run_too(self, jobs: Jobs) -> None:
        handles = [context.enqueue(7), coroutine.enqueue(8)]
        jobs.run_all()
        assert [handle.refresh().result for handle in handles] == [1, 8]

    def test_run_due_lets_time_pass(self, jobs: Jobs) -> None:
        handle = receipt.enqueue_in(3600, 7)
        jobs.run_due(at=datetime.now(UTC) + timedelta(minutes=59))
        assert handle.refresh().state == "scheduled"
        jobs.run_due(at=datetime.now(UTC) + timedelta(minutes=61))
        assert handle.refresh().state == "succeeded"

    def test_run_due_without_a_time_goes_to_the_next_job(self, jobs: Jobs) -> None:
        receipt.enqueue_in(7200, 2)
        receipt.enqueue_in(3600, 1)
        jobs.run_due()
        jobs.run_due()
        assert [arguments[0] for _, arguments in sample_jobs.ran] == [1, 2]
        assert jobs.run_due() == []

    def test_travel_moves_the_time_of_new_jobs_along(self, jobs: Jobs) -> None:
        jobs.travel(timedelta(days=1))
        receipt.enqueue_in(60, 7)
        jobs.assert_enqueued(receipt, at=datetime.now(UTC) + timedelta(days=1, seconds=60))

    def test_retries_and_snoozes_wait_for_their_time(self, jobs: Jobs) -> None:
        handle = failing.enqueue(7)
        snoozed = snoozing.enqueue()
        jobs.run_all()
        assert (handle.refresh().state, snoozed.refresh().state) == ("retry", "scheduled")
        jobs.run_due(at=datetime.now(UTC) + timedelta(seconds=61))
        assert handle.refresh().state == "dead"

    def test_receivers_hear_of_a_job_that_has_expired(self, jobs: Jobs) -> None:
        told: list[str] = []

        def hear(sender: Any, job_id: str, **_: Any) -> None:
            told.append(job_id)

        handle = receipt.using(expires_at=datetime.now(UTC) + timedelta(seconds=60)).enqueue_in(30, 7)
        jobs.travel(61)
        job_expired.connect(hear)
        try:
            jobs.run_all()
        finally:
            job_expired.disconnect(hear)
        assert (handle.refresh().state, told) == ("expired", [handle.id])

    def test_errors_are_raised_on_request(self, jobs: Jobs) -> None:
        failing.enqueue(7)
        with pytest.raises(ValueError, match="no order 7"):
            jobs.run_all(raise_errors=True)

    def test_fail_next_fails_one_attempt_of_one_job(self, jobs: Jobs) -> None:
        handle, bystander, async_one = receipt.enqueue(7), other.enqueue(), coroutine.enqueue(1)
        jobs.fail_next(receipt, ConnectionError("the mail server is away"))
        jobs.fail_next(coroutine)
        jobs.run_all()
        assert (handle.refresh().state, bystander.refresh().state) == ("retry", "succeeded")
        assert (handle.error, async_one.refresh().state) == ("ConnectionError: the mail server is away", "retry")
        jobs.run_due()
        jobs.run_due()
        assert handle.refresh().state == async_one.refresh().state == "succeeded"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_time_limit_ends_a_job_that_catches_every_exception(self, jobs: Jobs, is_async: bool) -> None:
        left_loop.clear()
        handle = (stubborn_on_loop if is_async else stubborn).enqueue()
        jobs.run_all()
        assert handle.refresh().state == "retry"
        assert handle.error == "TimeoutError: The attempt ran longer than its time limit of 0.2 s and was ended."
        with pytest.raises(TimeoutError, match="time limit"):
            jobs.run_due(raise_errors=True)
        # The process of the tests could not end as long as the function goes on in a thread.
        assert not is_async or left_loop.wait(30)

    def test_on_another_thread_a_job_that_took_too_long_has_failed(self, jobs: Jobs) -> None:
        handle = slow.enqueue()
        thread = threading.Thread(target=jobs.run_all)
        thread.start()
        thread.join()
        assert handle.refresh().state == "retry"

    def test_an_alarm_of_the_test_goes_on_after_a_job_with_a_limit(self, jobs: Jobs) -> None:
        rang = threading.Event()
        timer, handler = signal.getitimer(signal.ITIMER_REAL), signal.signal(signal.SIGALRM, lambda *_: rang.set())
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            stubborn.enqueue()
            jobs.run_all()
            assert rang.wait(30)
        finally:
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, *timer)

    def test_run_twice_shows_whether_a_job_may_run_again(self, jobs: Jobs) -> None:
        handle = receipt.enqueue_in(60, 7)
        other.enqueue()
        assert jobs.run_twice(handle).state == "succeeded"
        assert sample_jobs.ran == [("receipt", (7, False))] * 2
        assert [job.name for job in jobs.enqueued()] == ["sample.other"]
        with pytest.raises(AssertionError, match="counted twice"):
            jobs.run_twice(counter.enqueue("till"))
        with pytest.raises(AssertionError, match="does not wait to be run"):
            jobs.run_twice(handle)

    def test_run_twice_finds_a_job_that_a_retry_has_moved(self, jobs: Jobs) -> None:
        handle = elsewhere.enqueue()
        jobs.run_all()
        assert jobs.run_twice(handle).result == "mail"

    def test_eager_jobs_run_at_once(self, jobs: Jobs) -> None:
        with jobs.eager():
            assert receipt.enqueue(7).result == "receipt 7"
        assert receipt.enqueue(7).state == "queued"


class InsideTestCase(JobsTestMixin, TestCase):
    """What pytest and `manage.py test` run alike."""

    def setUp(self) -> None:
        """Without super().setUp(), as happens."""

    def test_a_job_outside_atomic_comes_at_once(self) -> None:
        handle = receipt.enqueue(7)
        assert handle.state == "queued"
        assert get_job(handle.id) == handle

    def test_a_job_inside_atomic_comes_when_that_ends(self) -> None:
        with transaction.atomic():
            Group.objects.create(name="a")
            handle = receipt.enqueue(7)
            self.jobs.assert_not_enqueued()
            assert handle.state == "deferred"
        self.jobs.assert_enqueued(receipt, [7])
        assert handle.state == "queued"

    def test_a_rollback_takes_the_job_along(self) -> None:
        with transaction.atomic():
            with transaction.atomic():
                receipt.enqueue(1)
                transaction.set_rollback(True)
            receipt.enqueue(2)
        assert [job.args for job in self.jobs.enqueued()] == [[2]]

    def test_djangos_own_capture_runs_them_once(self) -> None:
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            receipt.enqueue(7)
        assert len(self.jobs.run_all()) == 1

    def test_run_all_sees_them_too_and_jobs_may_use_transactions(self) -> None:
        with transaction.atomic():
            unique.enqueue(7)
        assert [handle.state for handle in self.jobs.run_all()] == ["succeeded"]

    def test_every_test_starts_without_jobs_1(self) -> None:
        self.jobs.assert_not_enqueued()
        receipt.enqueue(1)

    def test_every_test_starts_without_jobs_2(self) -> None:
        self.jobs.assert_not_enqueued()
        receipt.enqueue(1)


@pytest.mark.django_db
def test_pytest_djangos_transaction_is_none_either(jobs: Jobs) -> None:
    handle = receipt.enqueue(7)
    assert handle.state == "queued"
    with transaction.atomic():
        assert receipt.enqueue(8).state == "deferred"
    assert len(jobs.run_all()) == 2


def test_the_mixin_works_with_plain_unittest() -> None:
    class Case(JobsTestMixin, unittest.TestCase):
        def test_it(self) -> None:
            receipt.enqueue(7)
            self.jobs.assert_enqueued(receipt, [7])

    result = unittest.TestResult()
    Case("test_it").run(result)
    assert result.wasSuccessful()
    assert result.testsRun == 1


def test_the_plugin_imports_no_django() -> None:
    import subprocess
    import sys

    program = "import sys, django_jobs.pytest_plugin; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=240).returncode == 0
