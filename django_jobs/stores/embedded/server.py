"""The server of one directory: the first process that needs it starts it, and it ends after its last user.

* A lock tells whether it runs.  Its descriptor is the standard output of the server and of the shell that started it:
  the lock lives exactly as long as they do, and nobody has to trust a process id.
* Every user holds the write end of a pipe.  A second shell reads the other end: end of file means that no user is
  left, however they ended.  If the server or a shell is killed, the other shell ends the rest.
* A session of its own keeps Ctrl-C and the signals of a process group from the server.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any, BinaryIO

from django_jobs.conf.store_address import refuse_old_file
from django_jobs.exceptions import StoreMisconfigured, StoreUnavailable
from django_jobs.stores.embedded.program import OLDEST, find_program

logger = logging.getLogger("django_jobs")

#: Our files in the directory, and the folder in which Redis 7.0 and newer keep theirs: older ones do not look there.
SOCKET, LOCK, PIPE, LOG, SINCE_7_0 = "socket", "lock", "users", "log", "appendonlydir"
#: The length of a socket's path on macOS; Linux has 4 bytes more.
LONGEST_SOCKET = 103
#: Bytes of free space without which no server is started: it would end at one of its first commands.
ROOM = 1_000_000
#: Seconds that a call waits (the transport, which repeats it, for five), and until a server without a socket is ended.
PATIENCE, UNREACHABLE = 2.5, 1.5
#: Seconds between the end of the last user and that of the server, so that commands one after another share a server.
GRACE = 10
#: Seconds between looks whether the directory is still there: one before each call would cost a tenth of its time.
LOOK = 0.01
#: What is said through the pipe: a user has come, and the time of grace begins anew; the server must end.
HELLO, END = b"\n", b"end\n"
#: Runs the server "$3…" until "$1" seconds after its last user, then removes the directory "$2" unless that is empty.
#: The first shell ends at once: its parent has no child to wait for.  SIGKILL loses nothing, and nobody can block it.
_SCRIPT = """
umask 077
grace=$1 remove=$2; shift 2
exec 3<&0
{
  trap : CHLD  # so that `wait` returns when either of the two ends
  "$@" </dev/null 3<&- & server=$!
  {
    while read -r order || { sleep "$grace"; read -r order; }; do [ -z "$order" ] || break; done
    kill -9 "$server"
  } <&3 3<&- >&2 & watch=$!
  exec 3<&-
  wait "$server"
  kill -9 "$server" "$watch" 2>/dev/null
  wait "$server"
  [ -z "$remove" ] || rm -rf -- "$remove"
} &
"""

#: Held while a server is looked for or started.  A fork waits for it: the copy must not keep the lock of a server.
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Server:
    """The server of a directory, as this process sees it."""

    def __init__(self, path: Path, *, fsync: str | None, grace: int = GRACE) -> None:
        """`fsync`: "always", or "no" to leave it to the system; None: keep nothing, and remove the directory at the
        end."""
        self.path, self.fsync, self.grace = path, fsync, grace
        self._pipe = str(path / PIPE)
        #: Our write end of the pipe, and the identity of that file.
        self._users, self._identity = -1, (0, 0)

    def is_intact(self) -> bool:
        """Return whether the directory is still the one that this process uses, and a shell watches its server."""
        return _identity(self._pipe) == self._identity and self._is_watched()

    def connect(self) -> Link:
        """Make this process a user of the server, start the server if it does not run, and connect to it.

        Raises StoreMisconfigured or StoreUnavailable, with the remedy."""
        deadline = monotonic() + PATIENCE
        starts, told, problem = 0, False, f"did not answer within {PATIENCE:g} s"
        if not _lock.acquire(timeout=PATIENCE):
            raise self._unavailable(problem)
        try:
            while True:
                try:
                    self._join()
                    if link := self._reach(deadline):
                        return link
                    starts += self._start(starts)
                    if not (starts or told) and monotonic() > deadline - PATIENCE + UNREACHABLE:
                        told = self._say(END)
                except OSError as error:  # the directory may just have been removed: then the next turn makes it again
                    problem = f"cannot use its directory ({error.strerror})"
                if monotonic() > deadline:
                    raise self._unavailable(problem)
                sleep(0.003)
        finally:
            _lock.release()

    def _join(self) -> None:
        is_user = _identity(self._users) == self._identity  # not if the process has become a daemon, without files
        if is_user and _identity(self._pipe) == self._identity:
            return
        if is_user:
            logger.error(
                "The directory of the embedded store, %s, was removed or replaced while it was in use. Jobs that were "
                "only there are lost. The store continues with the directory that is there now.", self.path
            )  # fmt: skip
            self._say(END)
            os.close(self._users)
        self._users = -1
        prepare(self.path)
        with suppress(FileExistsError):
            os.mkfifo(self._pipe, 0o600)
        with self._reader():  # without it, the write end could not be opened, and writing would end this process
            self._users = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            self._identity = _identity(self._users)
            self._say(HELLO)

    def _reader(self, folder: int | None = None) -> BinaryIO:
        path = self._pipe if folder is None else PIPE
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder), "rb")

    def _is_watched(self) -> bool:
        """Return whether a shell reads the pipe: without it, the server would never end."""
        poll = select.poll()
        poll.register(self._users, select.POLLIN)  # the write end is never readable: this finds errors only
        return not poll.poll(0)

    def _say(self, word: bytes) -> bool:
        with suppress(OSError):  # the pipe is full, or the shell has just ended
            return self._is_watched() and os.write(self._users, word) > 0
        return False

    def _reach(self, deadline: float) -> Link | None:
        """Connect, and let the server flush as this process wants it.  Returns None if that is not possible now."""
        folder, link = os.open(self.path, os.O_RDONLY), Link(self)  # the folder is for a path that is too long
        try:
            link.settimeout(max(deadline - monotonic(), 0.01))
            link.connect(f"/proc/self/fd/{folder}/{SOCKET}" if _is_long(self.path) else str(self.path / SOCKET))
            if not self._is_watched():
                link.send(b"SHUTDOWN\r\n")
            elif self.fsync != "always":
                return link
            else:  # a process with fsync=no may have started it
                link.send(b"CONFIG SET appendfsync always\r\n")
                if link.recv(100).startswith(b"+OK"):
                    return link
        except OSError:
            pass
        finally:
            os.close(folder)
        link.close()
        return None

    def _start(self, starts: int) -> bool:
        """Start a server if none runs.  Returns whether one was started.

        All files are of one directory: `path` may name another one at any moment, whose server has another lock."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            return self._start_in(folder, starts)
        finally:
            os.close(folder)

    def _start_in(self, folder: int, starts: int) -> bool:
        with _opened(LOCK, folder) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if _identity(PIPE, folder) != self._identity:
                return False
            # The second start is for a server that was killed as it began.  One that cannot read its file may answer
            # before it ends, and end during the call: the next connection tells.
            has_failed = self._cannot_read() and time() - os.stat(self.path / LOG).st_mtime < PATIENCE
            if starts == 2 or has_failed:
                raise self._unavailable("ended as soon as it was started")
            disk = os.statvfs(self.path)
            if disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) < ROOM:
                raise StoreUnavailable(f"The disk of the embedded store, {self.path}, is full. Make room on it.")
            self._spawn(lock, folder)
            return True

    def _spawn(self, lock: BinaryIO, folder: int) -> None:
        program = find_program((7, 0) if (self.path / SINCE_7_0).exists() else OLDEST)
        # As plain commands, the file can be read by whatever other server is installed later.
        options = f"--port 0 --unixsocket {SOCKET} --unixsocketperm 700 --dir . --aof-use-rdb-preamble no --appendonly "
        options += f"yes --appendfsync {self.fsync}" if self.fsync else "no"
        command = [program, "--save", "", "--logfile", LOG, "--loglevel", "warning", *options.split()]
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])  # without it, a shell waits for ever
        try:
            with self._reader(folder) as reader, _opened(LOG, folder) as log:
                os.set_blocking(reader.fileno(), True)
                log.truncate(0)
                subprocess.run(
                    ["sh", "-c", _SCRIPT, "sh", str(self.grace), "" if self.fsync else str(self.path), *command],
                    stdin=reader, stdout=lock, stderr=log, start_new_session=True, check=True,
                    cwd=f"/proc/self/fd/{folder}" if os.path.exists("/proc/self/fd") else self.path,
                    env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                )  # fmt: skip
                self._say(HELLO)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _said(self) -> str:
        with suppress(OSError):
            return (self.path / LOG).read_text(errors="replace").strip()[-500:]
        return ""

    def _cannot_read(self) -> bool:
        return any(words in self._said() for words in ("Bad file format", "RDB format", "Unrecoverable error"))

    def _unavailable(self, problem: str) -> StoreUnavailable:
        if self._cannot_read():
            problem += "; repair the file with valkey-check-aof or redis-check-aof, or install what has written it"
        said = self._said() or "nothing"
        return StoreUnavailable(f"The server of the embedded store in {self.path} {problem}. It said: {said}")


class Link(socket.socket):
    """A connection to the server.  Nothing is sent if its directory was removed or replaced: it would be lost."""

    def __init__(self, server: Server) -> None:
        super().__init__(socket.AF_UNIX)
        self._server, self._looked = server, 0.0

    def sendall(self, data: Any, flags: int = 0) -> None:
        if (now := monotonic()) > self._looked + LOOK:
            if not self._server.is_intact():
                raise ConnectionError("The server is no longer that of the directory.")
            self._looked = now
        super().sendall(data, flags)


def _opened(name: str, folder: int) -> BinaryIO:
    """Open a file of this directory for writing at its end."""
    return os.fdopen(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600, dir_fd=folder), "ab")


def _identity(file: str | int, folder: int | None = None) -> tuple[int, int]:
    """Return what tells a file from another one that was made at the same path later; (-1, -1): it has gone."""
    try:
        found = os.stat(file, dir_fd=folder)
    except OSError:
        return -1, -1
    return found.st_dev, found.st_ino


def prepare(path: Path) -> None:
    """Create the directory, or check the one that is there.  Only the owner may enter: it holds the arguments of jobs.

    Raises StoreMisconfigured, naming the path and the remedy."""
    refuse_old_file(path)
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise _refused(path, f"cannot be created: {error.strerror}", "Name one that this user may write") from error
    if found.st_uid != os.geteuid():
        problem = f"belongs to another user (id {found.st_uid}; this process runs as {os.geteuid()})"
        raise _refused(path, problem, "Run web servers and workers as the same user, or name another directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise _refused(path, "is read-only", "Make it writable for this user, or name another directory")
    if stat.S_IMODE(found.st_mode) & 0o077:
        if not (path / LOCK).exists() and any(path.iterdir()):
            remedy = f"Name a directory of its own, such as '{path / 'jobs'}'"
            raise _refused(path, "is open to other users and holds other files", remedy)
        path.chmod(0o700)
    if _is_long(path) and not os.path.exists("/proc/self/fd"):
        raise _refused(path, "has too long a path for this system", "Name a shorter one")


def _is_long(path: Path) -> bool:
    return len(os.fsencode(path / SOCKET)) > LONGEST_SOCKET


def _refused(path: Path, problem: str, remedy: str) -> StoreMisconfigured:
    return StoreMisconfigured(f"The directory of the embedded store, {path}, {problem}. {remedy}.")
