"""The console over a million dead and a million scheduled jobs: `python -m bench.console --jobs 1000000`.

For every page: the time in the web process (median and 95th percentile), the processor time of this process and of
Redis, and the commands that it sends.
Then all dead jobs are retried while one `runworkers` runs.  This measures the duration and the slowest Redis call, and
checks that each job ran once.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from bench.measures import busy_seconds
from bench.monitor import sent_here
from bench.server import redis_server
from bench.table import show

#: Number of queues in addition to the one that holds half of the jobs; the others hold the other half.
OTHERS = 499
#: Job types and errors of the dead jobs, and tags: each job has one of a customer and one of a plan.
TYPES, ERRORS = 20, 7
CUSTOMERS, PLANS = 137, 3
BATCH = 5_000
BASE = "/admin/django_jobs/dashboard/"
#: Redis calls that take longer (microseconds) are counted as slow.
SLOW = 20_000
ERROR = "Connection to 10.0.3.17:25 timed out after 30 s in step"
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
TRACE = "Traceback (most recent call last):\n" + '  File "/srv/shop/jobs.py", line 41, in send_receipt\n' * 6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="dead, and as many scheduled (default 1000000)")
    parser.add_argument("--repeat", type=int, default=40, help="requests of each page (default 40)")
    parser.add_argument(
        "--steady", action="store_true", help="real-time priority for Redis (root only): other programs do not slow it"
    )
    parser.add_argument("--only-pages", action="store_true", help="do not retry the dead jobs at the end")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="jobs-bench-")
    marks = os.path.join(folder, "marks")
    with open(marks, "wb") as file:
        file.truncate(args.jobs)
    with redis_server() as url:
        told = {"BENCH_STORE": url, "BENCH_MARKS": marks, "DJANGO_SETTINGS_MODULE": "bench.console.settings"}
        os.environ.update(told)
        run(args, marks)


def run(args: argparse.Namespace, marks: str) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    started = time.perf_counter()
    fill(args.jobs)
    print(f"{args.jobs:,} dead and {args.jobs:,} scheduled jobs stored in {time.perf_counter() - started:.0f} s")
    index(args.jobs)
    pages(args)
    if not args.only_pages:
        retry_all(args, marks)


def fill(number: int) -> None:
    """Write the keys directly, as bury and enqueue leave them: the store's methods would take ten times as long."""
    from django_jobs.core.values import Attempt, Job, Options
    from django_jobs.serialization.record import encode
    from django_jobs.stores import get_store

    store: Any = get_store()
    now = store.now()
    lines = [
        json.dumps(
            Attempt(1, "failed", now - 60_000, 30_021, "w:1/1", "TimeoutError", f"{ERROR} {word}", TRACE)._asdict()
        )
        for word in WORDS[:ERRORS]
    ]

    def put(queue: str, first: int, last: int) -> None:
        names = store.keys.of(queue)
        for start in range(first, last, BATCH):
            jobs, dead, scheduled = [], [], []
            for i in range(start, min(start + BATCH, last)):
                for prefix, place, at in (("d", dead, now - 60_000 + i % 1000), ("s", scheduled, now + 86_400_000 + i)):
                    name = "bench.mark" if prefix == "s" or i % TYPES == 0 else f"bench.type{i % TYPES}"
                    id = f"{prefix}{i:07}" + "0" * 24  # as long as the ids that enqueue makes
                    tags = f"customer-{i % CUSTOMERS:03} plan-{i % PLANS}" if prefix == "d" else ""
                    job = Job(id, queue, name, b"[[%d],{}]" % i, now - 90_000, Options(tags=tags))
                    jobs += [job.id, encode(job)]
                    place += [at, job.id]
            pipe = store.transport.client.pipeline(transaction=False)
            pipe.execute_command("HSET", names["jobs"], *jobs)
            pipe.execute_command("ZADD", names["dead"], *dead)
            pipe.execute_command("ZADD", names["scheduled"], *scheduled)
            logs = (part for n, id in enumerate(dead[1::2]) for part in (id, lines[n % ERRORS]))
            pipe.execute_command("HSET", names["attempts"], *logs)
            pipe.execute_command("HSET", names["tries"], *(part for id in dead[1::2] for part in (id, "1:0:0")))
            pipe.execute_command("SADD", store.keys.fleet("queues"), queue)
            pipe.execute()

    few = number // 2
    put("q0", 0, number - few)
    for i in range(OTHERS):
        put(f"tenant-{i:03}", number - few + i * few // OTHERS, number - few + (i + 1) * few // OTHERS)


def index(number: int) -> None:
    """Make the index of the dead jobs, as workers do after an upgrade, and show what it takes."""
    from django_jobs.stores import get_store

    store: Any = get_store()
    client = store.transport.client
    before, started = client.info("memory")["used_memory"], time.perf_counter()
    for queue in store.queues():
        while any(store.reconcile(queue).values()) or store.is_walking(queue):
            continue
    taken = client.info("memory")["used_memory"] - before
    index = ("failures", "grouped", "error_groups", "tag_groups")
    keys = [store.keys.of(queue)[key] for queue in store.queues() for key in index]
    exact = sum(client.memory_usage(key, samples=0) or 0 for key in keys)
    print(
        f"index of {number:,} dead jobs made in {time.perf_counter() - started:.0f} s: "
        f"{taken / number:.0f} bytes per job of used_memory, {exact / number:.0f} by MEMORY USAGE"
    )


def pages(args: argparse.Namespace) -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    from django_jobs import browse
    from django_jobs.core.values import State
    from django_jobs.stores import get_store

    store: Any = get_store()
    client, redis = Client(), store.transport.client
    client.force_login(User.objects.create_superuser("ada"))
    browse.publish_snapshot()
    last = math.ceil(args.jobs / 2 / 50)
    (error, *_) = browse.error_groups(State.DEAD, browse.Match())

    def mark(state: State = State.DEAD, **chosen: str) -> str:
        after = ""
        for _ in range(19):
            match = browse.Match(**chosen)
            after = (browse.selected(state, match, after) if chosen else browse.page(state, None, 1, after)).following
        return after

    addresses = {
        "overview": "",
        "overview, day": "?period=day",
        "queues": "queues/",
        "queues, last page": "queues/?p=26",
        "queue": "queues/q0/",
        "queue, day": "queues/q0/?period=day",
        "dead, all queues": "jobs/dead/",
        "dead, first page": "jobs/dead/?queue=q0",
        "dead, middle page": f"jobs/dead/?queue=q0&p={last // 2}",
        "dead, last page": f"jobs/dead/?queue=q0&p={last}",
        "scheduled, all queues": "jobs/scheduled/",
        "scheduled, first page": "jobs/scheduled/?queue=q0",
        "scheduled, last page": f"jobs/scheduled/?queue=q0&p={last}",
        "dead by error": "jobs/dead/?group=1",
        "dead by error, one queue": "jobs/dead/?group=1&queue=q0",
        "dead, one job type": "jobs/dead/?name=bench.type7",
        "dead, one job type of one queue": "jobs/dead/?name=bench.type7&queue=tenant-100",
        "dead, one error": f"jobs/dead/?error={error.key}",
        "dead, one error, page 20": f"jobs/dead/?error={error.key}&after={mark(error=error.key)}",
        "dead by tag": "jobs/dead/?group=tag",
        "dead by tag, one queue": "jobs/dead/?group=tag&queue=q0",
        "dead, one tag": "jobs/dead/?tag=customer-007",
        "dead, one tag, page 20": f"jobs/dead/?tag=customer-007&after={mark(tag='customer-007')}",
        "dead, a tag of a third": "jobs/dead/?tag=plan-1",
        "dead, all queues, page 20": f"jobs/dead/?after={mark()}",
        "scheduled, all queues, page 20": f"jobs/scheduled/?after={mark(State.SCHEDULED)}",
        "a job type": "types/bench.type7/",
        "a job": f"job/q0/{'d0000007' + '0' * 24}/",
        "running": "jobs/running/",
        "workers": "workers/",
        "schedules": "schedules/",
        "bulk operations": "bulk/",
        "history": "history/",
    }
    rows = []
    for name, address in addresses.items():
        times, busy, theirs, sent = [], [], [], []
        for i in range(args.repeat):
            if i % 10 == 0:
                browse.publish_snapshot()
            before = busy_seconds(redis)
            with sent_here() as calls:
                started, started_cpu = time.perf_counter(), time.process_time()
                response = client.get(BASE + address)
                times.append((time.perf_counter() - started) * 1000)
                busy.append((time.process_time() - started_cpu) * 1000)
            assert response.status_code == 200, (address, response.status_code)
            theirs.append((busy_seconds(redis) - before) * 1000)
            sent.append(len(calls.commands))
        p95, cpu, server = (statistics.quantiles(each, n=20)[-1] for each in (times, busy, theirs))
        row = {"p50 ms": statistics.median(times), "p95 ms": p95, "p95 ms of CPU": cpu, "p95 ms of Redis": server}
        row |= {"commands": max(sent)}
        rows.append((name, row))
        print(rows[-1], file=sys.stderr)
    show(f"Pages over {args.jobs:,} dead and {args.jobs:,} scheduled jobs in 500 queues", rows)


def retry_all(args: argparse.Namespace, marks: str) -> None:
    """Retry all dead jobs: started in the console, then left to the worker."""
    from django.contrib.auth.models import User
    from django.test import Client

    from bench.running import workers
    from django_jobs.operations import bulk
    from django_jobs.stores import get_store

    store: Any = get_store()
    redis = store.transport.client
    redis.config_set("slowlog-log-slower-than", SLOW)
    redis.config_set("slowlog-max-len", 1000)
    redis.slowlog_reset()
    if args.steady:
        calmly = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(redis.info("server")["process_id"], calmly, os.sched_param(1))
    client = Client()
    client.force_login(User.objects.get())
    before = store.stats(["q0"])[0].counts["dead"]
    with workers([[sys.executable, "-m", "django", "runworkers", "--processes", "1"]], dict(os.environ)):
        started = time.perf_counter()
        client.post(f"{BASE}jobs/dead/", {"verb": "retry", "scope": "all", "confirmed": "1"})
        moved = 0.0
        deadline = time.monotonic() + 1500
        while True:
            (operation,) = bulk.operations_list()
            if operation.finished and not moved:
                moved = time.perf_counter() - started
            counts = [s.counts for s in store.stats(store.queues())]
            waiting = sum(c["queued"] + c["running"] for c in counts)
            if (operation.finished and not waiting) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        ended = time.perf_counter() - started
    with open(marks, "r+b") as file:
        runs = bytes(mmap.mmap(file.fileno(), 0))
    slow = redis.slowlog_get(1000)
    print(f"\nRetry of all {args.jobs:,} dead jobs, {before:,} of them in one queue, while one `runworkers` runs:")
    print(f"moved {operation.moved:,} in {moved:.0f} s; all run after {ended:.0f} s")
    once, never = runs.count(1), runs.count(0)
    print(f"run once {once:,}, never {never:,}, more than once {len(runs) - once - never:,}")
    print(f"Redis calls over {SLOW // 1000} ms: {len(slow)}")
    for entry in slow[:20]:
        print(f"  {entry['duration'] / 1000:.1f} ms  {entry['command'][:90]!r}")


if __name__ == "__main__":
    main()
