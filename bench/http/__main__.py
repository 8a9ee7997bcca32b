"""The HTTP API under web servers: `python -m bench.http --rickover SERVER SOURCE`.
SERVER is its built server, SOURCE its source tree.

* PUT with 8 connections that each send one request after the other: requests per second with client, web server and
  store on this machine, and the processor time of web server and store per request.  Its inverse is the rate per core.
* PUT at a fixed rate: the time between the moment a request was due and the end of its answer.
* Claims of 100 jobs and reports of 100 results, one call after the other, with 4 connections: jobs per second.

Ours has Django's usual middleware, a token in SQLite and Redis with its append-only file.  Rickover has PostgreSQL
without fsync, which is in its favour.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context

import psutil

from bench.http import client
from bench.http.servers import Target, our_path, subjects
from bench.table import median, show

Numbers = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.http", description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5, help="rounds; the table shows medians (default 5)")
    parser.add_argument("--seconds", type=float, default=8, help="length of each measure (default 8)")
    parser.add_argument("--rate", type=int, default=200, help="requests per second at a fixed rate (default 200)")
    parser.add_argument("--rickover", nargs=2, metavar=("SERVER", "SOURCE"), help="measure rickover beside ours")
    args = parser.parse_args()
    runs: dict[str, list[Numbers]] = {}
    with subjects(args.rickover) as targets, ProcessPoolExecutor(1, get_context("spawn")) as process:
        for number in range(args.repeat):
            for name, target in targets.items():
                numbers = measure(process, target, args, f"{number}")
                runs.setdefault(name, []).append(numbers)
                print(name, numbers, file=sys.stderr, flush=True)
    show("HTTP", [(name, median(of_one)) for name, of_one in runs.items()])


def measure(process: ProcessPoolExecutor, target: Target, args: argparse.Namespace, run: str) -> Numbers:
    """The client is a process of its own: its processor time is not the server's."""
    plain = target.port, target.authorization
    # Each worker of a web server imports the API at its first request.
    addresses = [target.path(f"{run}w", n) for n in range(200)]
    process.submit(client.put_all, *plain, addresses, target.body, target.created, args.seconds).result()
    addresses = [target.path(run, n) for n in range(100_000)]
    web, store = busy(target.web), busy(target.store)
    rate, number = process.submit(client.put_all, *plain, addresses, target.body, target.created, args.seconds).result()
    web, store = busy(target.web) - web, busy(target.store) - store
    numbers = {
        "PUT/s": rate,
        "web ms/PUT": web / number * 1000,
        "store ms/PUT": store / number * 1000,
        "PUT/s/core": number / (web + store),
    }
    addresses = [target.path(f"{run}r", n) for n in range(int(args.rate * args.seconds))]
    numbers |= process.submit(client.put_at_rate, *plain, addresses, target.body, target.created, args.rate).result()
    if target.path is our_path:
        numbers["claim + report/s"] = process.submit(client.work, *plain, args.seconds).result()
    return numbers


def busy(pid: int) -> float:
    """Return the processor seconds of a process and its children."""
    total = 0.0
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


if __name__ == "__main__":
    main()
