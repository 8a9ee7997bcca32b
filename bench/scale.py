"""What jobs, workers and queues cost Redis: the figures of docs/explanation/scaling.md.

    python -m bench.scale memory                          # bytes per job in each state
    python -m bench.scale connections --nodes 1 3         # of one real worker
    python -m bench.scale workers --workers 1 1000        # heartbeats and upkeep of simulated workers
    python -m bench.scale workers --queues 1 10000        # the same by the number of queues
    python -m bench.scale drain --nodes 1 3               # no-ops, and Redis CPU per job

Starts its own servers and needs nothing else on the machine.  A simulated worker makes the calls of the parent process
and of the maintenance process of an idle worker, one after the other, in one process; it has no child processes, whose
waiting `bench.idle` measures.  "CPU" is the processor time that the servers used (INFO cpu), of all nodes together.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from tempfile import NamedTemporaryFile
from typing import Any

import redis

from bench.idle import CALM, servers_of
from bench.measures import busy_seconds
from bench.monitor import Sent, sent_here
from bench.running import environment, wait_for, workers

#: Queues over which jobs are spread: with these names each of three nodes has some.
SPREAD = 6
#: The lease in ms, and seconds between two heartbeats.
LEASE, BEAT = 30_000, 5.0
#: Calls of each kind of upkeep whose cost is averaged; fewer, but at least three, if each looks at many queues.
CALLS, LOOKED_AT = 20, 20_000
TRACEBACK = "".join(f'  File "/srv/shop/jobs.py", line {n}, in send\n    smtp.send(order)\n' for n in range(8))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1], choices=(1, 3))
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--queues", type=int, nargs="+", default=[5])
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--store", help=argparse.SUPPRESS)  # measures on servers that run
    given = parser.parse_args()
    if given.store:
        import django

        django.setup()
        MEASURES[given.measure](given)
        return
    from tests.support.backends.cluster import running_cluster
    from tests.support.backends.servers import running_redis

    for nodes in given.nodes:
        for queues in given.queues:
            with running_redis() if nodes == 1 else running_cluster() as store, NamedTemporaryFile() as counter:
                env = environment(store, counter.name) | {"BENCH_QUEUES": str(max(queues, SPREAD))}
                command = [sys.executable, "-m", "bench.scale", *sys.argv[1:], "--queues", str(queues)]
                subprocess.run([*command, "--store", store], env=env, check=True)


@contextmanager
def clients_of(store: str) -> Iterator[list[redis.Redis]]:
    """A client of each server."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                redis.Redis(unix_socket_path=where)
                if isinstance(where, str)
                else redis.Redis(host=where[0], port=where[1])
            )
            for where in servers_of(store)
        ]


# -- memory --------------------------------------------------------------------


def memory(given: argparse.Namespace) -> None:
    """Print the bytes per job in each state, with small arguments."""
    from django_jobs.core.values import Attempt, Claim, Completed
    from django_jobs.stores.redis import Store
    from django_jobs.stores.values.options import StoreOptions

    number = given.jobs
    store = Store.from_setting(given.store, options=StoreOptions(history=2 * number, dead=2 * number))

    def finish(claims: list[Claim]) -> None:
        store.complete("q0", [Completed(claim, b"", 1, "bench.jobs.noop") for claim in claims])

    def fail(claims: list[Claim], traceback: str, verb: str) -> None:
        for claim in claims:
            attempt = Attempt(1, "failed", store.now(), 9, claim.worker, "ValueError", "order is gone", traceback)
            if verb == "bury":
                store.bury(claim, attempt)
            else:
                store.retry(claim, attempt, 3_600_000)

    states: dict[str, Callable[[], None]] = {
        "waiting": lambda: fill(number),
        "scheduled": lambda: fill(number, later=True),
        "waiting, unique": lambda: fill(number, unique=True),
        "running": lambda: (fill(number), take(store, number, lambda claims: None))[0],
        "succeeded, in the history": lambda: (fill(number), take(store, number, finish))[0],
        "waits for a retry": lambda: (fill(number), take(store, number, lambda claims: fail(claims, "", "retry")))[0],
        "dead, no traceback": lambda: (fill(number), take(store, number, lambda claims: fail(claims, "", "bury")))[0],
        f"dead, traceback of {len(TRACEBACK)} bytes": lambda: (
            fill(number), take(store, number, lambda claims: fail(claims, TRACEBACK, "bury"))
        )[0],
    }  # fmt: skip
    with clients_of(given.store) as (client,):
        for state, make in states.items():
            client.execute_command("FLUSHALL", "SYNC")  # its memory is measured
            store.close()
            store.now()
            before = used_memory(client)
            make()
            print(f"{state:32} {(used_memory(client) - before) / number:7.0f} bytes", flush=True)
    store.close()


def fill(number: int, *, later: bool = False, unique: bool = False) -> None:
    """Enqueue so many no-ops in one queue, as a project does."""
    from bench.jobs import noop, single

    job = single if unique else noop
    made = job.using(run_at=datetime.now(UTC) + timedelta(hours=1)) if later else job
    for start in range(0, number, 1000):
        made.enqueue_many((i,) for i in range(start, min(start + 1000, number)))


def take(store: Any, number: int, act: Callable[[Any], None]) -> None:
    """Claim so many jobs, and do this with each batch."""
    taken = 0
    while taken < number:
        claims = store.claim("q0", "web-1:4711/1", 200, lease=3_600_000).claims
        act(claims)
        taken += len(claims)


def used_memory(client: redis.Redis) -> int:
    """Return the bytes of the data, without buffers of clients and of the append-only file."""
    return int(client.info("memory")["used_memory_dataset"])


# -- connections ---------------------------------------------------------------


def connections(given: argparse.Namespace) -> None:
    """Print how many connections a real worker with 1, 2 and 4 processes opens at each server, idle and at work."""
    from bench.counter import counter
    from bench.jobs import pause

    names = [f"q{n}" for n in range(SPREAD)]

    def enqueue(seconds: float, number: int) -> None:
        for name in names:
            pause.using(queue=name).enqueue_many((seconds,) for _ in range(number))

    with clients_of(given.store) as clients:
        enqueue(0.0, 1)  # this process opens its own connections before the first count
        for processes in (1, 2, 4):
            counter.reset()
            before = [connected(client) for client in clients]
            with workers([run_workers(processes)], dict(os.environ)):
                while counter.total() < len(names):
                    time.sleep(0.1)
                time.sleep(CALM)
                idle = [connected(client) - less for client, less in zip(clients, before, strict=True)]
                enqueue(0.2, 100)
                time.sleep(2.0)
                busy = [connected(client) - less for client, less in zip(clients, before, strict=True)]
            print(f"{len(clients)} server(s), --processes {processes}: idle {idle}, at work {busy}", flush=True)
            for client in clients:
                client.flushall()
            enqueue(0.0, 1)


def connected(client: redis.Redis) -> int:
    return int(client.info("clients")["connected_clients"])


def run_workers(processes: int) -> list[str]:
    return [sys.executable, "-m", "django", "runworkers", "--processes", str(processes)]


# -- simulated workers ---------------------------------------------------------


def simulated(given: argparse.Namespace) -> None:
    """Print what the heartbeats and the upkeep of idle workers cost."""
    from bench.jobs import noop
    from django_jobs import browse
    from django_jobs.operations import bulk, searching
    from django_jobs.stores import get_store

    store = get_store()
    (number,) = given.queues
    repeats = max(3, min(CALLS, LOOKED_AT // number))
    names = [f"q{n}" for n in range(number)]
    for name in names:
        noop.using(queue=name).enqueue(1)
    one_each = list({store.server_of(name): name for name in names}.values())
    about = description(names)
    children = about["children"]

    def heartbeat(worker: str) -> None:
        for queue in one_each:
            store.renew([queue], [f"{worker}/{n}" for n in range(len(children))], LEASE)
        store.publish_worker(worker, about, 2 * LEASE)

    def snapshot() -> None:
        store.update_document("snapshot", {"at": None})  # or it would be called fresh
        browse.publish_snapshot()

    def of_workflows() -> None:
        store.unread(names)
        store.workflows_due(20, 30_000)

    with clients_of(given.store) as clients, sent_here() as sent:
        for number_of_workers in given.workers:
            fleet = [f"host-{n}:4711" for n in range(number_of_workers)]
            for worker in fleet:
                heartbeat(worker)
            print(f"{len(clients)} server(s), {number} queues, {number_of_workers} workers:", flush=True)
            rounds = max(1, 10 * CALLS // number_of_workers)
            calls: dict[str, tuple[Callable[[], object], float]] = {
                "search for expired leases": (lambda: store.lapsed(names), 5.0),
                "search for upkeep": (lambda: store.upkeep_due(names), 10.0),
                "workflows": (of_workflows, 3.0),
                "bulk operations": (lambda: bulk.tick(0.0), 5.0),
                "searches": (lambda: searching.tick(), 3.0),
                "eviction policy": (store.describe, 45.0),
            }
            total = cost("heartbeats of all", [lambda w=w: heartbeat(w) for w in fleet] * rounds,
                         number_of_workers / BEAT, clients, sent)  # fmt: skip
            for name, (call, every) in calls.items():
                total += cost(name, [call] * repeats, number_of_workers / every, clients, sent)
            total += cost("snapshot for the pages (one for all)", [snapshot] * 3, 1 / 5.0, clients, sent)
            print(f"  {'together':38} {'':37} {total * 1000:9.2f} ms of CPU each second", flush=True)
            cost("list of workers (a page, metrics)", [store.workers] * 3, 0.0, clients, sent)


def description(names: list[str]) -> dict[str, Any]:
    """Return what a worker with two processes says of itself with each heartbeat (worker/parent/status.py)."""
    child = {"name": "host-1:4711/1", "pid": 4712, "lane": "shared", "memory": 52_000_000, "claimed": 0, "jobs": []}
    return {
        "host": "host-1",
        "pid": 4711,
        "state": "running",
        "started_at": 1_800_000_000_000,
        "queues": names,
        "closed": 0,
        "closed_queues": [],
        "version": "0.2.0",
        "knows": "0123456789abcdef",
        "settings": "shop.settings",
        "jobs": [f"shop.jobs.job_{n}" for n in range(20)],
        "job_count": 20,
        "processes": 2,
        "threads": 8,
        "children": [child] * 3,
        "problems": [],
    }


def cost(
    what: str, calls: Sequence[Callable[[], object]], each_second: float, clients: list[redis.Redis], sent: Sent
) -> float:
    """Make the calls, print what one costs on average, and return the CPU seconds that they take each second if they
    are made `each_second` times."""
    calls[0]()  # loads its scripts
    used, size, took = 0, 0, 0.0
    busy = sum(map(busy_seconds, clients))
    for call in calls:
        sent.clear()
        began = time.perf_counter()
        call()
        took += time.perf_counter() - began
        used, size = used + len(sent.commands), size + sent.size
    busy = sum(map(busy_seconds, clients)) - busy
    number = len(calls)
    each = busy / number
    print(
        f"  {what:38} {used / number:7.1f} commands, {size / number:9.0f} bytes sent, "
        f"{each * 1000:8.3f} ms of CPU, {took / number * 1000:8.2f} ms each"
        + (f"; {each * each_second * 1000:8.2f} ms of CPU each second" if each_second else ""),
        flush=True,
    )
    return each * each_second


# -- drain ---------------------------------------------------------------------


def drain(given: argparse.Namespace) -> None:
    """Print jobs per second of one worker with two processes, and Redis CPU per job: enqueued, run, and both by bare
    calls of the store, without a worker."""
    from bench.counter import counter
    from bench.jobs import noop
    from django_jobs.core.values import Completed
    from django_jobs.stores import get_store

    names, number = [f"q{n}" for n in range(SPREAD)], given.jobs
    with clients_of(given.store) as clients:

        def enqueue() -> None:
            for name in names:
                noop.using(queue=name).enqueue_many((i,) for i in range(number // len(names)))

        def used(call: Callable[[], object]) -> tuple[float, list[float], float]:
            before, began = [busy_seconds(client) for client in clients], time.perf_counter()
            call()
            took = time.perf_counter() - began
            each = [busy_seconds(client) - less for client, less in zip(clients, before, strict=True)]
            return took, each, sum(each) / number * 1e6

        def say(what: str, rate: float, each: list[float], micro: float) -> None:
            shares = ", ".join(f"{seconds:.2f}" for seconds in each)
            print(
                f"{len(clients)} server(s), {what:24} {rate:8.0f} jobs/s, {micro:6.1f} µs of CPU per job; "
                f"seconds of each server: {shares}",
                flush=True,
            )

        took, each, micro = used(enqueue)
        say("enqueue_many:", number / took, each, micro)

        def bare() -> None:
            store = get_store()
            for name in names:
                while claims := store.claim(name, "bench", 100, lease=LEASE).claims:
                    store.complete(name, [Completed(claim, b"", 0, "bench.jobs.noop") for claim in claims])

        took, each, micro = used(bare)
        say("bare claim + complete:", number / took, each, micro)
        enqueue()
        rates: list[float] = []

        def work() -> None:
            with workers([run_workers(2)], dict(os.environ)):
                rates.append(wait_for(number))

        counter.reset()
        _, each, micro = used(work)
        say("worker, 2 processes:", rates[0], each, micro)


MEASURES: dict[str, Callable[[argparse.Namespace], None]] = {
    "memory": memory,
    "connections": connections,
    "workers": simulated,
    "drain": drain,
}


if __name__ == "__main__":
    main()
