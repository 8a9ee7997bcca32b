"""Jobs that write what happens to them into the ledger, and jobs that misbehave."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from django_jobs import Retry, current_job, job
from tests.support.ledger import Writer
from tests.survival.project.kinds import ENDLESS, POISON

ledger = Writer(settings.LEDGER)


@contextmanager
def recorded() -> Iterator[None]:
    """start … end; no end if the body raises."""
    me = current_job()
    assert me is not None
    ledger.write("start", me.id, me.token, me.name)
    yield
    ledger.write("end", me.id, me.token, me.name)


@job(name="work")
def work(ms: int = 0) -> int:
    with recorded():
        if ms:
            time.sleep(ms / 1000)
    return ms


@job(name="told")
def told(end: dict[str, object]) -> None:
    with recorded():
        ledger.write("told", str(end["id"]))


@job(name="work_told", on_end=told)
def work_told(ms: int = 0) -> None:
    with recorded():
        time.sleep(ms / 1000)


@job(name="work_moved", on_end=told)
def work_moved(ms: int = 0) -> None:
    """The first attempt is in the queue of the call, all others in the queue "other"."""
    with recorded():
        time.sleep(ms / 1000)
        if current_job().queue != "other":
            raise Retry(in_=0.1, queue="other")


def _hold(gate: str) -> None:
    with recorded():
        while not Path(gate).exists():
            time.sleep(0.01)


@job(name="held")
def held(gate: str) -> None:
    """Ends when the file is there: for a test that must see it run, however slow the machine is."""
    _hold(gate)


@job(name="held_once", delivery="at_most_once")
def held_once(gate: str) -> None:
    """As held."""
    _hold(gate)


@job(name="held_unique", unique="running")
def held_unique(gate: str) -> None:
    """As held."""
    _hold(gate)


@job(name="awork")
async def awork(ms: int = 0) -> None:
    import asyncio

    with recorded():
        await asyncio.sleep(ms / 1000)


@job(name="once", delivery="at_most_once")
def once(ms: int = 0) -> None:
    with recorded():
        time.sleep(ms / 1000)


@job(name="single", max_concurrency=1)
def single(ms: int = 0) -> None:
    with recorded():
        time.sleep(ms / 1000)


@job(name="five", max_concurrency=5)
def five(ms: int = 0) -> None:
    with recorded():
        time.sleep(ms / 1000)


@job(name="keyed", max_concurrency=2, concurrency_key="key")
def keyed(key: str, ms: int = 0) -> None:
    with recorded():
        time.sleep(ms / 1000)


@job(name="again", max_concurrency=3, max_attempts=9, backoff=[0.02])
def again(ms: int = 0) -> None:
    """Its first attempt fails, its second does not."""
    with recorded():
        time.sleep(ms / 1000)
    me = current_job()
    if me is not None and me.attempt == 1:
        raise ValueError("not this time")


@job(name="unique_by", unique="success", unique_on=["key"], max_attempts=20, backoff=[0.05])
def unique_by(key: str, ms: int = 0, fail: bool = False) -> None:
    """One per key at a time; with `fail` its first attempt fails."""
    with recorded():
        time.sleep(ms / 1000)
    me = current_job()
    if fail and me is not None and me.attempt == 1:
        raise ValueError("not this time")


@job(name="unique", unique="running")
def unique(ms: int = 0) -> None:
    with recorded():
        time.sleep(ms / 1000)


@job(name="flaky", max_attempts=3, backoff=[0.2, 0.2])
def flaky(failures: int = 1) -> None:
    with recorded():
        me = current_job()
        if me is not None and me.attempt <= failures:
            raise ValueError("not this time")


@job(name="holds_gil")
def holds_gil(seconds: float) -> None:
    """C code that lets no other thread of the process run."""
    with recorded():
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            ctypes.PyDLL(None).usleep(200_000)


@job(name="endless", timeout=1, max_attempts=1)
def endless(how: str) -> None:
    with recorded():
        ENDLESS[how]()


@job(name="poison")
def poison(how: str) -> None:
    with recorded():
        POISON[how]()


@job(name="kills_worker")
def kills_worker() -> None:
    """All its processes, as the kernel does at the memory limit of a container."""
    with recorded():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)


@job(name="raises", max_attempts=1)
def raises(kind: str) -> None:
    with recorded():
        if kind == "surrogate":
            raise ValueError("bad \udcff\x00 \x1b[31m text")
        if kind == "huge":
            raise ValueError("x" * 50_000_000)

        class Unprintable(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        raise Unprintable


if settings.NEW_JOB:

    @job(name=settings.NEW_JOB)
    def new_job(gate: str = "") -> None:
        """Ends when the file is there, if one is named."""
        with recorded():
            while gate and not Path(gate).exists():
                time.sleep(0.01)
