"""A small HTTP server that plays the push worker: answers what it is told, remembers what it got."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Receiver:
    """What arrived, and how to answer: a list of statuses (the last one stays; 0 = none, the connection is cut) or a
    function of the request."""

    def __init__(self) -> None:
        self.statuses: list[int] = [202]
        self.headers: dict[str, str] = {}
        self.got: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.seen: list[dict[str, str]] = []
        self.then: Callable[[dict[str, Any]], None] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/jobs"


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve on a free port of this machine while the block runs."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.bodies.append(raw)
            body = json.loads(raw)
            receiver.got.append(body)
            receiver.seen.append({**self.headers, "path": self.path})
            if receiver.then is not None:
                receiver.then(body)
            status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
            if not status:
                return
            self.send_response(status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Tests read `got`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_port
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
