"""A function that returned is never run again because of what it returned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpResponse

from django_jobs import JobHandle, MissingResult
from django_jobs.core.values import JobInfo, State
from django_jobs.serialization.arguments import dump_value
from django_jobs.serialization.display import readable
from django_jobs.serialization.payloads import job_payload
from django_jobs.serialization.results import dump_result, load_result, why_missing
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]

#: The jobs that ran, one entry for each run.
ran: list[str] = []


class Hostile:
    """Raises at whatever is done with it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(1)


def steps() -> Iterator[int]:
    yield 1


RETURNED: dict[str, Callable[[], Any]] = {
    "response": lambda: HttpResponse("ok"),
    "set": lambda: {1, 2},
    "generator": steps,
    "not a number": lambda: float("nan"),
    "large": lambda: "x" * 300_000,
    "object": object,
    "hostile": Hostile,
    "deep": lambda: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],
    "surrogate": lambda: "\ud800",
}


def shown(info: JobInfo) -> JobHandle:
    handle = JobHandle(info.id, "job", info.queue)
    handle.show(info, final=True)
    return handle


@pytest.mark.parametrize("what", RETURNED)
def test_the_job_succeeds_once_and_its_result_says_why_it_is_missing(bench: Bench, what: str) -> None:
    ran.clear()

    def work() -> Any:
        ran.append(what)
        return RETURNED[what]()

    info = bench.run(work)
    assert (info.state, ran) == (State.SUCCEEDED, [what])
    result = shown(info).result
    assert isinstance(result, MissingResult)
    assert not result
    assert str(result) == shown(info).result_missing == job_payload(info)["result_missing"]
    assert len(str(result)) > 30
    assert job_payload(info)["result"] is None
    assert shown(info).wait(1) == result


@pytest.mark.parametrize("what", ["set", "hostile", "large"])
def test_a_coroutine_that_returned_it_succeeds_too(bench: Bench, what: str) -> None:
    async def work() -> Any:
        return RETURNED[what]()

    info = bench.run(work)
    assert info.state is State.SUCCEEDED
    assert shown(info).result_missing


def test_of_each_job_type_one_warning_is_written(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def one() -> Any:
        return {1}

    def two() -> Any:
        return {1}

    with caplog.at_level(logging.WARNING, "django_jobs.worker"):
        for func in (one, two):
            bench.define(func)
            for _ in range(3):
                bench.run(None, name=f"bench.{func.__name__}")
    warned = [record.getMessage() for record in caplog.records if "is not kept" in record.getMessage()]
    assert [message.split()[3] for message in warned] == ["bench.one", "bench.two"]
    assert "Return a sorted list" in warned[0]


def test_nothing_is_stored_of_a_job_that_says_so(bench: Bench) -> None:
    def silent() -> Any:
        return {"secret": 1}

    info = bench.run(silent, keep_result=0)
    assert info.state is State.SUCCEEDED
    assert not info.result or info.result == b"null"


def test_what_json_can_hold_is_kept_with_its_type(bench: Bench) -> None:
    def work() -> Any:
        return {"$missing": "mine", "pair": (1, b"2")}

    info = bench.run(work)
    assert shown(info).result == {"$missing": "mine", "pair": (1, b"2")}
    assert load_result(dump_value({"$missing": "x"})) == {"$missing": "x"}


def test_a_reason_that_was_cut_for_a_page_is_still_told_as_one() -> None:
    stored, why = dump_result({1, 2})
    assert why_missing(stored) == why
    assert why_missing(stored[:40]) in why
    assert readable({"$missing": why}) == f"not kept: {why}"
