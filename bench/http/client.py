"""The client: a process of its own with several connections.  Its processor time is not the server's."""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

#: The name of the remote job type that is enqueued.
NAME = "bench.remote"
#: Connections that send without a pause, and those that keep the rate.
CONNECTIONS, AT_RATE = 8, 16
#: Jobs of one claim and one report, and connections of workers.
BATCH, WORKERS = 100, 4


class Connection:
    """One kept-alive connection; requests are bytes, and answers are read no further than needed."""

    def __init__(self, port: int, authorization: str) -> None:
        self.head = f"Host: 127.0.0.1\r\nAuthorization: {authorization}\r\nContent-Type: application/json\r\n"
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""

    def ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and content of the answer.  Raises OSError."""
        head = f"{method} {path} HTTP/1.1\r\n{self.head}Content-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)
        while b"\r\n\r\n" not in self.left:
            self._read()
        lines, _, self.left = self.left.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b":", 1) for line in lines.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        while len(self.left) < length:
            self._read()
        content, self.left = self.left[:length], self.left[length:]
        return int(lines[9:12]), content

    def _read(self) -> None:
        some = self.socket.recv(65536)
        if not some:
            raise ConnectionError("The server has closed the connection.")
        self.left += some


def in_threads(number: int, run: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(number) as threads:
        list(threads.map(run, range(number)))  # raises the first error


def put_all(
    port: int, authorization: str, addresses: list[str], body: bytes, created: int, seconds: float
) -> tuple[float, int]:
    """Return PUTs per second, and their number."""
    began, done = time.perf_counter(), [0] * CONNECTIONS

    def run(n: int) -> None:
        connection = Connection(port, authorization)
        for address in addresses[n::CONNECTIONS]:
            status, content = connection.ask("PUT", address, body)
            assert status == created, (status, content)
            done[n] += 1
            if time.perf_counter() - began > seconds:
                break

    in_threads(CONNECTIONS, run)
    return sum(done) / (time.perf_counter() - began), sum(done)


def put_at_rate(
    port: int, authorization: str, addresses: list[str], body: bytes, created: int, rate: int
) -> dict[str, float]:
    """Each request has a moment at which it is due: one that waits for a connection is late, and counts as slow."""
    began, taken = time.perf_counter() + 0.2, list[float]()

    def run(n: int) -> None:
        connection = Connection(port, authorization)
        for number, address in list(enumerate(addresses))[n::AT_RATE]:
            due = began + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            status, content = connection.ask("PUT", address, body)
            assert status == created, (status, content)
            taken.append(time.perf_counter() - due)

    in_threads(AT_RATE, run)
    taken.sort()
    return {"p50 ms": statistics.median(taken) * 1000, "p99 ms": taken[int(len(taken) * 0.99)] * 1000}


def work(port: int, authorization: str, seconds: float) -> float:
    """Enqueue jobs of a remote type in bulk; return how many per second are claimed and reported."""
    connection = Connection(port, authorization)
    number = int(seconds * 1000) * 4
    for _ in range(0, number, 1000):
        jobs = [{"name": NAME, "id": uuid4().hex, "data": {"order": n}} for n in range(1000)]
        status, content = connection.ask("POST", "/jobs/v1/jobs", json.dumps({"jobs": jobs}).encode())
        assert status == 200, content
    began, done = time.perf_counter(), [0] * WORKERS

    def run(n: int) -> None:
        connection = Connection(port, authorization)
        while time.perf_counter() - began < seconds:
            asked = {"limit": BATCH, "lease": 60, "request_id": uuid4().hex}
            status, content = connection.ask("POST", "/jobs/v1/queues/pull/claim", json.dumps(asked).encode())
            if status == 204:
                return
            claims = json.loads(content)["jobs"]
            reports = [
                {"name": c["name"], "id": c["id"], "token": c["token"], "status": "succeeded", "result": {"order": 1}}
                for c in claims
            ]
            if not reports:
                return
            status, content = connection.ask("POST", "/jobs/v1/reports", json.dumps({"reports": reports}).encode())
            answers = json.loads(content)["reports"]
            assert {answer["status"] for answer in answers} == {200}, content[:500]
            done[n] += len(reports)

    in_threads(WORKERS, run)
    return sum(done) / (time.perf_counter() - began)
