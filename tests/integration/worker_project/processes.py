"""Jobs that start processes, and what becomes of those."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from django_jobs import job

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def slow(get_next: Any) -> Any:
    """A middleware that takes its time before the job."""

    def layer(running: Any) -> Any:
        if running.name == "held_by_middleware":
            time.sleep(60)
        return get_next(running)

    return layer


@job(name="pool")
def pool(numbers: int) -> int:
    with multiprocessing.get_context("fork").Pool(2) as made:
        return sum(made.map(abs, range(numbers)))


@job(name="terminates")
def terminates() -> int | None:
    """The status of a process that was told to end at once."""
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    while process.exitcode is None:
        # A thread that starts a process looks after those of all others, and is about to note how this one ended.
        time.sleep(0.01)
    return process.exitcode


@job(name="forks")
def forks(how: str, note: str) -> str:
    """A copy of the worker's process, that goes on where the job does."""
    pid = os.fork()
    if pid:
        Path(note).write_text(str(pid))
        return "the job"
    if how == "raises":
        raise ValueError("in the copy")
    if how == "exits":
        sys.exit(7)
    if how == "sleeps":
        time.sleep(600)
    return "the copy"


@job(name="aforks")
async def aforks(how: str, note: str) -> str:
    import asyncio

    pid = os.fork()
    if pid:
        Path(note).write_text(str(pid))
        return "the job"
    if how == "sleeps":
        await asyncio.sleep(600)
    return "the copy"


@job(name="spawns", timeout=1, max_attempts=1)
def spawns(note: str) -> None:
    """A command that runs beside the job, and one more that it has started itself."""
    script = f"import subprocess, time; p = subprocess.Popen({SLEEPER!r}); print(p.pid, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    grandchild = process.stdout.readline().strip()
    Path(note).write_text(f"{process.pid} {grandchild}")
    time.sleep(600)


@job(name="held_by_middleware", timeout=1, max_attempts=1)
def held_by_middleware() -> None:
    return


@job(name="softly", soft_timeout=0.5, takes_context=True)
def softly(ctx: Any) -> str | None:
    """Ends when it is told that its time is over."""
    while not ctx.should_stop:
        time.sleep(0.01)
    return ctx.stop_reason  # type: ignore[no-any-return]


@job(name="asoftly", soft_timeout=0.5, max_attempts=1)
async def asoftly() -> None:
    import asyncio

    await asyncio.sleep(600)
