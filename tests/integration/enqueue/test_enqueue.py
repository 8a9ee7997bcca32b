"""The calls that enqueue: now, later, with other options, in bulk, by name, and from async code."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import override_settings

from django_jobs import (
    InvalidArguments,
    InvalidJob,
    MissingResult,
    PayloadError,
    UnknownQueue,
    aenqueue,
    enqueue,
)
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Added
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.stores.values.sizes import MAX_BYTES
from django_jobs.testing import Jobs
from tests.integration.enqueueing import SETTINGS, in_memory, stored
from tests.integration.sample_jobs import finds, other, receipt, short, unique

__all__ = ["in_memory"]


class TestNowAndLater:
    @pytest.mark.accepts("G14", "G01")
    def test_enqueue_returns_a_handle_on_a_queued_job(self, jobs: Jobs) -> None:
        handle = receipt.enqueue(7, copy=True)
        assert (handle.name, handle.queue, handle.state) == ("sample.receipt", "default", "queued")
        (job,) = jobs.enqueued()
        assert (job.id, job.args, job.kwargs) == (handle.id, [7], {"copy": True})

    def test_ids_are_random_and_sort_by_time(self, jobs: Jobs) -> None:
        first = receipt.enqueue(1).id
        jobs.travel(0.002)
        second = receipt.enqueue(1).id
        assert len(first) == 32
        assert set(first) <= set("0123456789abcdef")
        assert first < second

    @pytest.mark.accepts("R06")
    def test_jobs_of_the_same_moment_have_random_ids_and_records_of_their_own(self, jobs: Jobs) -> None:
        ids = [receipt.enqueue(n).id for n in range(100)]
        tails = [id[12:] for id in ids]
        assert len(set(tails)) == 100
        assert tails != sorted(tails)
        assert {job.id: job.args for job in jobs.enqueued()} == {id: [n] for n, id in enumerate(ids)}

    @pytest.mark.accepts("G28", "G07")
    @pytest.mark.parametrize("delay", [300, 300.0, timedelta(minutes=5)])
    def test_enqueue_in_waits_for_its_time(self, jobs: Jobs, delay: Any) -> None:
        handle = receipt.enqueue_in(delay, 7)
        assert handle.state == "scheduled"
        jobs.assert_enqueued(receipt, [7], at=datetime.now(UTC) + timedelta(seconds=300))

    @pytest.mark.accepts("K10")
    def test_enqueue_at_waits_for_its_time_in_any_zone(self, jobs: Jobs) -> None:
        when = datetime.now(UTC) + timedelta(hours=1)
        receipt.enqueue_at(when, 7)
        jobs.assert_enqueued(receipt, [7], at=when)

    def test_a_time_in_the_past_means_now(self, jobs: Jobs) -> None:
        handle = receipt.enqueue_at(datetime(2020, 1, 1, tzinfo=UTC), 7)
        assert handle.state == "queued"
        assert [h.id for h in jobs.run_all()] == [handle.id]

    @pytest.mark.accepts("G19")
    def test_a_job_carries_its_options(self, jobs: Jobs) -> None:
        handle = other.enqueue(a=1)
        job = stored(handle)
        assert (handle.queue, job.controls.priority, job.options.max_attempts) == ("mail", 5, 3)

    @pytest.mark.accepts("K11")
    def test_a_job_past_its_time_is_expired_and_never_runs(self, jobs: Jobs) -> None:
        when = datetime.now(UTC) + timedelta(minutes=5)
        handles = [short.enqueue(1), receipt.using(expires_at=when).enqueue(2), receipt.enqueue(3)]
        jobs.travel(timedelta(minutes=5, seconds=1))
        assert [handle.id for handle in jobs.run_all()] == [handles[2].id]
        assert [handle.refresh().state for handle in handles] == ["expired", "expired", "succeeded"]

    def test_a_job_that_expires_does_so_counted_from_its_time(self, jobs: Jobs) -> None:
        now = jobs.now_ms()
        assert stored(short.enqueue(1)).controls.expires_at == pytest.approx(now + 60_000, abs=20_000)
        assert stored(short.enqueue_in(3600, 1)).controls.expires_at == pytest.approx(now + 3_660_000, abs=20_000)

    @pytest.mark.accepts("G19")
    def test_a_limit_per_value_travels_with_the_job(self, jobs: Jobs) -> None:
        controls = stored(short.enqueue(account_id=7)).controls
        assert (controls.limit_key, controls.limit) == ("sample.short:7", 2)


class TestUsing:
    def test_options_hold_for_the_next_call_only(self, jobs: Jobs) -> None:
        handle = receipt.using(queue="mail", priority=-5, max_attempts=1).enqueue(7)
        job = stored(handle)
        assert (handle.queue, job.controls.priority, job.options.max_attempts) == ("mail", -5, 1)
        assert receipt.enqueue(8).queue == "default"

    def test_times_and_meta(self, jobs: Jobs) -> None:
        when = datetime.now(UTC) + timedelta(hours=1)
        handle = receipt.using(run_at=when, expires_at=when + timedelta(minutes=1), meta={"request": "r1"}).enqueue(7)
        job = stored(handle)
        assert handle.state == "scheduled"
        assert job.controls.expires_at == round((when + timedelta(minutes=1)).timestamp() * 1000)
        assert job.meta == {"request": "r1"}

    @pytest.mark.accepts("K08")
    def test_the_same_job_id_adds_one_job(self, jobs: Jobs) -> None:
        first = receipt.using(job_id="order-7").enqueue(7)
        second = receipt.using(job_id="order-7").enqueue(8)
        assert first == second
        assert (first.added, second.added) == (Added.ADDED, Added.EXISTS)
        assert [job.args for job in jobs.enqueued()] == [[7]]
        jobs.run_all()
        third = receipt.using(job_id="order-7").enqueue(9)
        assert (third.state, third.result) == ("succeeded", "receipt 7")

    @pytest.mark.accepts("K08")
    def test_two_callers_with_the_same_id_and_arguments_are_told_apart(self, jobs: Jobs) -> None:
        answers = [receipt.using(job_id="order-7").enqueue(7).added for _ in range(3)]
        assert answers == [Added.ADDED, Added.EXISTS, Added.EXISTS]

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"queue": "mial"}, UnknownQueue, "Queue 'mial' is not in DJANGO_JOBS['QUEUES']. Did you mean 'mail'?"),
            ({"quue": "mail"}, InvalidJob, "unknown option 'quue'. Did you mean 'queue'?"),
            ({"priority": 1000}, InvalidJob, "priority=1000: use a whole number"),
            ({"job_id": "a b"}, InvalidArguments, "job_id='a b': use 1 to 128 letters"),
            ({"job_id": ""}, InvalidArguments, "job_id=''"),
            ({"job_id": "x" * 129}, InvalidArguments, "use 1 to 128"),
            ({"job_id": "line\n"}, InvalidArguments, "use 1 to 128"),
            ({"run_at": datetime(2030, 1, 1)}, InvalidArguments, "has no time zone. Use an aware datetime"),
            ({"run_at": 5}, InvalidArguments, "run_at=5: use an aware datetime"),
            ({"expires_at": "soon"}, InvalidArguments, "expires_at='soon': use an aware datetime"),
            ({"on_commit": "no"}, InvalidArguments, "on_commit='no': use True, False, or None"),
            ({"block_timeout": -1}, InvalidArguments, "block_timeout=-1: use 0 seconds or more"),
            ({"meta": []}, InvalidArguments, "meta=[]: use a dict"),
            (
                {"retry_on": OSError},
                InvalidJob,
                "retry_on applies to every call of a job. Write it as @job(",
            ),
            ({"timeout": 5, "soft_timeout": 6}, InvalidJob, "soft_timeout=6 is not less than timeout=5"),
            ({"backoff": max}, InvalidJob, "backoff is stored with the job. Use a list of seconds"),
        ],
        ids=str,
    )
    def test_a_bad_option_is_named(self, options: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error) as caught:
            receipt.using(**options)
        assert message in str(caught.value)


class TestMany:
    def test_one_handle_per_item_in_order_with_few_calls_to_the_store(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []

        def counting(send: Callable[..., Any]) -> Callable[..., Any]:
            return lambda queue, new, **more: sizes.append(len(new)) or send(queue, new, **more)

        for name in ("enqueue", "enqueue_ahead"):
            monkeypatch.setattr(jobs.store, name, counting(getattr(jobs.store, name)))
        handles = receipt.enqueue_many((number,) if number % 2 else {"order_id": number} for number in range(2500))
        assert sizes == [1000, 1000, 500]
        assert [stored(handles[i]).args for i in (0, 1, 2499)] == [b'[[],{"order_id":0}]', b"[[1],{}]", b"[[2499],{}]"]

    def test_items_of_an_iterator_are_sent_as_they_come_and_take_no_more_memory_than_a_few_batches(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs.store, "enqueue", lambda queue, new, **more: [Added.ADDED] * len(new))
        tracemalloc.start()
        try:
            handles = receipt.enqueue_many((f"{number:06}" + "x" * 5000,) for number in range(10_000))
            left, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(handles) == 10_000
        assert peak - left < 4 * MAX_BYTES, "above the handles, which the caller gets"

    def test_one_wrong_item_of_an_iterator_leaves_the_batches_before_it_and_says_so(self, jobs: Jobs) -> None:
        items = [*((number,) for number in range(2500)), (object(),), (1,)]
        with pytest.raises(PayloadError) as caught:
            receipt.enqueue_many(iter(items))
        assert len(jobs.enqueued()) == 2000
        assert "Jobs of this call that are stored: 2000." in caught.value.__notes__[0]
        with pytest.raises(PayloadError):
            receipt.enqueue_many(items)
        assert len(jobs.enqueued()) == 2000, "of a list, all or none"

    def test_nothing_is_nothing(self, jobs: Jobs) -> None:
        assert receipt.enqueue_many([]) == []
        assert receipt.enqueue_many(iter([])) == []

    def test_unique_jobs_among_them_are_told_apart(self, jobs: Jobs) -> None:
        assert [h.state for h in unique.enqueue_many([(1,), (2,), (1,)])] == ["queued", "queued", "duplicate"]


class TestAsyncTwins:
    def test_many_and_handles(self, jobs: Jobs) -> None:
        (handle,) = async_to_sync(receipt.aenqueue_many)([(7,)])
        jobs.run_all()
        assert async_to_sync(handle.await_result)(1) == "receipt 7"
        assert async_to_sync(handle.arefresh)().state == "succeeded"
        assert async_to_sync(handle.acancel)() is False

    @pytest.mark.django_db
    def test_a_model_instance_that_a_job_returned_comes_as_such_while_it_exists(self, jobs: Jobs) -> None:
        user = User.objects.create(username="ada")
        handle = finds.enqueue(user.pk)
        jobs.run_all()
        assert async_to_sync(handle.await_result)(1) == handle.wait(1) == user
        user.delete()
        assert handle.wait(1) == MissingResult(handle.result_missing or "")
        assert "auth.user with primary key" in str(handle.result)


class TestByName:
    def test_a_name_that_is_data_is_enqueued_as_the_job_itself(self, jobs: Jobs) -> None:
        handle = enqueue("sample.receipt", 7, copy=True)
        by_alias = async_to_sync(aenqueue)("sample.receipt", 8)
        assert [(job.id, job.args, job.kwargs) for job in jobs.enqueued()] == [
            (handle.id, [7], {"copy": True}),
            (by_alias.id, [8], {}),
        ]

    def test_everything_can_be_said(self, jobs: Jobs) -> None:
        when = datetime.now(UTC) + timedelta(hours=1)
        handle = enqueue_by_name(
            "sample.receipt",
            [7],
            {"copy": True},
            queue="mail",
            priority=9,
            job_id="mine",
            run_at=when,
            expires_at=when,
            meta={"by": "api"},
        )
        job = stored(handle)
        assert (handle.id, handle.queue, handle.state, job.controls.priority) == ("mine", "mail", "scheduled", 9)
        assert (job.meta["by"], job.args) == ("api", b'[[7],{"copy":true}]')


ROUTES = {"sample.rec*": "mail", "sample.*": "default"}


class TestRoutes:
    @pytest.fixture(autouse=True)
    def routed(self, in_memory: None) -> Iterator[None]:
        with override_settings(DJANGO_JOBS={**SETTINGS, "ROUTES": ROUTES}):
            yield

    def test_the_first_pattern_that_matches_gives_the_queue(self, jobs: Jobs) -> None:
        assert (receipt.enqueue(7).queue, enqueue("sample.receipt", 7).queue) == ("mail", "mail")

    def test_a_call_counts_more(self, jobs: Jobs) -> None:
        assert receipt.using(queue="default").enqueue(7).queue == "default"

    def test_the_job_itself_counts_more(self, jobs: Jobs) -> None:
        definition = JobDefinition(receipt.func, name="sample.record", queue="default")
        assert definition.queue == "default"
        assert JobDefinition(receipt.func, name="sample.record").queue == "mail"

    def test_the_defaults_of_all_jobs_count_less(self, jobs: Jobs) -> None:
        with override_settings(DJANGO_JOBS={**SETTINGS, "ROUTES": ROUTES, "JOB_DEFAULTS": {"queue": "default"}}):
            assert JobDefinition(receipt.func, name="sample.record").queue == "mail"
            assert JobDefinition(receipt.func, name="other.record").queue == "default"
