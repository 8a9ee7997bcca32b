"""One HTTP POST to an address that came from a form, with the necessary precautions (see remote/targets.py)."""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Collection, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse
from time import monotonic, time
from typing import Any, NamedTuple

from django_jobs.exceptions import JobsError
from django_jobs.remote.targets import Target, parse_target, resolve

#: Seconds for everything after name resolution: a server cannot extend it by sending one byte now and then.
TIME_LIMIT = 10.0


class NotAnswered(JobsError):
    """At least a part of the request was sent, and no answer came: the other side may have taken it."""


class Answer(NamedTuple):
    """What the other side answered."""

    status: int
    #: seconds that it asks to wait; None = it does not say.
    retry_after: float | None = None


def post(url: str, body: bytes, extra_headers: Mapping[str, str], trusted_hosts: Collection[str]) -> Answer:
    """Send `body` (JSON).  Never reads the answer's body and never follows redirects.

    Raises NotAnswered if the other side may have received it; ForbiddenAddress or OSError if it cannot have.
    """
    target = parse_target(url, trusted_hosts)
    connection = PinnedConnection(target, resolve(target))
    headers = {"Content-Type": "application/json", "Connection": "close", "User-Agent": "django_jobs"}
    try:
        connection.connect()
        try:
            connection.request("POST", target.path, body, {**headers, **extra_headers})
            response = connection.getresponse()
        except (OSError, HTTPException) as error:
            raise NotAnswered(f"{type(error).__name__}: {error}") from error
        return Answer(response.status, seconds_of(response.getheader("Retry-After", "")))
    finally:
        connection.close()


def seconds_of(retry_after: str) -> float | None:
    """Return the seconds in a Retry-After header, which has a number or a date; None if it has neither, or a date that
    is over."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time()
    except (ValueError, TypeError, OverflowError):  # a number in it may be too large for the date or its offset
        return None
    return seconds if seconds >= 0 else None


@cache
def tls_context() -> ssl.SSLContext:
    """Return one context for all posts: reading the certificates of this machine takes 20 ms of CPU."""
    return ssl.create_default_context()


class FinalResponse(HTTPResponse):
    """The answer itself.  What a server says before it is passed over (102 Processing, 103 Early Hints): http.client
    does that only with 100 Continue."""

    def begin(self) -> None:
        """Read up to the end of the headers."""
        super().begin()
        while 100 <= self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]  # as if nothing had been read
            super().begin()


class PinnedConnection(HTTPConnection):
    """Connects only to the address that was checked, whatever the name resolves to by now.

    Host header, SNI and certificate check use the name.
    """

    default_port = 0
    response_class = FinalResponse

    def __init__(self, target: Target, addresses: list[str]) -> None:
        default = 443 if target.tls else 80
        # http.client adds the port to the Host header unless it is the default port.
        self.default_port = default
        super().__init__(f"[{target.host}]" if ":" in target.host else target.host, target.port, timeout=TIME_LIMIT)
        self.target, self.addresses = target, addresses
        self.deadline = monotonic() + TIME_LIMIT

    def connect(self) -> None:
        """Connect to the first address that answers."""
        problem: OSError = OSError(f"{self.target.host} has no address")
        for address in self.addresses:
            try:
                plain = socket.create_connection((address, self.target.port), timeout=left(self.deadline))
                break
            except OSError as error:
                problem = error
        else:
            raise problem
        try:
            if self.target.tls:
                plain = tls_context().wrap_socket(plain, server_hostname=self.target.host)
        except BaseException:
            plain.close()
            raise
        self.sock = DeadlineSocket(plain, self.deadline)


class DeadlineSocket:
    """A socket with one deadline for all its operations together, instead of a time-out for each."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self.plain, self.deadline = plain, deadline

    def sendall(self, data: Any) -> None:
        self.plain.settimeout(left(self.deadline))
        self.plain.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(DeadlineReader(self.plain, self.deadline))

    def close(self) -> None:
        self.plain.close()


class DeadlineReader(io.RawIOBase):
    """The reading side of a DeadlineSocket."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self.plain, self.deadline = plain, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.plain.settimeout(left(self.deadline))
        return self.plain.recv_into(buffer)


def left(deadline: float) -> float:
    """Return the seconds until the deadline.  Raises TimeoutError when it has passed."""
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError(f"No answer within {TIME_LIMIT:.0f} s.")
    return seconds
