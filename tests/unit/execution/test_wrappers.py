"""Decorators between `@job` and the function: what they return is run, or the job fails and says why."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from django_jobs.core.values import State
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]


def wrapped(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that knows nothing of async functions and generators."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper


async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def steps() -> Iterator[int]:
    yield 1


async def later_steps() -> AsyncIterator[int]:
    yield 1


def test_the_coroutine_that_a_wrapper_returns_is_run(bench: Bench) -> None:
    info = bench.run(wrapped(add), 2, 3)
    assert (info.state, info.result) == (State.SUCCEEDED, b"5")


def test_middleware_surround_the_coroutine_that_a_wrapper_returns(bench: Bench) -> None:
    seen: list[Any] = []

    def middleware(get_next: Any) -> Any:
        def layer(job: Any) -> Any:
            seen.append(get_next(job))
            return seen[-1]

        return layer

    bench.run(wrapped(add), 2, 3, middleware=[middleware])
    assert seen == [5]


def test_an_async_middleware_that_does_not_say_so_runs(bench: Bench) -> None:
    def middleware(get_next: Any) -> Any:
        async def layer(job: Any) -> Any:
            await asyncio.sleep(0)
            return get_next(job) + 1

        return layer

    def one() -> int:
        return 1

    assert bench.run(one, middleware=[middleware]).result == b"2"


@pytest.mark.parametrize("func", [steps, later_steps])
def test_a_generator_in_a_wrapper_fails_and_says_why(bench: Bench, func: Any) -> None:
    info = bench.run(wrapped(func))
    assert info.state is State.DEAD
    assert "none of its code has run" in info.attempts[-1].error


def test_a_wrapper_may_run_a_generator(bench: Bench) -> None:
    @functools.wraps(steps)
    def wrapper() -> int:
        return sum(steps())

    assert bench.run(wrapper).result == b"1"
