"""Jobs in a project's own tests, whose transaction never commits: with EAGER, and without."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase, override_settings

from django_jobs import Retry, Snooze, chain, job
from tests.integration import sample_jobs
from tests.integration.sample_jobs import failing, receipt

#: A store that nobody can reach: eager jobs need none.
EAGER: dict[str, Any] = {"STORE": "redis://nowhere.invalid:1/0", "EAGER": True}
SEVEN = [("receipt", (7, False))]


@job(name="eager.asks", max_attempts=3)
def asks_to_run_again(how: str, seconds: int) -> None:
    sample_jobs.ran.append((how, seconds))
    assert len(sample_jobs.ran) < 10, "it goes on for ever"
    raise {"retry": Retry, "snooze": Snooze}[how](in_=seconds)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    sample_jobs.ran.clear()


@override_settings(DJANGO_JOBS=EAGER)
class InsideTestCase(TestCase):
    def test_a_job_runs_at_once(self) -> None:
        assert receipt.enqueue(7).result == "receipt 7"

    def test_a_job_runs_at_once_in_an_inner_block_which_cannot_undo_it(self) -> None:
        with transaction.atomic():
            receipt.enqueue(7)
            assert sample_jobs.ran == SEVEN
            transaction.set_rollback(True)
        assert sample_jobs.ran == SEVEN

    def test_jobs_of_enqueue_many_run_at_once(self) -> None:
        with transaction.atomic():
            first, second = receipt.enqueue_many([(7,), (8,)])
            assert (first.result, second.result) == ("receipt 7", "receipt 8")

    def test_where_callbacks_are_executed_a_job_runs_at_the_end(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks, transaction.atomic():
            handle = receipt.enqueue(7)
            assert (handle.state, sample_jobs.ran) == ("deferred", [])
        assert (handle.state, sample_jobs.ran, len(callbacks)) == ("succeeded", SEVEN, 1)
        receipt.enqueue(7)
        assert sample_jobs.ran == SEVEN * 2

    def test_where_callbacks_are_executed_a_rollback_discards_the_job(self) -> None:
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            receipt.enqueue(7)
            transaction.set_rollback(True)
        assert sample_jobs.ran == []

    def test_a_job_that_an_executed_callback_enqueues_runs_at_once(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: receipt.enqueue(7))
        assert sample_jobs.ran == SEVEN

    def test_errors_are_raised_if_that_is_wanted(self) -> None:
        assert failing.enqueue(7).state == "retry"
        with override_settings(DJANGO_JOBS=EAGER | {"EAGER_PROPAGATES": True}):
            with self.assertRaisesMessage(ValueError, "no order 7"):
                failing.enqueue(7)
            with self.assertRaisesMessage(ValueError, "no order 7"), self.captureOnCommitCallbacks(execute=True):
                failing.enqueue(7)
            with self.assertRaisesMessage(ValueError, "no order 7"):
                chain(failing.s(7), failing.s(8)).enqueue()
            assert sample_jobs.snoozing.enqueue().state == "scheduled"
            assert receipt.enqueue(7).state == "succeeded"


@pytest.mark.django_db
@override_settings(DJANGO_JOBS=EAGER)
def test_the_fixtures_of_pytest_django_do_as_test_case_does(django_capture_on_commit_callbacks: Any) -> None:
    with transaction.atomic():
        receipt.enqueue(7)
    assert sample_jobs.ran == SEVEN
    with django_capture_on_commit_callbacks(execute=True):
        receipt.enqueue(7)
        assert sample_jobs.ran == SEVEN
    assert sample_jobs.ran == SEVEN * 2


@pytest.mark.django_db
@pytest.mark.parametrize("seconds", [0, 60])
@pytest.mark.parametrize("how", ["retry", "snooze"])
@override_settings(DJANGO_JOBS=EAGER)
def test_a_step_that_asks_to_run_again_is_tried_once_and_the_next_one_waits(how: str, seconds: int) -> None:
    handle = chain(asks_to_run_again.s(how, seconds), receipt.s(7)).enqueue()
    assert sample_jobs.ran == [(how, seconds)]
    assert handle.state == "running"


@override_settings(DJANGO_JOBS={"STORE": "memory"})
class WithoutEager(TestCase):
    def test_a_block_that_captures_callbacks_has_those_of_its_own_jobs(self) -> None:
        earlier = receipt.enqueue(1)
        for number in (2, 3):
            with self.captureOnCommitCallbacks(execute=True) as callbacks:
                handle = receipt.enqueue(number)
            assert (handle.state, len(callbacks)) == ("queued", 1)
        assert earlier.state == "deferred"
