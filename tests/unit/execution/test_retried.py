"""`raise Retry(args=…, kwargs=…, max_attempts=…)`: the job goes on as another call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Added, NewJob, State
from django_jobs.enqueueing.keys import digest_of_arguments
from django_jobs.exceptions import Retry
from django_jobs.execution.executor import Executor
from django_jobs.serialization.record import decode
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]


def job_of(info: Any) -> Any:
    return decode(info.id, info.queue, info.record)


@pytest.mark.parametrize("raised_by", ["the function", "a middleware"])
def test_the_next_attempt_has_the_new_arguments_and_limit(bench: Bench, raised_by: str) -> None:
    change = Retry("by another road", in_=5, args=(8,), kwargs={"road": "B 7"}, max_attempts=20)

    def drive(number: int, road: str = "A 1") -> None:
        raise change

    def layer(get_next: Any) -> Any:
        def refuse(job: RunningJob) -> None:
            raise change

        return refuse

    info = bench.run(drive, 7, middleware=[layer] if raised_by == "a middleware" else ())
    job = job_of(info)
    assert (info.state, json.loads(job.args), job.options.max_attempts) == (
        State.RETRY,
        [[8], {"road": "B 7"}],
        20,
    )
    assert info.attempts[-1].error == "by another road"


def test_what_is_not_named_stays(bench: Bench) -> None:
    def drive(number: int, road: str = "A 1") -> None:
        raise Retry(in_=5, kwargs={"road": "B 7"})

    info = bench.run(drive, 7)
    assert json.loads(job_of(info).args) == [[7], {"road": "B 7"}]
    assert job_of(info).options.max_attempts == 10


def test_the_new_limit_counts_at_once(bench: Bench) -> None:
    def once_more() -> None:
        raise Retry(max_attempts=1)

    assert bench.run(once_more).state is State.DEAD

    def again() -> None:
        raise Retry(in_=5, max_attempts=2)

    assert bench.run(again, max_attempts=1).state is State.RETRY


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"args": ()}, "missing a required argument: 'number'"),
        ({"args": "87"}, "Retry(args=…) is of type str: use a tuple"),
        ({"args": (object(),)}, "args[0] (number) is of type builtins.object"),
        ({"kwargs": ["road"]}, "Retry(kwargs=…) is of type list: use a dict"),
        ({"max_attempts": 0}, "max_attempts=0"),
    ],
)
def test_a_wrong_change_fails_the_attempt_as_if_the_function_had_raised_that(
    bench: Bench, changes: Any, said: str
) -> None:
    def drive(number: int, road: str = "A 1") -> None:
        raise Retry(in_=5, **changes)

    info = bench.run(drive, 7, backoff=[60])
    assert (info.state, json.loads(job_of(info).args)) == (State.RETRY, [[7], {}])
    assert (info.attempts[-1].outcome, said in info.attempts[-1].error) == ("failed", True)


def run_unique(bench: Bench, then: int) -> Any:
    """Run a job that is unique by its argument, 7, and goes on with the argument `then`."""

    def drive(number: int) -> None:
        raise Retry(in_=5, args=(then,))

    bench.define(drive, unique="success", max_concurrency=1, concurrency_key="number", tags=["road"])
    made = unique_job(bench, 7, tags="road")
    bench.store.enqueue("default", [made])
    Executor(middleware=(), clock=bench.clock, close_connections=False).run(bench.claim(), bench.store)
    return bench.store.get("default", made.id)


def unique_job(bench: Bench, number: int, **more: Any) -> NewJob:
    key = digest_of_arguments(JobDefinition(lambda number: None, name="bench.drive"), [number], {})
    return bench.make_job(
        name="bench.drive",
        args=b"[[%d],{}]" % number,
        unique=key,
        unique_mode="success",
        limit_key=f"bench.drive:{number}",
        limit=1,
        **more,
    )


def test_the_lock_and_the_limit_are_those_of_the_new_arguments(bench: Bench) -> None:
    info = run_unique(bench, then=8)
    assert job_of(info).controls.limit_key == "bench.drive:8"
    added = [bench.store.enqueue("default", [unique_job(bench, number)])[0] for number in (8, 7)]
    assert added == [Added.DUPLICATE, Added.ADDED]


def test_a_key_that_another_job_has_stays_with_that(bench: Bench) -> None:
    other = unique_job(bench, 8)._replace(run_at=bench.clock() + 3_600_000)
    bench.store.enqueue("default", [other])
    info = run_unique(bench, then=8)
    assert info.state is State.RETRY
    assert bench.store.key_holders("default", {info.id: info.record}) == {info.id: other.id}


def test_its_tags_stay(bench: Bench) -> None:
    assert job_of(run_unique(bench, then=8)).tags == ("road",)


def test_no_sensitive_value_is_in_the_log_neither_an_old_nor_a_new_one(bench: Bench) -> None:
    def drive(pin: str) -> None:
        raise Retry("not 1111-2222 but 3333-4444", in_=5, args=("3333-4444",))

    info = bench.run(drive, "1111-2222", sensitive=["pin"])
    assert json.loads(job_of(info).args) == [["3333-4444"], {}]
    assert info.attempts[-1].error == "not •••• but ••••"
