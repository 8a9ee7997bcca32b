"""gocraft/work, in Go: only if Go is installed and `GOCRAFT` names the folder of its source.

Its workers move a job to a list of their own while it runs, so the job of a killed worker runs again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from bench.subjects.base import Subject

#: Goroutines per process; its authors measured with so many.
GOROUTINES = 20
PROGRAM = Path(__file__).with_name("gocraft.go")


def is_wanted() -> bool:
    """Is the source given?  Raises SystemExit if Go is missing."""
    source = os.environ.get("GOCRAFT")
    if source and not shutil.which("go"):
        raise SystemExit(
            f"GOCRAFT is {source!r}, but there is no `go` on PATH to build it (Debian: apt install golang-go)."
        )
    return bool(source)


@cache
def binary() -> str:
    """Build the program, and return its path.  The source is used as it is, in GOPATH mode if it is in a GOPATH."""
    if built := os.environ.get("BENCH_GOCRAFT"):
        return built
    source = Path(os.environ["GOCRAFT"]).absolute()
    folder = Path(tempfile.mkdtemp(prefix="jobs-bench-"))
    shutil.copy(PROGRAM, folder / "main.go")
    env = dict(os.environ)
    if source.as_posix().endswith("/src/github.com/gocraft/work"):
        env |= {"GO111MODULE": "off", "GOPATH": str(source.parents[3])}
    else:
        module = (
            f"module bench\n\nrequire github.com/gocraft/work v0.0.0\n\nreplace github.com/gocraft/work => {source}\n"
        )
        (folder / "go.mod").write_text(module)
        env |= {"GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        ["go", "build", "-o", "gocraft", "main.go"], cwd=folder, env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"gocraft/work in {source} cannot be built:\n{done.stderr[-2000:]}")
    os.environ["BENCH_GOCRAFT"] = built = str(folder / "gocraft")
    return built


def enqueue(n: int) -> None:
    subprocess.run([binary(), "enqueue", str(n)], check=True)


def workers(processes: int) -> list[list[str]]:
    return [["env", f"GOMAXPROCS={processes}", binary(), "work", str(GOROUTINES * processes)]]


SUBJECT = Subject("gocraft/work", True, enqueue, workers, "one Go process on as many cores, 20 goroutines for each")

if __name__ == "__main__":
    enqueue(int(sys.argv[2]))
