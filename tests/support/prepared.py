"""Workers that start in less than half the time: forked from a process that has already imported Django.

A test of a worker starts `python -m django runworkers`, and most of what that costs the processor is the import of
Django and its dependencies.  So each process of pytest keeps one process that has imported them (nothing of this
package, whose loggers `LOGGING` would disable, and no settings), and forks it for each worker.  The fork gets the
arguments, environment, folder and output that a new interpreter would get, and ends as an interpreter ends.  Producers
start in the same way.

Such a fork does not show that the interpreter starts, nor that each worker has another hash seed.  `DOSE=long` and
the session `oldest`, which continuous integration runs, therefore start new interpreters everywhere: see `start`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from tests.support.dose import DOSE
from tests.support.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
#: Is each worker a new interpreter?
NEW = DOSE == "long" or bool(os.environ.get("NEW_INTERPRETERS"))
#: Python's options for each worker: a warning in it is an error.
FLAGS = ("-W", "error")
#: What a worker imports of other packages.  One that is not installed is left out.
IMPORTS = (
    "asyncio",
    "concurrent.futures.thread",
    "croniter",
    "django.contrib.admin",
    "django.core.management",
    "django.core.serializers.json",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.executor",
    "django.http",
    "django.tasks",
    "django.test.signals",
    "django.urls",
    "django_tasks",
    "multiprocessing",
    "redis",
    "redis.cluster",
    "redis.sentinel",
    "sqlite3",
)
#: Signals that a new interpreter ignores if the process that starts it does.
INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Process(Protocol):
    """What tests use of a subprocess.Popen."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start(
    arguments: Sequence[str],
    environment: dict[str, str],
    output: int,
    *,
    input: int | None = None,
    module: str = "django",
    new: bool = False,
) -> Process:
    """Start `python -m MODULE ARGUMENTS` with exactly this environment and all output in one file.

    `input`: its standard input; what it says of errors then does not go to the output.  `new`: in a new interpreter
    whatever the dose, for settings that change a module of Python (a clock that is wrong)."""
    if new or NEW or not hasattr(os, "fork"):
        return subprocess.Popen(
            [sys.executable, *FLAGS, "-m", module, *arguments],
            env=environment,
            stdin=input,
            stdout=output,
            stderr=output if input is None else None,
            cwd=ROOT,
            preexec_fn=die_with_parent,
        )
    return _source().fork([module, *arguments], environment, output, input)


class Forked:
    """One fork; see Process."""

    def __init__(self, pid: int, end: int, arguments: Sequence[str]) -> None:
        self.pid, self._end, self._arguments = pid, end, arguments
        self.returncode: int | None = None
        self._lock = Lock()

    def poll(self) -> int | None:
        """The exit status; a negative number is the signal that ended it."""
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired (seconds)."""
        status = self._read(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(list(self._arguments), timeout)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int | None:
        deadline = None if timeout is None else monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            ready = poll.poll(None if left is None else left * 1000)
            with self._lock:
                if self.returncode is None and ready:
                    word = os.read(self._end, 16)
                    # Without a word, the process that forks has ended, and all its forks with it.
                    self.returncode = int(word) if word else -signal.SIGKILL
                    os.close(self._end)
            if not ready:
                break
        return self.returncode

    def __del__(self) -> None:
        if self.returncode is None:
            with suppress(OSError):
                os.close(self._end)


class Source:
    """The process that has imported Django, as its parent sees it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *FLAGS, "-m", "tests.support.prepared", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                preexec_fn=die_with_parent,
            )
        self._socket, self._lock = ours, Lock()
        atexit.register(self._close)

    def fork(
        self, arguments: Sequence[str], environment: dict[str, str], output: int, input: int | None = None
    ) -> Forked:
        """Start one; the first argument is the module."""
        read, write = os.pipe()
        try:
            ignored = [number for number in INHERITED if signal.getsignal(number) == signal.SIG_IGN]
            request = json.dumps([list(arguments), environment, ignored]).encode()
            with self._lock:
                fds = [output, write] if input is None else [output, write, input]
                socket.send_fds(self._socket, [len(request).to_bytes(4)], fds)
                self._socket.sendall(request)
                pid = int.from_bytes(_exactly(self._socket, 4))
        finally:
            os.close(write)
        return Forked(pid, read, arguments)

    def _close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


@cache
def _source() -> Source:
    return Source()


def _exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionError("the other process has ended")
        data += part
    return data


def _serve(link: socket.socket) -> list[str]:
    """In the process that forks: returns only in a fork, with its arguments."""
    children: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    poll = select.poll()
    poll.register(link, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if woken in ready:
            os.read(woken, 512)
            _reap(children)
        if link.fileno() not in ready:
            continue
        head, fds, _, _ = socket.recv_fds(link, 4, 3)
        if not head:
            sys.exit()
        output, end, *inputs = fds
        arguments, environment, ignored = json.loads(_exactly(link, int.from_bytes(head)))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            for fd in (woken, wake, end, *children.values()):
                os.close(fd)
            link.close()
            _become(environment, output, inputs, ignored)
            return list(arguments)
        children[pid] = end
        for fd in (output, *inputs):
            os.close(fd)
        link.sendall(pid.to_bytes(4))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _reap(children: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            end = children.pop(pid)
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(end)


def _become(environment: dict[str, str], output: int, inputs: Sequence[int], ignored: Sequence[int]) -> None:
    die_with_parent()
    for number in INHERITED:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)
    for fd in inputs:
        os.dup2(fd, 0)
        os.close(fd)
    os.dup2(output, 1)
    if not inputs:
        os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)


def _main(fd: int) -> Any:
    for name in IMPORTS:
        with suppress(ImportError):
            importlib.import_module(name)
    module, *arguments = _serve(socket.socket(fileno=fd))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    _main(int(sys.argv[1]))
