"""What goes with enqueueing: handles, middleware, signals, eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from django_jobs import (
    InvalidArguments,
    InvalidJob,
    JobFailed,
    JobHandle,
    JobNotFound,
    PayloadError,
    UnknownQueue,
    WorkflowNotFound,
    chain,
    get_job,
    get_workflow,
    operations,
)
from django_jobs.core.values import State
from django_jobs.enqueueing.request import NewJobRequest
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.signals import job_enqueued
from django_jobs.testing import Jobs
from tests.integration import sample_jobs
from tests.integration.enqueueing import SETTINGS, in_memory, stored
from tests.integration.sample_jobs import other, receipt, unique

__all__ = ["in_memory"]


class TestHandles:
    def test_a_handle_shows_how_the_job_ended(self, jobs: Jobs) -> None:
        handle = receipt.enqueue(7)
        with pytest.raises(TimeoutError, match="is queued after 0 s"):
            handle.wait(0)
        jobs.run_all()
        assert handle.wait(1) == "receipt 7"
        assert (handle.state, handle.result, handle.error, handle.attempts) == ("succeeded", "receipt 7", None, ())

    def test_a_handle_shows_every_failed_attempt(self, jobs: Jobs) -> None:
        handle = sample_jobs.failing.enqueue(7)
        jobs.run_all()
        assert handle.refresh().state == "retry"
        jobs.run_due()
        assert handle.refresh().state == "dead"
        assert handle.error == "ValueError: no order 7"
        assert [attempt.attempt for attempt in handle.attempts] == [1, 2]
        with pytest.raises(JobFailed, match=r"ended as dead: ValueError: no order 7"):
            handle.wait(1)

    def test_a_waiting_job_can_be_cancelled(self, jobs: Jobs) -> None:
        handle = receipt.enqueue(7)
        assert handle.cancel() is True
        assert handle.refresh().state == "cancelled"

    def test_a_job_is_found_by_its_id(self, jobs: Jobs) -> None:
        handle = other.enqueue(a=1)
        found = get_job(handle.id)
        assert (found, found.name, found.state) == (handle, "sample.other", State.QUEUED)
        assert get_job(handle.id, queue="mail") == handle
        with pytest.raises(JobNotFound, match="There is no job with the id 'nowhere'"):
            get_job("nowhere")
        with pytest.raises(JobNotFound):
            get_job(handle.id, queue="default")

    @pytest.mark.parametrize("outbox", [False, True])
    def test_no_job_has_an_id_or_a_queue_with_half_of_a_surrogate_pair(self, outbox: bool, jobs: Jobs) -> None:
        with override_settings(DJANGO_JOBS={**SETTINGS, "OUTBOX": outbox}):
            for look in (get_job, get_workflow, operations.job, operations.why):
                with pytest.raises((JobNotFound, WorkflowNotFound)):
                    look("\ud800")
            with pytest.raises(JobNotFound):
                get_job("x", queue="\ud800")
        with pytest.raises(PayloadError, match="half of a surrogate pair"):
            operations.pause("default", reason="\ud800")

    def test_a_job_is_found_though_its_queue_left_the_settings(self, jobs: Jobs) -> None:
        handle = other.enqueue(a=1)
        with override_settings(DJANGO_JOBS={"STORE": "memory"}):
            assert get_job(handle.id) == handle


def stamp(get_next: Callable[[NewJobRequest], JobHandle]) -> Callable[[NewJobRequest], JobHandle]:
    def middleware(new_job: NewJobRequest) -> JobHandle:
        new_job.meta = {**(new_job.meta or {}), "stamp": new_job.name}
        new_job.priority += 1
        return get_next(new_job)

    return middleware


def reroute(get_next: Callable[[NewJobRequest], JobHandle]) -> Callable[[NewJobRequest], JobHandle]:
    def middleware(new_job: NewJobRequest) -> JobHandle:
        new_job.queue = "mail"
        handle = get_next(new_job)
        new_job.meta = None
        return handle

    return middleware


def forgetful(get_next: Callable[[NewJobRequest], JobHandle]) -> Callable[[NewJobRequest], Any]:
    return lambda new_job: get_next(new_job) and None


#: What `spoil` sets on each request.
SET: dict[str, Any] = {}


def spoil(get_next: Callable[[NewJobRequest], JobHandle]) -> Callable[[NewJobRequest], JobHandle]:
    def middleware(new_job: NewJobRequest) -> JobHandle:
        for name, value in SET.items():
            setattr(new_job, name, value)
        return get_next(new_job)

    return middleware


class TestEnqueueMiddleware:
    def test_middleware_sees_and_changes_every_job(self, jobs: Jobs) -> None:
        paths = [f"{__name__}.stamp", f"{__name__}.reroute"]
        with override_settings(DJANGO_JOBS={**SETTINGS, "ENQUEUE_MIDDLEWARE": paths}):
            handles = [receipt.enqueue(7), *receipt.enqueue_many([(8,), (9,)]), enqueue_by_name("sample.receipt", [1])]
        for handle in handles:
            job = stored(handle)
            assert (handle.queue, job.meta, job.controls.priority) == ("mail", {"stamp": "sample.receipt"}, 1)

    def test_middleware_that_returns_no_handle_is_named(self, jobs: Jobs) -> None:
        with (
            override_settings(DJANGO_JOBS={**SETTINGS, "ENQUEUE_MIDDLEWARE": [f"{__name__}.forgetful"]}),
            pytest.raises(TypeError, match=r"forgetful returned None: it must return the handle"),
        ):
            receipt.enqueue(7)

    @pytest.mark.parametrize(
        ("field", "value", "error"),
        [
            ("args", None, InvalidArguments),
            ("kwargs", {"a": float("nan")}, PayloadError),
            ("kwargs", {"a": "\ud800"}, PayloadError),
            ("kwargs", {"a": "x" * 300_000}, PayloadError),
            ("kwargs", {1: 2}, InvalidArguments),
            ("queue", "nowhere", UnknownQueue),
            ("queue", ["mail"], InvalidArguments),
            ("priority", 10**30, InvalidArguments),
            ("priority", 0.5, InvalidArguments),
            ("id", "a\nb", InvalidArguments),
            ("id", "\ud800", InvalidArguments),
            ("run_at", float("nan"), InvalidArguments),
            ("run_at", 10**20, InvalidArguments),
            ("run_in", -1, InvalidArguments),
            ("expires_at", "tomorrow", InvalidArguments),
            ("max_attempts", 0, InvalidArguments),
            ("unique", "always", InvalidArguments),
            ("on_conflict", "fight", InvalidArguments),
            ("tags", ["two words"], InvalidArguments),
            ("meta", {"at": object()}, InvalidArguments),
            ("meta", {"rate": float("inf")}, InvalidArguments),
            ("meta", {"name": "\ud800"}, InvalidArguments),
            ("scope", "\ud800", InvalidArguments),
            ("changed", {"timeout": -1}, InvalidJob),
        ],
    )
    def test_what_middleware_sets_is_checked_as_what_a_caller_says(
        self, field: str, value: Any, error: type[Exception], jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(SET, field, value)
        with override_settings(DJANGO_JOBS={**SETTINGS, "ENQUEUE_MIDDLEWARE": [f"{__name__}.spoil"]}):
            for enqueue in (lambda: other.enqueue(a=1), lambda: other.enqueue_many([{"a": 1}])):
                with pytest.raises(error, match=r"sample\.other|Queue 'nowhere'|job_id|meta"):
                    enqueue()
            with pytest.raises(error):
                chain(other.s(a=1)).enqueue()
        assert jobs.enqueued() == []

    def test_what_middleware_may_set_is_stored(self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
        given = {
            "id": UUID(int=7),
            "run_in": 60_000,
            "max_attempts": 3,
            "unique": 60.0,
            "meta": {"a": [1, {"b": None}]},
        }
        for name, value in given.items():
            monkeypatch.setitem(SET, name, value)
        with override_settings(DJANGO_JOBS={**SETTINGS, "ENQUEUE_MIDDLEWARE": [f"{__name__}.spoil"]}):
            handle = other.enqueue(a=1)
        job = stored(handle)
        assert (handle.id, handle.state, job.options.max_attempts) == (str(UUID(int=7)), "scheduled", 3)
        assert (job.meta or {})["a"] == [1, {"b": None}]


class TestSignals:
    def test_job_enqueued_is_sent_for_each_job_that_was_added(self, jobs: Jobs) -> None:
        seen: list[tuple[Any, ...]] = []

        def receiver(sender: Any, handle: JobHandle, name: str, **more: Any) -> None:
            seen.append((sender, handle.id, name, more["queue"]))

        def broken(sender: Any, **more: Any) -> None:
            raise RuntimeError("a receiver cannot fail an enqueue")

        job_enqueued.connect(receiver)
        job_enqueued.connect(broken)
        try:
            first, second = unique.enqueue(1), unique.enqueue(2)
            unique.enqueue(2)
        finally:
            job_enqueued.disconnect(receiver)
            job_enqueued.disconnect(broken)
        assert seen == [(unique, handle.id, "sample.unique", "default") for handle in (first, second)]


class TestEager:
    def test_jobs_run_where_they_are_enqueued(self, jobs: Jobs) -> None:
        with jobs.eager():
            handle = receipt.enqueue_in(300, 7)
            assert sample_jobs.ran == [("receipt", (7, False))]
        assert (handle.state, handle.result, handle.wait(1)) == ("succeeded", "receipt 7", "receipt 7")
        assert handle.cancel() is False
        assert jobs.enqueued() == []

    def test_jobs_with_a_time_limit_or_a_context_or_a_coroutine_run_too(self, jobs: Jobs) -> None:
        with jobs.eager():
            assert sample_jobs.context.enqueue(7).result == 1
            assert sample_jobs.coroutine.enqueue(8).result == 8
            sample_jobs.chain.enqueue(2)
        assert [name for name, _ in sample_jobs.ran] == ["context", "coroutine", "chain", "chain", "chain"]
