"""A redis-server of our own: started, stopped, killed, started again on the same files, filled up."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from random import SystemRandom
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.backends.servers import server_program
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until


def free_port(*above: int) -> int:
    """A TCP port nobody listens on, nor so far above it.

    It is none of those that the kernel gives to connections (from 32768): while a server is down, one of its clients
    could get its port, and the server would not start again."""
    while True:
        port = SystemRandom().randrange(10_000, 32_000 - max(above, default=0))
        with ExitStack() as stack, suppress(OSError):
            for each in (0, *above):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + each))
            return port


def free_ports(number: int, *above: int) -> list[int]:
    """Several such ports, none of which is another, or so far above another."""
    ports: list[int] = []
    while len(ports) < number:
        port = free_port(*above)
        taken = {each + far for each in ports for far in (0, *above)}
        if taken.isdisjoint((port, *(port + far for far in above))):
            ports.append(port)
    return ports


class RedisServer:
    """One server process and its directory."""

    def __init__(self, folder: Path, *options: str, append_only: bool = True) -> None:
        if merged := [option for option in options if " " in option]:
            # Redis 7 would take such an option apart; Redis 6.2 does not start with it.
            raise ValueError(f"Give each word of {merged} as an argument of its own.")
        self.program = server_program()
        self.folder, self.port = folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        # With "no", each write is handed to the operating system before it is answered: a killed server loses nothing.
        # With "everysec", a server whose disk is slow puts writes off for up to two seconds.
        kept = ["--appendonly", "yes", "--appendfsync", "no"] if append_only else ["--appendonly", "no"]
        self.options = [*kept, *self.program.debug, *options]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What goes into STORE."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self, **options: Any) -> redis.Redis:
        """A client that never sends anything twice by itself."""
        return redis.Redis(
            host="127.0.0.1", port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=10, protocol=2, **options
        )

    def start(self) -> RedisServer:
        """Start it and wait until it has loaded its files."""
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        log = (self.folder / "redis.log").open("ab")
        self.process = subprocess.Popen(
            [self.program.path, *arguments, *self.options], stdout=log, stderr=log, preexec_fn=die_with_parent
        )
        log.close()
        try:
            wait_until(
                lambda: self.answers() or self.process.poll() is not None, f"{self.program.name} on {self.port} answers"
            )
            assert self.process.poll() is None, f"{self.program.name} ended when it was started"
        except BaseException:
            self.close()  # it would be the next test that is blamed for a process which nobody ended
            print((self.folder / "redis.log").read_text(errors="replace")[-2000:])
            raise
        return self

    def answers(self) -> bool:
        """Does it serve commands now?"""
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory is short."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def shutdown(self) -> None:
        """An orderly SHUTDOWN."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)

    def close(self) -> None:
        """The test is over."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
