"""The directory of an embedded store: the append-only file, the socket, the lock and the pipe of its users."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from django_jobs.exceptions import StoreMisconfigured

#: Only the owner may enter the directory: it holds the arguments of jobs, and whoever reaches the socket has them all.
MODE = 0o700
#: Names of our files in the directory.
SOCKET, LOCK, PIPE, LOG = "socket", "lock", "users", "log"
#: The directory in which Redis 7.0 and newer keep the append-only file.  Older ones do not look into it.
SINCE_7_0 = "appendonlydir"
#: The length of a socket's path on macOS; Linux has 4 bytes more.
LONGEST_SOCKET = 103
#: The first bytes of a database of SQLite, the embedded store of releases before 0.3.
OLD_RELEASE = b"SQLite format 3"
#: What the store was before, at the place where it is by default.
OLD_FILE = "jobs.sqlite3"

#: The device and inode of a file: one that was made again at the same path has others.
Identity = tuple[int, int]


def prepare(path: Path) -> None:
    """Create the directory for its owner only, or check the one that is there.

    Raises StoreMisconfigured, naming the path and the remedy."""
    refuse_old_file(path)
    try:
        path.mkdir(MODE, parents=True, exist_ok=True)
        found = path.stat()
    except FileExistsError:
        raise _refused(path, "is not a directory", "Name a directory that only the embedded store uses") from None
    except OSError as error:
        raise _refused(path, f"cannot be created: {error.strerror}", "Name one that this user may write") from error
    if found.st_uid != os.geteuid():
        problem = f"belongs to another user (id {found.st_uid}; this process runs as {os.geteuid()})"
        raise _refused(path, problem, "Run web servers and workers as the same user, or name another directory")
    if not os.access(path, os.W_OK | os.X_OK) or os.statvfs(path).f_flag & os.ST_RDONLY:
        raise _refused(path, "is read-only", "Make it writable for this user, or name another directory")
    if stat.S_IMODE(found.st_mode) & 0o077:
        if (path / LOCK).exists() or not any(path.iterdir()):
            path.chmod(MODE)
        else:
            problem = "is open to other users and holds other files"
            raise _refused(path, problem, f"Name a directory of its own, such as '{path / 'jobs'}'")


def refuse_old_file(path: Path) -> None:
    """Raise StoreMisconfigured if the jobs of an older release are there: they must not be forgotten silently."""
    for file in (path, path.parent / OLD_FILE):
        if is_old_file(file):
            raise StoreMisconfigured(
                f"{file} holds the jobs of an older release, which kept them in SQLite. The embedded store is now a "
                "directory with a private Valkey. Run the remaining jobs with the older release "
                f"(`manage.py runworkers --burst`), then delete the file{_and_name(path, file)}."
            )


def is_old_file(file: Path) -> bool:
    """Return whether this is a database of SQLite."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(OLD_RELEASE)) == OLD_RELEASE
    except OSError:
        return False


def _and_name(path: Path, file: Path) -> str:
    return f" and name a directory in DJANGO_JOBS['STORE'], such as 'embedded:{path.parent / 'jobs'}'" * (path == file)


def identity(path: Path) -> Identity | None:
    """Return the device and inode of a file; None if it has gone."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def is_full(path: Path) -> bool:
    """Return whether the disk has no room left for a few commands: a server there would end at the first of them."""
    disk = os.statvfs(path)
    return disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) < 1_000_000


def socket_path(path: Path) -> str:
    """Return a path of the socket that is short enough to connect to.

    Raises StoreMisconfigured if this system has none."""
    socket = str(path / SOCKET)
    if len(os.fsencode(socket)) <= LONGEST_SOCKET:
        return socket
    if sys.platform != "linux":
        problem = f"has a path of more than {LONGEST_SOCKET - len(SOCKET) - 1} bytes"
        raise _refused(path, problem, "This system cannot connect to a socket there: name a shorter one")
    # The descriptor stays open as long as the process, which may connect again at any time.
    return f"/proc/self/fd/{os.open(path, os.O_RDONLY | os.O_DIRECTORY)}/{SOCKET}"


def _refused(path: Path, problem: str, remedy: str) -> StoreMisconfigured:
    return StoreMisconfigured(f"The directory of the embedded store, {path}, {problem}. {remedy}.")
