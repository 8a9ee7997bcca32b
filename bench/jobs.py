"""The jobs of the benchmark."""

from __future__ import annotations

import time

from bench.counter import counter
from django_jobs import job


@job(queue="q0")
def noop(number: int) -> None:
    """Do as little as a job can do."""
    counter.bump()


@job(queue="q0", max_concurrency=100_000)
def limited(number: int) -> None:
    """A no-op of a job type with a limit that is never reached."""
    counter.bump()


@job(queue="q0", max_concurrency=100_000, concurrency_key="account")
def limited_by_key(number: int, account: int = 0) -> None:
    """A no-op with a limit per value that is never reached."""
    counter.bump()


@job(queue="q0", unique="running")
def single(number: int) -> None:
    """A no-op that is unique by its argument."""
    counter.bump()


@job(queue="q0", timeout=60)
def timed(number: int) -> None:
    """A no-op with a time limit that is never reached."""
    counter.bump()


@job(queue="q0", delivery="at_most_once")
def once(number: int) -> None:
    """A no-op that never starts twice."""
    counter.bump()


@job(queue="q0")
async def coroutine(number: int) -> None:
    """A no-op that runs in the event loop."""
    counter.bump()


@job(queue="q0", max_attempts=1)
def dies(number: int) -> None:
    """Fail for good: a dead job with its traceback."""
    counter.bump()
    raise RuntimeError("the bench has it fail")


@job(queue="q0", backoff=[3600])
def fails(number: int) -> None:
    """Fail, to be tried again when the measuring is over."""
    counter.bump()
    raise RuntimeError("the bench has it fail")


@job(queue="q0")
def real(kind: str, number: int) -> None:
    """Work, as in bench/worker/real.py."""
    from bench.worker.real import WORK

    WORK[kind](number)
    counter.bump()


@job(queue="q0", keep_result=600)
def stamp(sent: float) -> float:
    """Return the seconds from sending to the start.  One clock: both are on this machine."""
    return time.time() - sent


@job(queue="q0")
def pause(seconds: float) -> None:
    """A job that waits for something."""
    time.sleep(seconds)
    counter.bump()
