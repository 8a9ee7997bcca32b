"""Starts the workers of a system, waits for its jobs, and stops it."""

from __future__ import annotations

import compileall
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

import django_jobs
from bench.counter import counter

#: Longest wait, in seconds.
PATIENCE = 240


def environment(url: str, counter_path: str) -> dict[str, str]:
    """Return the environment variables for the processes of a subject.

    All modules are compiled before the measuring, as pip does with what it installs: ours now, others when the jobs are
    enqueued.  A process that compiles them itself is larger by 15 MB and starts later."""
    root = str(Path(__file__).resolve().parent.parent)
    for folder in (Path(django_jobs.__file__).parent, Path(__file__).parent):
        compileall.compile_dir(folder, quiet=2)
    told = {"BENCH_STORE": url, "BENCH_COUNTER": counter_path, "PYTHONPATH": root}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | told | {"DJANGO_SETTINGS_MODULE": "bench.django_settings"}


@contextmanager
def workers(commands: list[list[str]], env: dict[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run these commands, each in a process group of its own, and end them all."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, env=env, start_new_session=True, **quiet) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(number: int) -> float:
    """Wait until `number` jobs have run; return jobs per second between the first and the last."""
    deadline = time.monotonic() + PATIENCE
    first = None
    while True:
        done, now = counter.total(), time.monotonic()
        if done and first is None:
            first, before = now, done
        if done >= number:
            return (done - before) / max(now - (first or now), 1e-9)
        if now > deadline:
            return 0.0 if first is None else (done - before) / (now - first)
        time.sleep(0.002)


def send(module: str, verb: str, number: int, env: dict[str, str]) -> float:
    """Enqueue `number` no-ops in a separate process; return jobs per second."""
    out = subprocess.run(
        [sys.executable, "-m", f"bench.subjects.{module}", verb, str(number)], env=env, capture_output=True, text=True
    )
    if out.returncode:
        raise SystemExit(f"{module} {verb} failed:\n{out.stderr[-2000:]}")
    return number / float(out.stdout.strip().splitlines()[-1])


def heaviest_child(parent: int) -> float:
    """Return the megabytes (RSS) of the largest child: the most that one more process costs."""
    children = psutil.Process(parent).children(recursive=True)
    return max((child.memory_info().rss for child in children), default=0) / 1e6
