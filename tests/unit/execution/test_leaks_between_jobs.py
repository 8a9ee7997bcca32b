"""What one job sets on its thread, the next does not see."""

from __future__ import annotations

import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
from django.core.cache import caches
from django.urls import get_script_prefix, get_urlconf, set_script_prefix, set_urlconf
from django.utils import timezone, translation

from django_jobs.execution.executor import Executor
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]

ACCOUNT: ContextVar[str] = ContextVar("account", default="nobody")


def state() -> list[Any]:
    return [
        translation.get_language(),
        timezone.get_current_timezone_name(),
        get_urlconf(),
        get_script_prefix(),
        ACCOUNT.get(),
    ]


@pytest.mark.parametrize("ends", ["well", "badly"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_job_activates_ends_with_it(bench: Bench, ends: str, kind: str) -> None:
    seen: list[list[Any]] = []
    before = state()

    def spoil() -> None:
        seen.append(state())
        translation.activate("de")
        timezone.activate(zoneinfo.ZoneInfo("Asia/Tokyo"))
        set_urlconf("tests.urls")
        set_script_prefix("/elsewhere/")
        ACCOUNT.set("somebody")
        assert state() != before
        if ends == "badly":
            raise ValueError

    async def spoil_async() -> None:
        spoil()

    job = spoil if kind == "sync" else spoil_async
    bench.define(job)
    executor = Executor(middleware=(), clock=bench.clock, close_connections=False)
    for _ in range(3):
        bench.put(f"bench.{job.__name__}")
        executor.run(bench.claim(), bench.store)
    assert seen == [before] * 3
    assert state() == before


def test_jobs_of_a_thread_share_its_caches_and_their_connections(bench: Bench) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append(caches["default"])

    bench.define(look)
    executor = Executor(middleware=(), clock=bench.clock, close_connections=False)

    def thread() -> None:
        for _ in range(2):
            bench.put("bench.look")
            executor.run(bench.claim(), bench.store)

    with ThreadPoolExecutor(1) as other:
        other.submit(thread).result()
    assert seen[0] is seen[1]
