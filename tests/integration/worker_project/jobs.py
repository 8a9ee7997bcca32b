"""Jobs whose behaviour a test can steer, and that write what happens to them into the ledger."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from django_jobs import JobContext, Retry, Snooze, current_job, job
from tests.integration.worker_project import async_jobs as async_jobs
from tests.integration.worker_project import odd_ends as odd_ends
from tests.integration.worker_project import processes as processes
from tests.survival.project.jobs import ledger, recorded


@job(name="add")
def add(a: int, b: int) -> int:
    return a + b


@job(name="until_stopped", takes_context=True)
def until_stopped(ctx: JobContext) -> str:
    """Ends when it is asked to."""
    with recorded():
        while not ctx.should_stop:
            time.sleep(0.01)
    ledger.write("stopped", ctx.job.id, ctx.token)
    return "stopped in order"


@job(name="turn", max_concurrency=1, takes_context=True)
def turn(ctx: JobContext, holds: bool = False, ms: int = 0) -> None:
    """One at a time; one that holds ends when it is asked to."""
    with recorded():
        while holds and not ctx.should_stop:
            time.sleep(0.01)
        time.sleep(ms / 1000)


@job(name="deaf")
def deaf() -> None:
    """Does not end when it is asked to."""
    with recorded():
        time.sleep(60)


@job(name="fails_once", backoff=[0])
def fails_once() -> int:
    me = current_job()
    assert me is not None
    with recorded():
        if me.attempt == 1:
            raise ValueError("the first time")
    return me.attempt


@job(name="waits_for")
def waits_for(path: str) -> None:
    """Ends when the file is there."""
    with recorded():
        while not Path(path).exists():
            time.sleep(0.01)


@job(name="goes_on")
def goes_on() -> None:
    """Never ends as a chain: each leaves the next one."""
    with recorded():
        goes_on.enqueue()


@job(name="dies_once")
def dies_once(flag: str) -> None:
    with recorded():
        if not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)


@job(name="snoozes_once")
def snoozes_once(flag: str) -> int:
    me = current_job()
    assert me is not None
    with recorded():
        if not Path(flag).exists():
            Path(flag).touch()
            raise Snooze(in_=0.1)
    return me.attempt


@job(name="asks_again_once", delivery="at_most_once")
def asks_again_once(how: str) -> None:
    with recorded():
        raise Snooze("later", in_=0) if how == "snooze" else Retry("later", in_=0)


@job(name="says", takes_context=True)
def says(ctx: JobContext) -> None:
    """Checks in twice within a second, then waits to be stopped."""
    with recorded():
        ctx.checkin("first", 0.1)
        ctx.checkin("second", 0.2)
        while not ctx.should_stop:
            time.sleep(0.01)


@job(name="who")
def who() -> int:
    return os.getpid()


@job(name="leaves_transaction_open")
def leaves_transaction_open() -> None:
    from django.db import connection, transaction

    transaction.atomic().__enter__()
    connection.cursor().execute("SELECT 1")


@job(name="in_transaction")
def in_transaction() -> bool:
    from django.db import connection

    connection.cursor().execute("SELECT 1")
    return connection.in_atomic_block


@job(name="grows")
def grows(megabytes: int) -> int:
    """Leaks."""
    _LEAK.append(b"x" * (megabytes << 20))
    return os.getpid()


_LEAK: list[bytes] = []


class Large:
    """Counts how many of it there are."""

    now = most = 0

    def __init__(self) -> None:
        Large.now += 1
        Large.most = max(Large.most, Large.now)

    def __del__(self) -> None:
        Large.now -= 1


@job(name="fails_with_a_large_local", max_attempts=1)
def fails_with_a_large_local() -> None:
    large = Large()
    raise ValueError(type(large).__name__)


@job(name="most_large")
def most_large() -> int:
    return Large.most


@job(name="timed", timeout=0.5, backoff=[0], max_attempts=2)
def timed() -> None:
    with recorded():
        time.sleep(30)


@job(name="freezes")
def freezes(path: str) -> None:
    """Lets no other thread of its process run, from the line "held" on, until somebody writes into this pipe."""
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)
    byte, libc = ctypes.create_string_buffer(1), ctypes.PyDLL(None)
    with recorded():
        me = current_job()
        assert me is not None
        ledger.write("held", me.id, me.token)
        libc.read(end, byte, 1)
    os.close(end)


@job(name="once_more", delivery="at_most_once")
def once_more() -> None:
    with recorded():
        pass


@job(name="long_text")
def long_text(size: int) -> str:
    with recorded():
        return "x" * size


@job(name="computes")
def computes(ms: int) -> None:
    with recorded():
        ends = time.thread_time() + ms / 1000
        while time.thread_time() < ends:
            pass
