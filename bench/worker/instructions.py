"""Instructions that the server takes for one job, counted by callgrind: a time differs by machine, this number hardly.

It needs valgrind (Debian: apt install valgrind).  Each number is the mean of one count over many jobs."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.measures import Numbers
from bench.server import redis_server
from django_jobs.core.values import PLAIN, Claim, Completed, Controls, Job, NewJob
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions

QUEUE = "q0"
LEASE = 30_000
#: How jobs may be enqueued: the controls of the job with that number.
KINDS: dict[str, Callable[[int], Controls]] = {
    "plain": lambda n: PLAIN,
    "timeout": lambda n: Controls(alone=True),
    "priority": lambda n: Controls(priority=5),
    "key limit": lambda n: Controls(limit_key=f"k{n % 10}", limit=100_000),
    "unique": lambda n: Controls(unique=f"{n:064}"),
}
_numbers = itertools.count()


def is_wanted() -> bool:
    """Return whether the machine has what counts."""
    return shutil.which("callgrind_control") is not None


class Counting:
    """A server that runs in callgrind, and a store on it."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.store = Store.from_setting(url, options=StoreOptions())

    def per_job(self, jobs: int, call: Callable[[], object]) -> float:
        """Return the instructions of this call, for each of so many jobs."""
        self._control("--instr=on")
        call()
        self._control("--dump")
        self._control("--instr=off")
        newest = max(self._folder.glob("callgrind.out.*"), key=lambda path: path.stat().st_mtime)
        (total,) = re.findall(r"^(?:totals|summary): (\d+)$", newest.read_text(), re.M)[-1:]
        newest.unlink()
        return int(total) / jobs

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what], check=True, capture_output=True)

    def enqueue(self, jobs: int, kind: str = "plain", at_once: int = 1) -> None:
        """Enqueue new jobs of this kind."""
        made = [new_job(KINDS[kind]) for _ in range(jobs)]
        for first in range(0, jobs, at_once):
            self.store.enqueue(QUEUE, made[first : first + at_once])

    def claim(self, at_once: int) -> list[Claim]:
        """Claim jobs of the shared lane."""
        return self.store.claim(QUEUE, "bench", at_once, lease=LEASE).claims

    def complete(self, claims: list[Claim]) -> None:
        """Record that these jobs have succeeded."""
        self.store.complete(QUEUE, [Completed(claim) for claim in claims])

    def drain(self, at_once: int) -> None:
        """Run what waits in the shared lane."""
        while claims := self.claim(at_once):
            self.complete(claims)


def new_job(controls_of: Callable[[int], Controls]) -> NewJob:
    """Return a job with an id of its own."""
    n = next(_numbers)
    controls = controls_of(n)
    record = encode(Job(f"{n:022}", QUEUE, "bench.noop", b"[[1],{}]", 0, controls=controls))
    return NewJob(f"{n:022}", record, controls)


@contextmanager
def counting() -> Iterator[Counting]:
    """Start a server in callgrind."""
    with tempfile.TemporaryDirectory(prefix="jobs-bench-") as folder:
        under = [
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder}/callgrind.out.%p",
        ]
        with redis_server(under=under) as url:
            yield Counting(Path(folder), url)


def per_job(lone: int = 100, many: int = 2000) -> list[tuple[str, Numbers]]:
    """Return one row for each way of a job."""
    rows: list[tuple[str, Numbers]] = []

    def count(name: str, jobs: int, call: Callable[[], object]) -> None:
        rows.append((name, {"instructions": server.per_job(jobs, call)}))

    with counting() as server:

        def lone_job() -> None:
            server.enqueue(1)
            server.complete(server.claim(1))

        for _ in range(30):
            lone_job()
        server.claim(1)
        count("a lone job: enqueue, claim, complete", lone, lambda: [lone_job() for _ in range(lone)])
        count("a claim of nothing", lone, lambda: [server.claim(1) for _ in range(lone)])
        count("enqueue, one by one", lone, lambda: server.enqueue(lone))
        claims: list[Claim] = []
        count("claim, one by one", lone, lambda: [claims.extend(server.claim(1)) for _ in range(lone)])
        count("complete, one by one", lone, lambda: [server.complete([claim]) for claim in claims])
        for at_once, jobs in ((10, many // 4), (100, many)):
            server.enqueue(jobs, at_once=1000)
            count(f"drain by {at_once}", jobs, partial(server.drain, at_once))
        for kind in KINDS:
            count(f"enqueue by 1,000, {kind}", many, partial(server.enqueue, many, kind, 1000))
    return rows
