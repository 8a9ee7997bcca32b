"""The embedded store beside a server with the same settings that was started by hand, reached by `unix://`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.counter import counter
from bench.measures import Numbers
from bench.running import send, wait_for, workers
from bench.subjects.ours import SUBJECT
from bench.table import median
from django_jobs.stores.embedded.program import OLDEST, find_program

#: Jobs that are enqueued one by one, each of which is flushed to the disk, and in bulk.  The drain has them all.
ONE_BY_ONE, IN_BULK = 2_000, 20_000


def rows(repeat: int, env: dict[str, str]) -> list[tuple[str, Numbers]]:
    """Measure both in turn.  Returns the medians of both, and the shares that the embedded store reaches."""
    runs: dict[str, list[Numbers]] = {"embedded": [], "by hand": []}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            runs["embedded"].append(_measure(env | {"BENCH_STORE": f"embedded:{folder}/jobs"}))
        with tempfile.TemporaryDirectory() as folder, _by_hand(Path(folder)) as url:
            runs["by hand"].append(_measure(env | {"BENCH_STORE": url}))
        print({name: each[-1] for name, each in runs.items()}, file=sys.stderr, flush=True)
    embedded, by_hand = (median(each) for each in runs.values())
    shares = {name: embedded[name] / by_hand[name] for name in embedded}
    return [("embedded", embedded), ("by hand", by_hand), ("share", shares)]


def _measure(env: dict[str, str]) -> Numbers:
    counter.reset()
    numbers = {"enqueue": send("ours", "enqueue", ONE_BY_ONE, env), "bulk": send("ours", "bulk", IN_BULK, env)}
    with workers(SUBJECT.workers(2), env):
        numbers["drain"] = wait_for(ONE_BY_ONE + IN_BULK + 400)
    told = subprocess.run([sys.executable, "-m", "bench.embedded"], env=env, check=True, capture_output=True, text=True)
    return numbers | json.loads(told.stdout)


@contextmanager
def _by_hand(folder: Path) -> Iterator[str]:
    """Start a server with the options of the embedded store (stores/embedded/server.py)."""
    options = "--port 0 --unixsocket socket --loglevel warning --aof-use-rdb-preamble no --appendonly yes"
    command = [find_program(OLDEST), "--save", "", "--logfile", "log", *options.split(), "--appendfsync", "always"]
    server = subprocess.Popen(command, cwd=folder)
    try:
        while not (folder / "socket").exists():
            time.sleep(0.01)
        yield f"unix://{folder}/socket"
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":  # in a process of its own, because a process has one store
    from bench import ours

    ours.setup()
    print(json.dumps(ours.latency(1, dict(os.environ))))
