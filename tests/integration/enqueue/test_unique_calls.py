"""Unique jobs, as the calls promise them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync

from django_jobs import (
    DuplicateJob,
    JobFailed,
)
from django_jobs.core.values import Added
from django_jobs.testing import Jobs
from tests.integration.enqueueing import in_memory
from tests.integration.sample_jobs import daily, other_account, receipt, strict, unique

__all__ = ["in_memory"]


class TestUnique:
    @pytest.mark.accepts("G29", "G31")
    def test_an_equal_job_that_waits_means_none(self, jobs: Jobs) -> None:
        assert receipt.enqueue_unique(7) is not None
        assert receipt.enqueue_unique(order_id=7) is None
        assert receipt.enqueue_unique(8) is not None
        assert len(jobs.enqueued()) == 2

    def test_the_arguments_that_count_may_be_named_on_a_job_that_is_unique_for_one_call(self, jobs: Jobs) -> None:
        assert other_account.enqueue_unique(7, "may") is not None
        assert other_account.enqueue_unique(7, "june") is None
        assert other_account.enqueue(7, "july").state == "queued"

    @pytest.mark.accepts("G30", "G61")
    def test_scheduled_jobs_count(self, jobs: Jobs) -> None:
        assert receipt.enqueue_unique_in(300, 7) is not None
        assert receipt.enqueue_unique(7) is None
        assert receipt.enqueue_unique_at(datetime.now(UTC) + timedelta(days=1), 7) is None

    @pytest.mark.accepts("G63")
    def test_a_job_that_starts_makes_room_for_the_next(self, jobs: Jobs) -> None:
        receipt.enqueue_unique(7)
        jobs.run_all()
        assert receipt.enqueue_unique(7) is not None

    @pytest.mark.accepts("G32", "G34")
    def test_by_key_replaces_the_arguments_of_the_job_that_waits(self, jobs: Jobs) -> None:
        first = unique.enqueue_unique_by_key({"account": 1}, 7, "old")
        assert unique.enqueue_unique_by_key({"account": 1}, 8, "new") is None
        (job,) = jobs.enqueued()
        assert first is not None
        assert (job.id, job.args) == (first.id, [8, "new"])

    @pytest.mark.accepts("G33")
    def test_by_key_and_later_replaces_too(self, jobs: Jobs) -> None:
        unique.enqueue_unique_by_key_in("k", 300, 7)
        assert unique.enqueue_unique_by_key_in("k", 600, 8) is None
        jobs.assert_enqueued(unique, [8], at=datetime.now(UTC) + timedelta(seconds=300), count=1)

    def test_a_plain_enqueue_of_a_unique_job_says_duplicate(self, jobs: Jobs) -> None:
        unique.enqueue(1)
        handle = unique.enqueue(1)
        assert (handle.state, handle.added) == ("duplicate", Added.DUPLICATE)
        with pytest.raises(JobFailed, match="was not stored: duplicate"):
            handle.wait(0)

    @pytest.mark.parametrize("policy", ["skip", "replace", "debounce"])
    def test_the_handle_of_a_duplicate_has_the_id_of_the_job_that_has_the_key(self, jobs: Jobs, policy: str) -> None:
        task = receipt.using(unique="queued", on_conflict=policy)
        first = task.enqueue(1)
        many = task.enqueue_many([(1,), (2,), (1,), (2,)])
        again = async_to_sync(task.aenqueue)(1)
        assert [handle.id for handle in (*many, again)] == [first.id, many[1].id, first.id, many[1].id, first.id]
        assert again.state == "duplicate"

    def test_the_handle_of_a_duplicate_cancels_the_job_that_has_the_key(self, jobs: Jobs) -> None:
        first, again = unique.enqueue(1), unique.enqueue(1)
        assert again.cancel()
        assert first.refresh().state == "cancelled"

    def test_on_conflict_raise_raises(self, jobs: Jobs) -> None:
        strict.enqueue(1)
        with pytest.raises(DuplicateJob, match=r"An equal sample\.strict job already waits in queue 'default'"):
            strict.enqueue(1)
        assert len(jobs.enqueued()) == 1

    def test_a_period_holds_after_the_job_has_run(self, jobs: Jobs) -> None:
        daily.enqueue(1, "a")
        jobs.run_all()
        assert daily.enqueue(1, "b").state == "duplicate"
        jobs.travel(timedelta(days=1, seconds=1))
        assert daily.enqueue(1, "c").state == "queued"

    def test_using_makes_any_job_unique(self, jobs: Jobs) -> None:
        task = receipt.using(unique="success", unique_on=["order_id"])
        assert task.enqueue(1).state == "queued"
        assert task.enqueue(1, copy=True).state == "duplicate"
