"""Servers that the shop calls: a mail server that keeps the mails, and partners that sometimes fail."""

from __future__ import annotations

import json
import socket
from collections import Counter
from contextlib import suppress
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import SystemRandom
from threading import Lock, Thread
from typing import Any

from aiosmtpd.controller import Controller


def free_port() -> int:
    """Return a port of this machine that nobody listens on.

    It is none of those that the system gives to connections (from 32768): one of them could take it first."""
    while True:
        port = SystemRandom().randrange(10_000, 32_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class MailSink:
    """An SMTP server that delivers to a list."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.port = free_port()
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.messages.append(message_from_bytes(envelope.content))
        return "250 OK"

    def __enter__(self) -> MailSink:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()


class Partner:
    """The bank and the warehouse.  The warehouse answers every third call with 500."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.charges: Counter[int] = Counter()
        self.deliveries: Counter[int] = Counter()
        self.calls = self.refused = 0
        partner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with partner.lock:
                    status, answer = partner.answer(self.path, data)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: the demo prints a table instead."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, data: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the partner's answer to one call, and record the call."""
        if path == "/bank/charges":
            self.charges[data["order"]] += 1
            return 200, {"accepted": data["card"] != "tok-declined", "receipt": f"R-{data['order']:06}"}
        self.calls += 1
        if self.calls % 3 == 0:
            self.refused += 1
            return 500, {"error": "The warehouse is at lunch."}
        self.deliveries[data["order"]] += 1
        return 200, {"parcel": f"P-{data['order']:06}"}

    def __enter__(self) -> Partner:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
