"""An id that the caller gives: how many jobs come of it, and what the handle says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from django_jobs import InvalidArguments, JobFailed, StoreUnavailable, job
from django_jobs.core.values import Added
from django_jobs.enqueueing import batching
from django_jobs.stores import get_store
from django_jobs.testing import Jobs
from tests.integration.enqueueing import in_memory

__all__ = ["in_memory"]

charged: list[int] = []


@job(name="tests.ids.charge", delivery="at_most_once")
def charge(order: int) -> None:
    charged.append(order)


@job(name="tests.ids.fail", max_attempts=1)
def fail() -> None:
    raise ValueError("no")


@pytest.fixture(autouse=True)
def _nothing_charged() -> None:
    charged.clear()


def forget(id: str) -> None:
    """As HISTORY does after some other jobs."""
    assert get_store().delete("default", [id]) == [id]


@pytest.mark.accepts("K08")
def test_the_second_call_adds_nothing_though_the_first_job_has_left_the_history(jobs: Jobs) -> None:
    charge.using(job_id="charge-7").enqueue(7)
    jobs.run_all()
    forget("charge-7")
    again = charge.using(job_id="charge-7").enqueue(7)
    jobs.run_all()
    assert charged == [7]
    assert again.state == "succeeded"
    assert "left the history" in str(again.refresh().wait(1))


def test_the_handle_of_a_job_that_failed_and_left_says_so(jobs: Jobs) -> None:
    fail.using(job_id="f").enqueue()
    jobs.run_all()
    forget("f")
    again = fail.using(job_id="f").enqueue()
    assert again.state == "dead"
    with pytest.raises(JobFailed, match="dead"):
        again.wait(1)


def test_a_job_that_must_not_run_twice_is_remembered_under_the_id_that_was_made_for_it(jobs: Jobs) -> None:
    first = charge.enqueue(7)
    jobs.run_all()
    forget(first.id)
    charge.using(job_id=first.id).enqueue(7)
    jobs.run_all()
    assert charged == [7]


def test_the_handle_is_for_the_first_job_whatever_its_type_is() -> None:
    first = charge.using(job_id="one").enqueue(7)
    again = fail.using(job_id="one", queue="mail").enqueue()
    assert (again, again.name, again.queue) == (first, "tests.ids.charge", "default")
    (many_at_once,) = fail.enqueue_many([()], job_ids=["one"])
    assert (many_at_once.refresh().name, many_at_once.queue) == ("tests.ids.charge", "default")


# -- many in one call ------------------------------------------------------------


@job(name="tests.ids.many")
def many(n: int) -> None:
    charged.append(n)


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes of the calls to the store, in turn: "made", "in doubt" (made, no answer) or "not made"."""
    plan: list[str] = []
    store = get_store()
    enqueue, enqueue_ahead = store.enqueue, store.enqueue_ahead

    def fickle(*args: Any, **kwargs: Any) -> list[Added]:
        what = plan.pop(0) if plan else "made"
        answers = enqueue(*args, **kwargs) if what != "not made" else []
        if what != "made":
            raise StoreUnavailable
        return answers

    def fickle_ahead(*args: Any) -> Callable[[], list[Added]]:
        what = plan.pop(0) if plan else "made"
        answers = enqueue_ahead(*args)() if what != "not made" else []

        def wait() -> list[Added]:
            if what != "made":
                raise StoreUnavailable
            return answers

        return wait

    monkeypatch.setattr(store, "enqueue", fickle)
    monkeypatch.setattr(store, "enqueue_ahead", fickle_ahead)
    monkeypatch.setattr(batching, "MAX_BATCH", 10)
    return plan


@pytest.mark.parametrize("given_as", [list, iter])
@pytest.mark.parametrize("what", ["in doubt", "not made"])
def test_a_call_for_many_that_ended_in_doubt_is_repeated_and_nothing_is_added_twice(
    jobs: Jobs, lost: list[str], what: str, given_as: Callable[[list[tuple[int]]], Iterable[tuple[int]]]
) -> None:
    items = [(n,) for n in range(25)]
    lost += ["made", what]
    with pytest.raises(StoreUnavailable) as told:
        many.enqueue_many(given_as(items))
    jobs.run_all()
    begun = charged[:10]
    for id in told.value.job_ids[:10]:  # they have run and left the history
        get_store().delete("default", [id])
    handles = many.enqueue_many(items, job_ids=told.value.job_ids)
    jobs.run_all()
    assert begun == list(range(10))
    assert sorted(charged) == list(range(25))
    assert [handle.id for handle in handles] == told.value.job_ids


def test_a_call_for_many_that_ended_in_doubt_twice_is_repeated_with_the_ids_of_the_second_error(
    jobs: Jobs, lost: list[str]
) -> None:
    items = [(n,) for n in range(25)]
    lost += ["made", "not made", "made", "in doubt"]
    with pytest.raises(StoreUnavailable) as first:
        many.enqueue_many(items)
    with pytest.raises(StoreUnavailable) as second:
        many.enqueue_many(items, job_ids=first.value.job_ids)
    assert second.value.job_ids == first.value.job_ids
    many.enqueue_many(items, job_ids=second.value.job_ids)
    jobs.run_all()
    assert sorted(charged) == list(range(25))


def test_ids_of_the_caller_fit_the_items_or_nothing_is_sent(jobs: Jobs) -> None:
    assert [handle.id for handle in many.enqueue_many([(1,), (2,)], job_ids=["a", "b"])] == ["a", "b"]
    for wrong in (["a"], ["a", "a"], ["a", "no id"]):
        with pytest.raises(InvalidArguments):
            many.enqueue_many([(3,), (4,)], job_ids=wrong)
    jobs.run_all()
    assert charged == [1, 2]
