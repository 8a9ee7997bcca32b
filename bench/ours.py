"""The measures for django_jobs only: latency, idle cost, memory, growth, mixed load, groups."""

from __future__ import annotations

import time
from collections.abc import Callable

import django
import redis

from bench.counter import counter
from bench.measures import Numbers, spread
from bench.monitor import sent_commands
from bench.running import wait_for, workers
from bench.subjects.ours import workers as our_workers
from django_jobs import chain, group
from django_jobs.workflows.handle import WorkflowHandle


def setup() -> None:
    django.setup()


def latency(processes: int, env: dict[str, str], samples: int = 300) -> Numbers:
    """Measure the time from enqueue to the start of the function, with that many idle worker processes."""
    return _started(processes, env, [0.0] * samples)


def lateness(processes: int, env: dict[str, str], samples: int = 50) -> Numbers:
    """Measure the time from when a scheduled job is due to the start of the function, while nothing else happens."""
    return _started(processes, env, [0.2 + 0.0037 * sample for sample in range(samples)])


def _started(processes: int, env: dict[str, str], delays: list[float]) -> Numbers:
    """Enqueue a job for each of these delays (seconds; 0: at once), one after the other, and measure how long after its
    time it starts."""
    from bench.jobs import stamp

    with workers(our_workers(processes), env):
        stamp.enqueue(time.time()).wait(30)
        time.sleep(1)  # the first process runs jobs while the others still start
        waits = []
        for delay in delays:
            due = time.time() + delay
            waits.append((stamp.enqueue_in(delay, due) if delay else stamp.enqueue(due)).wait(30))
    return spread(waits)


def idle(processes: int, env: dict[str, str], seconds: float = 10) -> Numbers:
    """Return idle Redis commands per second and process; includes the parent and maintenance process."""
    from bench.jobs import stamp

    client = redis.Redis.from_url(env["BENCH_STORE"])
    with workers(our_workers(processes), env):
        stamp.enqueue(time.time()).wait(30)
        time.sleep(3)
        where = client.connection_pool.connection_kwargs
        sent = sent_commands((where["host"], where["port"]), seconds)
    return {"commands/s/process": sent / seconds / (processes + 3), "commands/s": sent / seconds}


def growth(sizes: tuple[int, ...], env: dict[str, str], work: int = 20_000) -> Numbers:
    """Measure with this many other jobs waiting: the rate of a bare claim + complete loop, the rate of one worker
    process, and the Redis bytes per waiting job."""
    from bench.jobs import noop
    from django_jobs.core.values import Completed
    from django_jobs.stores import get_store

    client, store, numbers = redis.Redis.from_url(env["BENCH_STORE"]), get_store(), {}
    for size in sizes:
        client.flushall()
        noop.enqueue_many((i,) for i in range(size))
        # Of the keys, not of the server: its buffers and what it frees late would be more than 1,000 small jobs.
        numbers[f"bytes/job at {size}"] = sum(client.memory_usage(key, 0) or 0 for key in client.scan_iter()) / size
        noop.enqueue_many((i,) for i in range(3 * work))
        _settled(client)
        started, done = time.perf_counter(), 0
        while done < work:
            claims = store.claim("q0", "bench", 100, lease=30_000).claims
            store.complete("q0", [Completed(claim, b"", 0, "bench.jobs.noop") for claim in claims])
            done += len(claims)
        numbers[f"jobs/s at {size}"] = work / (time.perf_counter() - started)
        counter.reset()
        with workers(our_workers(1), env):
            numbers[f"worker jobs/s at {size}"] = wait_for(2 * work)
    for rate in ("jobs/s", "worker jobs/s"):
        numbers[f"{rate}: cost at {sizes[-1]}"] = numbers[f"{rate} at {sizes[0]}"] / numbers[f"{rate} at {sizes[-1]}"]
    client.flushall()
    return numbers


def _settled(client: redis.Redis) -> None:
    """Wait until Redis has rewritten its append-only file: its child process competes for cores and memory pages."""
    while any(client.info("persistence")[f"aof_rewrite_{state}"] for state in ("in_progress", "scheduled")):
        time.sleep(0.1)


def mixed(env: dict[str, str], seconds: float = 5) -> Numbers:
    """Measure how long no-ops wait among 1 ms and 50 ms jobs, with threads to spare."""
    from bench.jobs import pause, stamp

    with workers(our_workers(2), env):
        stamp.enqueue(time.time()).wait(30)
        handles, until = [], time.time() + seconds
        while time.time() < until:
            pause.enqueue(0.05)
            pause.enqueue(0.001)
            handles += [stamp.enqueue(time.time()) for _ in range(3)]
            time.sleep(0.02)
        waits = [handle.wait(30) for handle in handles]
    return spread(waits) | {"max ms": max(waits) * 1000}


def workflows(processes: int, env: dict[str, str], number: int = 2_000) -> Numbers:
    """Measure jobs per second from the start of the first to the record of the last end: plain jobs, chains of three,
    and groups of a thousand with a callback; and the script calls that Redis gets for each job.  Then a chain of
    20 that nothing else runs beside: script calls and ms for each step."""
    from bench.jobs import noop

    makes: dict[str, Callable[[], tuple[int, list[WorkflowHandle]]]] = {
        "plain": lambda: (len(noop.enqueue_many((i,) for i in range(10 * number))), []),
        "chains": lambda: (3 * number, [chain(*[noop.s(i)] * 3).enqueue() for i in range(number)]),
        "groups": lambda: (
            number // 100 * 1001,
            [group(*[noop.s(i)] * 1000).then(noop.s(i)).enqueue() for i in range(number // 100)],
        ),
    }
    client, numbers = redis.Redis.from_url(env["BENCH_STORE"]), Numbers()
    for what, make in makes.items():
        client.flushall()
        counter.reset()
        jobs, handles = make()
        calls = _script_calls(client)
        with workers(our_workers(processes), env):
            began = time.perf_counter()
            ran = jobs / wait_for(jobs)
            while not all(handle.state == "succeeded" for handle in handles[::-1]):
                if time.perf_counter() > began + 120:
                    raise SystemExit(f"{what}: the workflows do not end")
                ran += 0.01
                time.sleep(0.01)
            numbers[f"{what}/s"] = jobs / ran
            numbers[f"{what}, calls/job"] = (_script_calls(client) - calls) / jobs
    for what in ("chains", "groups"):
        numbers[f"{what} of plain"] = numbers[f"{what}/s"] / numbers["plain/s"]
    client.flushall()
    with workers(our_workers(processes), env):
        noop.enqueue(0).wait(30)
        time.sleep(1)  # the first process runs jobs while the others still start
        calls, began = _script_calls(client), time.perf_counter()
        for _ in range(10):
            chain(*[noop.s(0)] * 20).enqueue().wait(60)
        numbers["a lone chain, ms/step"] = (time.perf_counter() - began) * 1000 / 200
        numbers["a lone chain, calls/step"] = (_script_calls(client) - calls) / 200
    client.flushall()
    return numbers


def _script_calls(client: redis.Redis) -> int:
    """Return how many scripts the server has run."""
    called = client.info("commandstats")
    return sum(called.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


def groups(env: dict[str, str]) -> Numbers:
    """Return what a group of 10,000 costs, and how many times its jobs alone."""
    from bench.groups import group_against_jobs
    from bench.jobs import noop
    from django_jobs.stores import get_store

    client = redis.Redis.from_url(env["BENCH_STORE"])
    client.flushall()
    counter.reset()
    numbers = group_against_jobs(noop, (0,), "q0", get_store(), client)
    client.flushall()
    return numbers
