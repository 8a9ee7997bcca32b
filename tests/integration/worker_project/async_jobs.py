"""`async def` jobs that use the database, as many projects have them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_jobs import job


def wait_for(path: str) -> None:
    ends = time.monotonic() + 20
    while not Path(path).exists() and time.monotonic() < ends:
        time.sleep(0.01)


def execute(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


@job(name="acommits")
async def acommits(began: str, goes_on: str) -> None:
    """Write a row in a transaction that takes its time, and read it again before the commit."""
    atomic = transaction.atomic()
    await sync_to_async(atomic.__enter__)()
    await sync_to_async(execute)("CREATE TABLE written AS SELECT 7 AS number")
    Path(began).touch()
    await asyncio.to_thread(wait_for, goes_on)
    await sync_to_async(atomic.__exit__)(None, None, None)


@job(name="areads")
async def areads(sql: str) -> list[Any]:
    return await sync_to_async(execute)(sql)


@job(name="acancels_itself")
async def acancels_itself() -> int:
    task = asyncio.current_task()
    assert task is not None
    await sync_to_async(execute)("SELECT 1")
    task.cancel()
    return 7


@job(name="acancels_others")
async def acancels_others(began: str, goes_on: str) -> None:
    """Keep the loop busy until other jobs have been submitted to it, and cancel them before they begin."""
    Path(began).touch()
    wait_for(goes_on)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@job(name="ablocks")
async def ablocks(began: str, goes_on: str) -> None:
    await sync_to_async(execute)("SELECT 1")
    Path(began).touch()
    await sync_to_async(wait_for)(goes_on)


@job(name="ahelped")
async def ahelped() -> list[bool]:
    """Leave a transaction open in a thread of `asyncio.to_thread`.  Return what the next call of that thread meets."""
    return [await asyncio.to_thread(leave_open) for _ in range(3)]


def leave_open() -> bool:
    was_open = connection.in_atomic_block
    transaction.atomic().__enter__()
    execute("SELECT 1")
    return was_open


@job(name="acounts_threads")
async def acounts_threads() -> int:
    await sync_to_async(execute)("SELECT 1")
    return threading.active_count()


def with_a_table(get_next: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A middleware that prepares the connection of its thread."""

    def layer(running: Any) -> Any:
        execute("CREATE TEMPORARY TABLE prepared AS SELECT 5 AS number")
        return get_next(running)

    return layer
