"""What a worker and a web process cost before the first job: time until the first job runs, memory, import."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.counter import counter
from bench.measures import Numbers
from bench.running import wait_for, workers
from bench.subjects.ours import workers as our_workers

#: What a web process does once; prints seconds and bytes (RSS) of `django.setup()`.
_WEB = """
import gc, os, time
import django
from django.conf import settings
import psutil
apps = ["django.contrib.auth", "django.contrib.contenttypes", *{more!r}]
settings.configure(SECRET_KEY="bench", INSTALLED_APPS=apps, DJANGO_JOBS={{"STORE": {url!r}}})
if not {collects!r}:
    gc.disable()
memory, started = psutil.Process().memory_info().rss, time.perf_counter()
django.setup()
print(time.perf_counter() - started, psutil.Process().memory_info().rss - memory)
"""


def ready(processes: int, env: dict[str, str]) -> Numbers:
    """Measure the seconds from the start of `runworkers` until the first waiting job runs, and the proportional memory
    (PSS) of the whole worker, idle, in MB."""
    from bench.jobs import noop

    counter.reset()
    noop.enqueue(0)
    started = time.monotonic()
    with workers(our_workers(processes), env) as running:
        wait_for(1)
        seconds = time.monotonic() - started
        noop.enqueue_many((i,) for i in range(2_000))
        wait_for(2_001)
        parent = psutil.Process(running[0].pid)
        return {"first job runs after s": seconds, "PSS MB": sum(map(_pss, [parent, *parent.children(recursive=True)]))}


def web(env: dict[str, str], repeat: int) -> Numbers:
    """Return what the app adds to `django.setup()` of a web process: milliseconds and MB, medians.

    Python's garbage collector looks at all objects of the process after so and so many new ones.  In this small process
    it does so once, if the app is there; in a larger one it does so anyway.  So the time is also given without it."""
    seconds, memory = _added(env, repeat, collects=True)
    without, _ = _added(env, repeat, collects=False)
    return {"ms": seconds * 1000, "ms without the garbage collector": without * 1000, "MB": memory / 1e6}


def _added(env: dict[str, str], repeat: int, *, collects: bool) -> tuple[float, float]:
    """Return the seconds and bytes that the app adds."""
    runs = [[_set_up(more, env, collects) for more in ([], ["django_jobs"])] for _ in range(repeat)]
    seconds, memory = ([statistics.median(run[with_app][i] for run in runs) for with_app in (0, 1)] for i in (0, 1))
    return seconds[1] - seconds[0], memory[1] - memory[0]


def _set_up(more: list[str], env: dict[str, str], collects: bool) -> tuple[float, float]:
    code = _WEB.format(more=more, url=env["BENCH_STORE"], collects=collects)
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    seconds, memory = map(float, out.stdout.split())
    return seconds, memory


def _pss(process: psutil.Process) -> float:
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process.pid}/smaps_rollup").read_text(), re.M)
    except OSError:
        return 0.0
    return int(found[1]) / 1e3 if found else 0.0
