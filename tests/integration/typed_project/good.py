"""Everything here is right: no checker has anything to say."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from django_jobs import JobContext, JobHandle, MissingResult, aget_job, get_job, job


@job
def count(word: str, times: int = 1) -> int:
    return len(word) * times


@job(max_attempts=3, backoff=[5, timedelta(minutes=1)], unique="queued", timeout=60, retry_on=(OSError,))
def send(order_id: int) -> None: ...


@job(takes_context=True, keep_result=3600)
def export(ctx: JobContext, rows: int) -> list[str]:
    ctx.checkin("begins", progress=0.0)
    return [str(rows)]


@job
async def fetch(url: str) -> bytes:
    return url.encode()


@job(queue="slow")
async def fetch_slowly(url: str) -> bytes:
    return url.encode()


def use() -> None:
    assert_type(count("a"), int)
    assert_type(count.enqueue("a", times=2), JobHandle[int])
    assert_type(count.enqueue("a").wait(timeout=5), int)
    assert_type(count.enqueue("a").result, int | MissingResult | None)
    assert_type(count.using(priority=5, job_id="x").enqueue_in(5, "a"), JobHandle[int])
    assert_type(export.enqueue(7).wait(), list[str])
    assert_type(fetch.enqueue("a").wait(), bytes)
    assert_type(fetch_slowly.enqueue("a").wait(), bytes)
    assert_type(export.using(queue="mail").enqueue_in(5, rows=7), JobHandle[list[str]])
    assert_type(count.enqueue_unique_by_key_in("key", 5, "a"), JobHandle[int] | None)
    send.enqueue_many([(1,), {"order_id": 2}])
    get_job("x").refresh()


async def use_async() -> None:
    handle = await fetch.aenqueue("a")
    assert_type(await handle.await_result(timeout=5), bytes)
    assert_type(await fetch("a"), bytes)
    assert_type(await fetch.using(priority=5).aenqueue_in(5, "a"), JobHandle[bytes])
    assert_type(await fetch.aenqueue_unique_by_key("key", "a"), JobHandle[bytes] | None)
    assert_type(await fetch.aenqueue_many([("a",)], job_ids=["x"]), list[JobHandle[bytes]])
    assert_type(await handle.acancel(), bool)
    assert_type(await handle.arefresh(), JobHandle[bytes])
    assert_type(await aget_job("x", queue="default"), JobHandle)
