"""What idle workers cost, and how soon they begin a job.

    python -m bench.idle --queues 3 100 1000              # one server
    python -m bench.idle --nodes 3 --queues 5 100         # a Redis Cluster
    python -m bench.idle --workers 5 --queues 5           # several workers: an idle server takes some time, too
    python -m bench.idle --workers 6 --queues 100 --waiting 1000   # each queue is paused, with so many jobs

Starts its own servers.  Prints for each number of queues: the commands that the workers send per second, divided by
the number of all processes (those called by scripts are not counted); the processor time of the servers before that;
and, unless the queues are paused, the time from enqueueing to the start of jobs that come one by one, each in a random
queue.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from statistics import median, quantiles
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

import redis

from bench.measures import busy_seconds
from bench.monitor import sent_by_name
from bench.running import environment, workers

#: Seconds that a worker has to become idle, over which the servers' time is taken, and for which commands are counted.
CALM, QUIET, COUNTED = 15.0, 20.0, 20.0
#: Seconds until each large queue was checked once.
SETTLED = 60.0
#: Jobs before the first that is timed: the worker has imported everything by then.
WARM = 5
#: One parent, two children that run many jobs at a time, one that runs jobs alone, and the maintenance process.
PROCESSES = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description=__doc__)
    parser.add_argument("--queues", type=int, nargs="+", default=[3, 100, 1000])
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 3))
    parser.add_argument("--workers", type=int, default=1, help="workers that idle beside each other (default 1)")
    parser.add_argument("--jobs", type=int, default=60, help="jobs whose start is timed (default 60)")
    parser.add_argument("--waiting", type=int, default=0, help="jobs that wait in each queue, all of them paused")
    parser.add_argument("--details", action="store_true", help="show which commands were sent")
    parser.add_argument("--store", help=argparse.SUPPRESS)  # measures the worker of a server that runs
    given = parser.parse_args()
    if given.store:
        measure(given)
        return
    from tests.support.backends.cluster import running_cluster
    from tests.support.backends.servers import running_redis

    for number in given.queues:
        with running_redis() if given.nodes == 1 else running_cluster() as store, NamedTemporaryFile() as counter:
            env = environment(store, counter.name) | {"BENCH_QUEUES": str(number)}
            subprocess.run([sys.executable, "-m", "bench.idle", "--store", store, *sys.argv[1:]], env=env, check=True)


def measure(given: argparse.Namespace) -> None:
    """Measure one worker, in a process whose settings name the store, and print a line."""
    import django

    django.setup()
    servers = servers_of(given.store)
    if given.waiting:
        fill(given.waiting)
    with ExitStack() as stack:
        command = [sys.executable, "-m", "django", "runworkers", "--processes", "2"]
        stack.enter_context(workers([command] * given.workers, dict(os.environ)))
        clients = [
            stack.enter_context(
                redis.Redis(unix_socket_path=where)
                if isinstance(where, str)
                else redis.Redis(host=where[0], port=where[1])
            )
            for where in servers
        ]
        time.sleep(SETTLED if given.waiting else CALM)
        busy = sum(map(busy_seconds, clients))
        time.sleep(QUIET)
        busy = sum(map(busy_seconds, clients)) - busy  # before MONITOR, which takes time itself
        sent = sent_by_name(servers, COUNTED)
        times = [] if given.waiting else pick_up(given.jobs)
    print(
        f"{len(servers)} server(s), {os.environ['BENCH_QUEUES']:>5} queues: "
        f"{sent.total() / COUNTED / PROCESSES / given.workers:6.2f} commands/s/process, "
        f"server {busy / QUIET * 1000:6.1f} ms/s"
        + (
            f", pick-up p50 {median(times) * 1000:6.1f} ms, p99 {quantiles(times, n=100)[98] * 1000:6.1f} ms"
            if times
            else f", {given.waiting} jobs wait in each"
        ),
        flush=True,
    )
    if given.details:
        print({name: round(n / COUNTED, 2) for name, n in sent.most_common(12)}, flush=True)


def fill(number: int) -> None:
    """Let so many jobs wait in each queue."""
    from bench.jobs import noop
    from django_jobs.stores import get_store

    for n in range(int(os.environ["BENCH_QUEUES"])):
        noop.using(queue=f"q{n}").enqueue_many((i,) for i in range(number))
        get_store().pause(f"q{n}")


def servers_of(store: str) -> list[tuple[str, int] | str]:
    """Return where the store's servers are."""
    if store.startswith("unix:"):
        return [urlsplit(store).path]
    hosts = [host.rsplit(":", 1) for host in urlsplit(store).netloc.split(",")]
    return [(host, int(port)) for host, port in hosts]


def pick_up(jobs: int) -> list[float]:
    """Return the seconds from enqueueing to the start of jobs that come one by one."""
    from bench.jobs import stamp

    number, times = int(os.environ["BENCH_QUEUES"]), []
    for _ in range(WARM + jobs):
        time.sleep(random.uniform(0.05, 0.3))
        times.append(stamp.using(queue=f"q{random.randrange(number)}").enqueue(time.time()).wait(60))
    return times[WARM:]


if __name__ == "__main__":
    main()
