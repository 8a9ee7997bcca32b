"""The server of one directory: whoever needs it starts it, and it ends after its last user.

* A lock tells whether it runs.  Its descriptor is the server's standard output, so that the lock lives exactly as long
  as the server, and nobody has to trust a process id.
* Every user holds the write end of a pipe.  A shell beside the server reads the other end: end of file means that no
  user is left, however they ended.
* A session of its own keeps Ctrl-C and the signals of a process group from the server.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.embedded import directory
from django_jobs.stores.embedded.program import OLDEST, find_program

logger = logging.getLogger("django_jobs")

#: Seconds that a call waits for the server: with the transport's own repeats, it still ends within five.
PATIENCE = 2.5
#: Seconds between the end of the last user and that of the server, so that commands one after another share a server.
GRACE = 10
#: "$1" seconds after the last user, end the server, and then remove "$2" unless it is empty.  The first shell ends at
#: once, so that the process that starts it has no child to wait for.
_SCRIPT = """
umask 077
grace=$1 remove=$2; shift 2
exec 3<&0
{
  "$@" </dev/null 3<&- & server=$!
  exec >&2
  { while read -r _ || { sleep "$grace"; read -r _; }; do :; done; kill "$server"; } <&3 & watch=$!
  exec 3<&-
  wait "$server"
  kill "$watch"
  [ -z "$remove" ] || rm -rf -- "$remove"
} &
"""

_lock = threading.Lock()
#: Descriptors of locks that this process is about to hand to a server.
_handed: set[int] = set()


def _in_child() -> None:
    """A copy of this process must not keep the lock of a server that another thread was starting."""
    global _lock
    _lock = threading.Lock()
    for descriptor in _handed:
        os.close(descriptor)
    _handed.clear()


os.register_at_fork(after_in_child=_in_child)


class Server:
    """The server of a directory, as this process sees it."""

    def __init__(self, path: Path, *, fsync: str | None, grace: int = GRACE) -> None:
        """`fsync`: "always", or "no" to leave it to the system; None: keep nothing, and remove the directory at the
        end."""
        self.path, self.fsync, self.grace = path, fsync, grace
        #: the path to connect to.
        self.socket = ""
        self._lock_file = path / directory.LOCK
        self._identity: directory.Identity | None = None
        self._users: int | None = None

    def is_here(self) -> bool:
        """Return whether the directory is the one that the server was found in: else what is written is lost."""
        return directory.identity(self._lock_file) == self._identity

    def ensure(self) -> None:
        """Make this process a user of the server, and start the server if it does not run.

        Raises StoreMisconfigured or StoreUnavailable, with the remedy."""
        with _lock:
            if self._users is not None and not self.is_here():
                self._leave()
            if self._users is None:
                self._join()
            if not (self._answers() and self._is_watched()):
                self._start()
            self._identity = directory.identity(self._lock_file)

    def _leave(self) -> None:
        logger.error(
            "The directory of the embedded store, %s, was removed or replaced while it was in use. The jobs that were "
            "only there are lost; the store goes on with the directory that is there now.",
            self.path,
        )
        if self._users is not None:
            os.close(self._users)
        self._users = None

    def _join(self) -> None:
        directory.prepare(self.path)
        self.socket = directory.socket_path(self.path)
        pipe = self.path / directory.PIPE
        with suppress(FileExistsError):
            os.mkfifo(pipe, 0o600)
        # Without a reader, the write end could not be opened.
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self._users = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        finally:
            os.close(reader)
        self._say_hello()

    def _say_hello(self) -> None:
        """Tell the shell that reads the pipe of a new user: if the user ends at once, the time of grace begins anew."""
        assert self._users is not None
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._users, b"\n")

    def _is_watched(self) -> bool:
        """Return whether a shell still reads the pipe: without it, the server would never end."""
        poll = select.poll()
        poll.register(self._users or 0, select.POLLOUT)
        return not any(event & select.POLLERR for _, event in poll.poll(0))

    def _answers(self, say: bytes = b"") -> bool:
        """Return whether a server accepts connections; `say` is a command for it."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            try:
                client.connect(self.socket)
                client.sendall(say)
                return not say or client.recv(1) != b""
            except OSError:
                return False

    def _start(self) -> None:
        deadline, starts = monotonic() + PATIENCE, 0
        while True:
            if self._answers():
                if self._is_watched():
                    return
                self._answers(b"SHUTDOWN\r\n")
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _handed.add(lock)
            try:
                if _is_free(lock):
                    if starts == 2:  # the second time, for one that was killed as it began
                        raise self._unavailable("ended as soon as it was started")
                    self._spawn(lock)
                    starts += 1
            finally:
                _handed.discard(lock)
                os.close(lock)
            if monotonic() > deadline:
                raise self._unavailable(f"did not answer within {PATIENCE:g} s")
            sleep(0.003)

    def _spawn(self, lock: int) -> None:
        if directory.is_full(self.path):
            raise StoreUnavailable(f"The disk of the embedded store, {self.path}, is full. Make room on it.")
        needs = (7, 0) if (self.path / directory.SINCE_7_0).exists() else OLDEST
        command = [find_program(needs).path, "--port", "0", "--unixsocket", directory.SOCKET, "--unixsocketperm", "700"]
        command += ["--dir", ".", "--save", "", "--logfile", directory.LOG, "--loglevel", "warning"]
        # As plain commands, the file can be read by whatever other server is installed later.
        command += ["--aof-use-rdb-preamble", "no"]
        command += ["--appendonly", "yes", "--appendfsync", self.fsync] if self.fsync else ["--appendonly", "no"]
        reader = os.open(self.path / directory.PIPE, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.set_blocking(reader, True)
            with (self.path / directory.LOG).open("ab") as log:
                log.truncate(0)
                subprocess.run(
                    ["sh", "-c", _SCRIPT, "sh", str(self.grace), "" if self.fsync else str(self.path), *command],
                    stdin=reader, stdout=lock, stderr=log, cwd=self.path, start_new_session=True, check=True,
                    env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                )  # fmt: skip
        finally:
            os.close(reader)
        self._say_hello()

    def _unavailable(self, problem: str) -> StoreUnavailable:
        said = (self.path / directory.LOG).read_text(errors="replace").strip()[-500:]
        return StoreUnavailable(f"The server of the embedded store in {self.path} {problem}. {_remedy(said)}")


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remedy(said: str) -> str:
    if "Bad file format" in said or "RDB format" in said or "Unrecoverable error" in said:
        return (
            "It cannot read its append-only file: repair the file with valkey-check-aof or redis-check-aof, or start "
            f"the server version that wrote it. It said: {said}"
        )
    return f"It said: {said}" if said else "It said nothing."
