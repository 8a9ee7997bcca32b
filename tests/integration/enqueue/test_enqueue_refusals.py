"""What is wrong with a call is said where it is made, with value and remedy; a full queue too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import (
    InvalidArguments,
    PayloadError,
    QueueFull,
    UnknownJob,
    UnknownQueue,
    enqueue,
)
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.testing import Jobs
from tests.integration.enqueueing import SETTINGS, in_memory
from tests.integration.sample_jobs import greedy, other, receipt, unique

__all__ = ["in_memory"]


class TestBadInput:
    @pytest.mark.accepts("G14", "G21")
    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda: receipt.enqueue(), InvalidArguments, "cannot be called like this: missing a required argument"),
            (lambda: receipt.enqueue(1, 2, 3), InvalidArguments, "too many positional arguments"),
            (lambda: receipt.enqueue(1, size=3), InvalidArguments, "unexpected keyword argument 'size'"),
            (lambda: receipt.enqueue(float("nan")), PayloadError, "sample.receipt: args[0] (order_id) is nan"),
            (
                lambda: receipt.enqueue(1, [{2}]),
                PayloadError,
                "sample.receipt: args[1] (copy)[0] is of type builtins.set",
            ),
            (lambda: other.enqueue(items=[1, {2}]), PayloadError, "kwargs['items'][1] is of type builtins.set"),
            (lambda: receipt.enqueue_in(-1, 7), InvalidArguments, "delay=-1: use 0 seconds or more"),
            (lambda: receipt.enqueue_in(timedelta(seconds=-1), 7), InvalidArguments, "use 0 seconds or more"),
            (lambda: receipt.enqueue_in("5", 7), InvalidArguments, "delay='5': use seconds"),
            (lambda: receipt.enqueue_in(float("nan"), 7), InvalidArguments, "delay=nan: use seconds"),
            (lambda: receipt.enqueue_in(float("inf"), 7), InvalidArguments, "at most 100 years"),
            (lambda: receipt.enqueue_at(datetime(2030, 1, 1), 7), InvalidArguments, "has no time zone"),
            (lambda: receipt.enqueue_at(60, 7), InvalidArguments, "when=60: use an aware datetime"),
            (lambda: receipt.enqueue_many([7]), InvalidArguments, "7 is neither a tuple nor a dict of arguments"),
            (lambda: receipt.using(job_id="a").enqueue_many([(1,), (2,)]), InvalidArguments, "job_id='a' for 2 jobs."),
            (lambda: unique.enqueue_unique_by_key({1}, 7), PayloadError, "unique key"),
            (lambda: enqueue_by_name("sample.reciept"), UnknownJob, "Did you mean 'sample.receipt'?"),
            (lambda: enqueue("sample.reciept", 7), UnknownJob, "Did you mean 'sample.receipt'?"),
            (lambda: enqueue("sample.receipt"), InvalidArguments, "missing a required argument: 'order_id'"),
            (lambda: enqueue_by_name("sample.receipt", [7], queue="no"), UnknownQueue, "'no' is not in DJANGO_JOBS"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_it_is_refused_with_value_and_remedy_and_nothing_is_stored(
        self, jobs: Jobs, call: Callable[[], Any], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error) as caught:
            call()
        assert message in str(caught.value)
        assert jobs.enqueued() == []

    def test_the_payload_limit_is_exact(self, jobs: Jobs) -> None:
        around = len(b'[[""],{}]')
        receipt.enqueue("x" * (262_144 - around))  # type: ignore[arg-type]
        with pytest.raises(PayloadError, match=r"take 262145 bytes; MAX_PAYLOAD is 262144.*pass its id"):
            receipt.enqueue("x" * (262_145 - around))  # type: ignore[arg-type]

    def test_of_ten_thousand_jobs_with_one_too_large_none_is_stored(self, jobs: Jobs) -> None:
        calls = [(number,) for number in range(10_000)]
        with pytest.raises(PayloadError):
            receipt.enqueue_many([*calls, ("x" * 300_000,)])
        assert jobs.enqueued() == []

    def test_a_queue_that_left_the_settings_is_named(self, jobs: Jobs) -> None:
        with (
            override_settings(DJANGO_JOBS={"STORE": "memory"}),
            pytest.raises(UnknownQueue, match=r"Queue 'mail' is not in .*Add it there. Known queues: default"),
        ):
            other.enqueue()


class TestFullQueues:
    @pytest.mark.accepts("O02", "O04", "O06")
    def test_a_full_queue_refuses_and_says_what_to_do(self, jobs: Jobs) -> None:
        task = receipt.using(queue="small")
        task.enqueue(1)
        task.enqueue(2)
        with pytest.raises(QueueFull, match=r"Queue 'small' is full .MAX_LENGTH is 2.*try_enqueue"):
            task.enqueue(3)
        assert len(jobs.enqueued(queue="small")) == 2

    @pytest.mark.accepts("O05")
    def test_try_enqueue_returns_none_instead(self, jobs: Jobs) -> None:
        task = receipt.using(queue="small")
        assert [task.try_enqueue(number) is not None for number in range(3)] == [True, True, False]

    def test_enqueue_many_says_how_many_were_accepted(self, jobs: Jobs) -> None:
        with pytest.raises(QueueFull) as caught:
            receipt.using(queue="small").enqueue_many([(1,), (2,), (3,)])
        assert caught.value.accepted == 2
        assert "This call enqueued 2 of its jobs." in str(caught.value)

    @pytest.mark.accepts("O03")
    def test_on_full_block_waits_until_there_is_room(self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses: list[float] = []

        def a_worker_takes_the_first(pause: float) -> None:
            pauses.append(pause)
            if len(pauses) == 2:
                jobs.store.delete("small", [first.id])

        monkeypatch.setattr("time.sleep", a_worker_takes_the_first)
        with override_settings(DJANGO_JOBS=_blocking()):
            task = receipt.using(queue="small")
            first = task.enqueue(1)
            task.enqueue(2)
            assert task.enqueue(3).state == "queued"
        assert len(pauses) == 2

    @pytest.mark.accepts("O03")
    def test_block_timeout_bounds_the_wait(self, jobs: Jobs) -> None:
        with override_settings(DJANGO_JOBS=_blocking()):
            task = receipt.using(queue="small")
            task.enqueue_many([(1,), (2,)])
            with pytest.raises(QueueFull):
                task.using(block_timeout=0.02).enqueue(3)
            with pytest.raises(QueueFull):
                task.enqueue(3, block_timeout=0.02)  # type: ignore[call-arg]
            assert task.try_enqueue(3) is None

    def test_a_parameter_named_block_timeout_is_the_functions(self, jobs: Jobs) -> None:
        greedy.enqueue(block_timeout=5)
        (job,) = jobs.enqueued()
        assert job.kwargs == {"block_timeout": 5}


def _blocking() -> dict[str, Any]:
    return {**SETTINGS, "QUEUES": {"default": {}, "small": {"MAX_LENGTH": 2, "ON_FULL": "block"}}}
