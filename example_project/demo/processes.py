"""The web server and all workers of the demo: started here, and ended here in every case."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from django.conf import settings

#: prctl option of Linux: the kernel sends this signal to a child when its parent dies.
PR_SET_PDEATHSIG = 1
STOP_SECONDS = 40


class Processes:
    """Background processes, each with a log file in the state folder."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        #: programs other than manage.py; each is a process group.
        self.scripts: set[str] = set()

    def start(self, name: str, *arguments: str) -> None:
        """Start `manage.py arguments…`."""
        self._open(name, [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments])

    def run(self, name: str, command: list[str], **environment: str) -> None:
        """Start any program, with these additional environment variables."""
        self.scripts.add(name)
        self._open(name, command, **environment)

    def _open(self, name: str, command: list[str], **environment: str) -> None:
        with self.log(name).open("wb") as log:
            self.running[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                # A session of its own: Ctrl-C reaches only the demo, which then stops the processes in order.
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )

    def log(self, name: str) -> Path:
        """Return the log file of that process."""
        return settings.STATE / f"{name.replace(' ', '-')}.log"

    def check(self) -> None:
        """Raise RuntimeError with the end of its log if one of them has ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                lines = self.log(name).read_text(errors="replace").splitlines()[-20:]
                raise RuntimeError(f"{name} ended with status {process.returncode}:\n" + "\n".join(lines))

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for name, process in self.running.items():
            if name in self.scripts:
                # Include its own children: a shell script would otherwise let its curl finish.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
            else:
                process.terminate()
        for name, process in self.running.items():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"{name} did not stop within {STOP_SECONDS} s and is killed.", file=sys.stderr)
                process.kill()
                process.wait()


def end_with_parent() -> Callable[[], None] | None:
    """On Linux, return a function that makes a child get SIGTERM when this process is killed; elsewhere None."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM) and None
