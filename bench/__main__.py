"""`python -m bench`: runs all measures, and prints medians and ratios.  --quick for a short run; --only to select."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from bench.table import median

MODULES = ["ours", "gocraft_", "saq_", "huey_", "dramatiq_", "celery_", "rq_"]
#: Slow systems get fewer jobs: their rates are steady long before.
JOBS = {
    "ours": 100_000,
    "gocraft_": 100_000,
    "rq_": 500,
    "celery_": 4_000,
    "dramatiq_": 10_000,
    "huey_": 10_000,
    "saq_": 5_000,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one repetition, fewer jobs, no million")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each measure (default 5)")
    parser.add_argument(
        "--only",
        default="",
        help="of ours, gocraft, saq, huey, dramatiq, celery, rq, details, embedded, workflows, enqueueing, controls, "
        "real, startup, instructions",
    )
    parser.add_argument("--charts", type=Path, help="also draw the tables of rates, into this folder")
    args = parser.parse_args()
    if args.quick:
        args.repeat = 1
    os.environ["BENCH_COUNTER"] = os.path.join(tempfile.mkdtemp(prefix="jobs-bench-"), "counter")

    from bench.server import redis_server

    with redis_server() as url:
        os.environ.update(BENCH_STORE=url, DJANGO_SETTINGS_MODULE="bench.django_settings")
        run(args, url)


def run(args: argparse.Namespace, url: str) -> None:
    from bench import measures
    from bench.running import environment
    from bench.server import server_of
    from bench.subjects.gocraft_ import binary, is_wanted
    from bench.table import show

    env = environment(url, os.environ["BENCH_COUNTER"])
    wanted = {name for name in args.only.split(",") if name}
    yardstick = median([measures.bare(url) for _ in range(args.repeat)])
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {server_of(url)}, append-only file\n")
    show("redis-py itself", [("bare", yardstick)])
    subjects = [module for module in MODULES if not wanted or module.strip("_") in wanted]
    if "gocraft_" in subjects:
        if is_wanted():
            env["BENCH_GOCRAFT"] = binary()
        else:
            subjects.remove("gocraft_")
    drained = drains(subjects, args, env)
    show("no-op jobs over 5 queues, jobs per second", drained)
    draw(args, "No-op jobs per second, drained", drained, "drain")
    draw(args, "Jobs enqueued per second, one by one", [row for row in drained if "2 processes" in row[0]], "enqueue")
    if not wanted or "details" in wanted:
        details(args, env)
    if not wanted or "embedded" in wanted:
        show_embedded(args, env)
    if not wanted or "workflows" in wanted:
        show_workflows(args, env)
    if not wanted or "enqueueing" in wanted:
        show_enqueueing(args, env)
    if not wanted or "controls" in wanted:
        show_controls(args, env)
    if not wanted or "real" in wanted:
        show_real(args, env)
    if not wanted or "startup" in wanted:
        show_startup(args, env)
    if not wanted or "instructions" in wanted:
        show_instructions(args)


def draw(args: argparse.Namespace, title: str, rows: list[tuple[str, dict[str, float]]], key: str) -> None:
    """Draw the numbers `key` of a table, if charts are wanted."""
    from bench.charts import save

    if args.charts and rows:
        print(save(args.charts, title, rows, key), file=sys.stderr)


def drains(modules: list[str], args: argparse.Namespace, env: dict[str, str]) -> list[tuple[str, dict[str, float]]]:
    """Return one row per system and number of processes.  Each round measures all of them, so that a slow minute
    affects all.  "times slower" is a ratio of medians: a median of ratios can hide half of the rounds."""
    from bench import measures

    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.repeat):
        for module in modules:
            subject = import_module(f"bench.subjects.{module}").SUBJECT
            for processes in (1, 2):
                number = JOBS[module] // (5 if args.quick else 1)
                numbers = measures.drain(module, subject, number, processes, env)
                name = f"{subject.name}, {processes} process{'es' if processes > 1 else ''}"
                runs.setdefault(name, []).append(numbers)
                print(name, numbers, file=sys.stderr, flush=True)
    rows = {name: median(of_one) for name, of_one in runs.items()}
    ours = rows.get("django_jobs, 2 processes")
    for numbers in rows.values():
        if ours is not None and numbers["drain"]:
            numbers["times slower"] = ours["drain"] / numbers["drain"]
    return list(rows.items())


def details(args: argparse.Namespace, env: dict[str, str]) -> None:
    from bench import ours
    from bench.table import show

    ours.setup()
    repeat = args.repeat
    sizes = (1_000, 100_000) if args.quick else (1_000, 100_000, 1_000_000)
    show("pick-up latency", [(f"{n} idle", median([ours.latency(n, env) for _ in range(repeat)])) for n in (1, 8)])
    show("from due to start", [(f"{n} idle", median([ours.lateness(n, env) for _ in range(repeat)])) for n in (1, 8)])
    show("idle cost", [(f"{n} processes", ours.idle(n, env)) for n in (1, 4)])
    show("growth", [("claim + complete, batches of 100", median([ours.growth(sizes, env) for _ in range(repeat)]))])
    show("no-ops among 1 ms and 50 ms jobs", [("2 processes", median([ours.mixed(env) for _ in range(repeat)]))])
    show("10,000 jobs alone and as a group, processor time", [("Redis", ours.groups(env))])


def show_embedded(args: argparse.Namespace, env: dict[str, str]) -> None:
    from bench import embedded
    from bench.table import show

    show("embedded store, beside such a server started by hand, two processes", embedded.rows(args.repeat, env))


def show_workflows(args: argparse.Namespace, env: dict[str, str]) -> None:
    from bench import ours
    from bench.table import show

    ours.setup()
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.repeat):
        for processes in (1, 2, 4):
            name = f"{processes} process{'es' if processes > 1 else ''}"
            runs.setdefault(name, []).append(ours.workflows(processes, env))
    show("chains of three, and groups of a thousand with a callback", [(n, median(each)) for n, each in runs.items()])


def show_enqueueing(args: argparse.Namespace, env: dict[str, str]) -> None:
    from bench import enqueueing, ours
    from bench.table import show

    ours.setup()
    rows = enqueueing.rows([enqueueing.rates(env, 800 if args.quick else 4_000) for _ in range(args.repeat)])
    show("ways to enqueue, one process", rows)


def show_controls(args: argparse.Namespace, env: dict[str, str]) -> None:
    from bench import ours
    from bench.table import show
    from bench.worker import controls

    ours.setup()
    runs = [controls.limits(env) for _ in range(args.repeat)]
    rows = controls.rows(runs)
    show("kinds of jobs: limits and unique keys are set and never reached", rows)
    draw(args, "Kinds of jobs, per second, two processes", rows, "jobs/s")


def show_real(args: argparse.Namespace, env: dict[str, str]) -> None:
    from bench import ours
    from bench.table import show
    from bench.worker import real

    ours.setup()
    rows = real.rows([real.rates(env) for _ in range(args.repeat)])
    show("jobs that work, per second", rows)
    draw(args, "Jobs that work, per second, two processes", rows, "as jobs")


def show_startup(args: argparse.Namespace, env: dict[str, str]) -> None:
    from bench import ours
    from bench.table import show
    from bench.worker import startup

    ours.setup()
    show("a worker of two processes", [("", median([startup.ready(2, env) for _ in range(args.repeat)]))])
    show("what the app adds to django.setup()", [("", startup.web(env, max(args.repeat, 5)))])


def show_instructions(args: argparse.Namespace) -> None:
    from bench.table import show
    from bench.worker import instructions

    if instructions.is_wanted():
        show("instructions of the server for each job", instructions.per_job())


if __name__ == "__main__":
    main()
