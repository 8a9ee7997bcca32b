"""A TCP proxy that does to Redis connections what networks do: loses replies, cuts, delays, falls silent."""

from __future__ import annotations

import random
import select
import socket
from contextlib import suppress
from threading import Event, Lock, Thread, Timer

CHUNK = 1 << 16


class Proxy:
    """Forwards to 127.0.0.1:`target` until told otherwise.  All faults may be set at any time."""

    def __init__(self, target: int, *, seed: int = 0) -> None:
        self.target, self.rng = target, random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._lock = Lock()
        self._lines: list[_Line] = []
        #: (what the request must contain, replies still to be lost, before the request is forwarded?)
        self._losses: list[list[object]] = []
        self.lost = 0
        #: chance that a reply is lost, or a request.
        self.loses_replies = self.loses_requests = 0.0
        #: chance that a request is late: its connection breaks, and it arrives all the same, this many seconds later,
        #: from and to; or that it arrives as usual, and once more so late.
        self.late = self.doubled = 0.0
        self.late_by = (0.1, 5.0)
        #: how many are under way.
        self.under_way = 0
        #: seconds that every reply is late.
        self.delay = 0.0
        #: nothing moves any more, and nobody is told.
        self.silent = Event()
        #: the reply is cut off after so many bytes, once.
        self.cut_at: int | None = None
        self._closed = False
        Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """What goes into STORE."""
        return f"redis://127.0.0.1:{self.port}/0"

    def lose_replies(self, count: int, containing: bytes = b"") -> None:
        """Forward the next `count` requests that contain this, and swallow their replies."""
        with self._lock:
            self._losses.append([containing, count, False])

    def lose_requests(self, count: int, containing: bytes = b"") -> None:
        """Swallow the next `count` requests that contain this."""
        with self._lock:
            self._losses.append([containing, count, True])

    def cut_all(self) -> None:
        """Close every connection, as a failover or a firewall does."""
        with self._lock:
            for line in self._lines:
                line.close()
            self._lines.clear()

    def heal(self) -> None:
        """End all faults; connections that fell silent are cut."""
        with self._lock:
            self._losses.clear()
        self.loses_replies = self.loses_requests = self.delay = self.late = self.doubled = 0.0
        self.cut_at = None
        if self.silent.is_set():
            self.cut_all()
            self.silent.clear()

    def close(self) -> None:
        """The test is over."""
        self._closed = True
        # A thread that waits in `accept` keeps the socket open after a close, and takes one connection more.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                client.close()
                continue
            line = _Line(self, client, server)
            with self._lock:
                self._lines.append(line)
            Thread(target=line.run, daemon=True).start()

    def fate(self, request: bytes) -> str:
        """What becomes of this request: "" | "request" | "reply" (is lost) | "late" | "doubled"."""
        with self._lock:
            for loss in self._losses:
                if loss[1] and loss[0] in request:  # type: ignore[operator]
                    loss[1] -= 1  # type: ignore[operator]
                    self.lost += 1
                    return "request" if loss[2] else "reply"
            if self.rng.random() < self.loses_requests:
                self.lost += 1
                return "request"
            if self.rng.random() < self.loses_replies:
                self.lost += 1
                return "reply"
            if self.rng.random() < self.late:
                self.lost += 1
                return "late"
            if self.rng.random() < self.doubled:
                return "doubled"
        return ""

    def deliver_late(self, request: bytes) -> None:
        """On a connection of its own, in a while; nobody hears the reply."""
        with self._lock:
            self.under_way += 1
            wait = self.rng.uniform(*self.late_by)
        timer = Timer(wait, self._deliver, (request,))
        timer.daemon = True
        timer.start()

    def _deliver(self, request: bytes) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.target), timeout=5) as server:
            server.sendall(request)
            server.recv(CHUNK)
        with self._lock:
            self.under_way -= 1


class _Line:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self._swallow = False

    def run(self) -> None:
        with suppress(OSError, ValueError):
            while self._step():
                pass
        self.close()

    def _step(self) -> bool:
        ready = select.select([self.client, self.server], [], [], 0.2)[0]
        if self.proxy.silent.is_set():
            self.proxy.silent.wait()
            return Event().wait(0.05) or self.client.fileno() >= 0
        for source in ready:
            data = source.recv(CHUNK)
            if not data:
                return False
            if not (self._from_client(data) if source is self.client else self._from_server(data)):
                return False
        return True

    def _from_client(self, data: bytes) -> bool:
        fate = self.proxy.fate(data)
        if fate in ("late", "doubled"):
            self.proxy.deliver_late(data)
        if fate in ("request", "late"):
            return False
        self._swallow = fate == "reply"
        self.server.sendall(data)
        return True

    def _from_server(self, data: bytes) -> bool:
        if self._swallow:
            return False
        if self.proxy.delay:
            Event().wait(self.proxy.delay)
        cut, self.proxy.cut_at = self.proxy.cut_at, None
        self.client.sendall(data[:cut])
        return cut is None

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.close()
