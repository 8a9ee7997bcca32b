"""Middleware round a job: their order, what they may decide, on the loop and off it, and which cannot be used."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from django_jobs.checks import check_settings
from django_jobs.core.context import JobContext, RunningJob, current_job
from django_jobs.core.values import State
from django_jobs.execution.executor import Executor
from django_jobs.middleware import build, load, wrap
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]


@pytest.mark.accepts("G17", "G24", "G05", "G16")
def test_middleware_run_in_order_and_leave_things_for_each_other_and_the_function(bench: Bench) -> None:
    seen: list[Any] = []

    def named(name: str) -> Any:
        def factory(get_next: Any) -> Any:
            def layer(job: RunningJob) -> Any:
                seen.append(f"{name} in {job.name} {job.attempt}/{job.max_attempts}")
                job.context.trail = [*getattr(job.context, "trail", []), name]
                try:
                    return get_next(job)
                finally:
                    seen.append(f"{name} out")

            return layer

        return factory

    def inner(ctx: JobContext, x: int) -> int:
        seen.append((ctx.context.trail, ctx.attempt, current_job() is ctx.job, ctx.token > 0, ctx.should_stop))
        return x

    info = bench.run(inner, 4, middleware=[named("a"), named("b")], takes_context=True, max_attempts=3)

    assert info.result == b"4"
    assert seen == [
        "a in bench.inner 1/10",
        "b in bench.inner 1/10",
        (["a", "b"], 1, True, True, False),
        "b out",
        "a out",
    ]
    assert current_job() is None


def test_a_middleware_may_answer_for_the_job(bench: Bench) -> None:
    def cached(get_next: Any) -> Any:
        return lambda job: "from the cache"

    def never() -> None:
        raise AssertionError

    assert bench.run(never, middleware=[cached]).result == b'"from the cache"'


@pytest.mark.accepts("G16")
def test_a_middleware_may_stop_the_chain_with_an_error(bench: Bench) -> None:
    reached: list[str] = []

    def outer(get_next: Any) -> Any:
        def layer(job: RunningJob) -> Any:
            reached.append("outer")
            try:
                return get_next(job)
            except PermissionError:
                reached.append("outer sees it")
                raise

        return layer

    def refuses(get_next: Any) -> Any:
        def layer(job: RunningJob) -> Any:
            raise PermissionError("not today")

        return layer

    def inner(get_next: Any) -> Any:
        return lambda job: reached.append("inner")

    def function() -> None:
        reached.append("function")

    info = bench.run(function, middleware=[outer, refuses, inner], max_attempts=2)
    assert reached == ["outer", "outer sees it"]
    assert (info.state, info.attempts[-1].error) == (State.RETRY, "not today")


def test_sync_middleware_wrap_an_async_job_from_its_start_to_its_end(bench: Bench) -> None:
    seen: list[str] = []

    def layer(get_next: Any) -> Any:
        def run(job: RunningJob) -> Any:
            seen.append("before")
            result = get_next(job)
            seen.append(f"after {result}")
            return result

        return run

    async def work() -> int:
        await asyncio.sleep(0)
        seen.append("work")
        return 1

    assert bench.run(work, middleware=[layer]).state is State.SUCCEEDED
    assert seen == ["before", "work", "after 1"]


def test_middleware_for_both_kinds_run_on_the_loop(bench: Bench) -> None:
    threads: list[str] = []

    def both(get_next: Any) -> Any:
        async def run(job: RunningJob) -> Any:
            threads.append(threading.current_thread().name)
            return await get_next(job)

        return run

    both.async_capable = both.sync_capable = True  # type: ignore[attr-defined]

    async def where() -> bool:
        return threading.current_thread().name == threads[0]

    assert bench.run(where, middleware=[both]).result == b"true"


# -- loading middleware -----------------------------------------------------------------


def only_async(get_next: Any) -> Any:
    return get_next


only_async.sync_capable = False  # type: ignore[attr-defined]
not_callable = 5


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tests.unit.nowhere.layer", "cannot be imported"),
        ("tests.unit.execution.test_middleware.not_callable", "is not callable"),
        ("tests.unit.execution.test_middleware.only_async", "works only for async jobs"),
    ],
)
def test_a_middleware_that_cannot_be_used_is_named(path: str, words: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=words) as caught:
        load([path])
    assert path in str(caught.value)


def test_a_middleware_that_returns_nothing_to_call_is_named() -> None:
    def forgetful(get_next: Any) -> Any:
        return None

    with pytest.raises(ImproperlyConfigured, match="forgetful"):
        wrap(lambda job: None, [forgetful])


def test_the_setting_says_which_middleware_there_are() -> None:
    given = {"STORE": "memory", "MIDDLEWARE": ["tests.unit.execution.test_middleware.only_async"]}
    with override_settings(DJANGO_JOBS=given), pytest.raises(ImproperlyConfigured):
        Executor()


def not_used(get_next: Any) -> Any:
    raise MiddlewareNotUsed


def forgot_to_return(get_next: Any) -> Any:
    def layer(job: RunningJob) -> Any:
        return get_next(job)


def cannot_be_made(get_next: Any) -> Any:
    raise KeyError("TOKEN")


def test_one_that_says_it_is_not_used_is_left_out_as_in_django(bench: Bench) -> None:
    def work() -> int:
        return 4

    assert bench.run(work, middleware=[not_used]).result == b"4"
    build([f"{__name__}.not_used"])


@pytest.mark.parametrize(
    ("name", "says"), [("forgot_to_return", "is a `return` missing"), ("cannot_be_made", "KeyError: 'TOKEN'")]
)
@pytest.mark.parametrize("key", ["MIDDLEWARE", "ENQUEUE_MIDDLEWARE"])
def test_one_that_cannot_be_made_is_named_by_the_system_check(name: str, says: str, key: str) -> None:
    path = f"{__name__}.{name}"
    with override_settings(DJANGO_JOBS={"STORE": "memory", key: [path]}):
        (found,) = check_settings()
    assert (found.id, path in found.msg, says in found.msg) == ("django_jobs.E005", True, True)


@pytest.mark.parametrize("name", ["forgot_to_return", "cannot_be_made"])
def test_one_that_cannot_be_made_stops_the_worker_before_its_first_claim(name: str) -> None:
    path = f"{__name__}.{name}"
    with (
        override_settings(DJANGO_JOBS={"STORE": "embedded", "MIDDLEWARE": [path]}),
        pytest.raises(CommandError, match=path.replace(".", r"\.")),
    ):
        call_command("runworkers", skip_checks=True, burst=True)


def test_one_that_cannot_be_made_for_a_job_fails_that_job_and_not_its_process(bench: Bench) -> None:
    def work() -> int:
        return 4

    info = bench.run(work, middleware=[cannot_be_made])
    assert (info.state, info.attempts[0].error_type) == (State.RETRY, "builtins.KeyError")
