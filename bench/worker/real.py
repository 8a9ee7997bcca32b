"""Jobs that work: a query and an update, a JSON webhook, a picture.  What the queue costs beside them."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import random
import socketserver
import sqlite3
import statistics
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import redis

from bench.counter import counter
from bench.measures import Numbers
from bench.running import wait_for, workers
from bench.subjects.ours import workers as our_workers

#: An image of so many pixels, in bytes of grey.
SIDE = 512
_local = threading.local()


def update(number: int) -> None:
    """Read a row and write it: in PostgreSQL if BENCH_POSTGRES is a connection string, otherwise in SQLite."""
    if not hasattr(_local, "rows"):
        _local.rows = _connect()
    connection, mark = _local.rows
    cursor = connection.cursor()
    cursor.execute(f"SELECT paid FROM orders WHERE id = {mark}", (number % 1000,))
    (paid,) = cursor.fetchone()
    cursor.execute(f"UPDATE orders SET paid = {mark} WHERE id = {mark}", (paid + 1, number % 1000))
    connection.commit()


def webhook(number: int) -> None:
    """Post a small JSON document, and read the answer."""
    client = http.client.HTTPConnection("127.0.0.1", int(os.environ["BENCH_WEBHOOK"]))
    client.request("POST", "/", json.dumps({"order": number, "state": "paid"}), {"Content-Type": "application/json"})
    assert json.loads(client.getresponse().read())["ok"]
    client.close()


def picture(number: int) -> None:
    """Halve a grey picture that does not repeat itself, and compress it: a few milliseconds of processor time."""
    pixels = random.Random(number).randbytes(SIDE * SIDE)
    rows = [pixels[i : i + SIDE] for i in range(0, SIDE * SIDE, 2 * SIDE)]
    zlib.compress(b"".join(row[::2] for row in rows), 9)


WORK: dict[str, Callable[[int], None]] = {"query and update": update, "webhook": webhook, "picture": picture}


def rates(env: dict[str, str], number: int = 2_000, processes: int = 2) -> dict[str, Numbers]:
    """Return for each kind of work: how many a second one thread does in a loop, and how many a worker does as jobs."""
    from bench.jobs import real

    with _site() as more:
        os.environ |= more
        vars(_local).clear()  # the orders of the round before are gone
        found = {}
        for kind, work in WORK.items():
            started = time.perf_counter()
            for i in range(number // 4):
                work(i)
            alone = number // 4 / (time.perf_counter() - started)
            redis.Redis.from_url(env["BENCH_STORE"]).flushall()
            counter.reset()
            for part in range(5):
                real.using(queue=f"q{part}").enqueue_many((kind, i) for i in range(part, number, 5))
            with workers(our_workers(processes), env | more):
                found[kind] = {"a loop": alone, "as jobs": wait_for(number)}
        return found


def rows(runs: Sequence[dict[str, Numbers]]) -> list[tuple[str, Numbers]]:
    """Return the medians, a row for each kind of work."""
    return [
        (kind, {what: statistics.median(run[kind][what] for run in runs) for what in runs[0][kind]}) for kind in runs[0]
    ]


@contextmanager
def _site() -> Iterator[dict[str, str]]:
    """A table of orders, and a server that takes webhooks.  Yields their places as environment variables."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ok": true}')

        def log_message(self, *_: object) -> None: ...

    with (
        tempfile.TemporaryDirectory() as folder,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server,
    ):
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        places = {"BENCH_ORDERS": f"{folder}/orders.sqlite3", "BENCH_WEBHOOK": str(server.server_address[1])}
        os.environ |= places
        connection, mark = _connect()
        cursor = connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS orders")
        cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER)")
        cursor.executemany(f"INSERT INTO orders VALUES ({mark}, 0)", [(i,) for i in range(1000)])
        connection.commit()
        connection.close()
        yield places
        server.shutdown()


def _connect() -> tuple[sqlite3.Connection, str]:
    """Return a connection to the orders, and the placeholder of its driver."""
    if where := os.environ.get("BENCH_POSTGRES"):
        import psycopg

        return psycopg.connect(where), "%s"  # type: ignore[return-value]  # both have what is used here
    connection = sqlite3.connect(os.environ["BENCH_ORDERS"], timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection, "?"
