"""Break one promise at a time and check which test notices: `python -m tools.mutants [NAME…]`, or `make mutants`.

A mutant is a file `tests/mutants/NAME.patch`: lines `Promise: …` and `Caught by: …` (pytest's test ids, separated by
spaces), an empty line, and a unified diff that breaks the promise.  Each diff is applied to a copy of the tree, and the
named tests are run there.  A mutant is *caught* when one of them fails.  First, all named tests run on an unchanged
copy: what fails there catches nothing.  The other copies are made of that one, with the code that Python has compiled.
As many mutants are tried at a time as there are processors: most of a trial is the start of Python and a server.

Ends with 0 if every mutant is caught and every named test passes without one, else with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "mutants"
#: pytest's exit status when at least one test failed.  0 means that all passed; all others, that it could not run.
FAILED = 1
#: Seconds for the tests of one mutant.  A mutant that makes a test hang is caught by the test's own deadline.
PATIENCE = 900
HEADER = re.compile(
    r"\APromise: (?P<promise>[^\n]+)\nCaught by: (?P<tests>[^\n]+)\n\n(?P<diff>(?:diff|---) .*)\Z", re.DOTALL
)
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One patch: its name, the promise that it breaks, the tests that must fail, and the file."""

    name: str
    promise: str
    tests: tuple[str, ...]
    path: Path


class Malformed(Exception):
    """A patch without the two lines with which every patch must begin."""


def mutants(names: Iterable[str] = ()) -> list[Mutant]:
    """Return the mutants with these names, or all.  Raises Malformed, and FileNotFoundError for an unknown name."""
    paths = [FOLDER / f"{name}.patch" for name in names] or sorted(FOLDER.glob("*.patch"))
    return [read(path) for path in paths]


def read(path: Path) -> Mutant:
    """Return the mutant in this file.  Raises Malformed."""
    if not (found := HEADER.match(path.read_text())):
        raise Malformed(f"{path.name}: begin it with 'Promise: …', 'Caught by: …' and an empty line, then the diff.")
    return Mutant(path.stem, found["promise"], tuple(found["tests"].split()), path)


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a copy of the files that git tracks, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, Path(folder) / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        yield Path(folder)


def applies(mutant: Mutant, folder: Path, *, check_only: bool = False) -> bool:
    """Apply the patch to the copy in `folder` (or only check it); return False if it does not fit the code."""
    command = ["git", "apply", *(["--check"] if check_only else []), str(mutant.path)]
    # Set outside any checkout: inside one, git apply would skip files that lie outside the current folder.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True).returncode == 0


def run(tests: Iterable[str], folder: Path, *options: str, patience: float | None = PATIENCE) -> tuple[int, str]:
    """Run these tests in the copy; return pytest's exit status and its output.  `patience`: seconds; None: no limit."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=no", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired as error:
        return 2, f"no end within {patience} s\n{error.stdout or ''}"
    return done.returncode, done.stdout + done.stderr


def timed_verdict(mutant: Mutant, broken: set[str], unchanged: Path) -> tuple[bool, str, float]:
    """Return what `verdict` returns, and the seconds that it took."""
    began = monotonic()
    return *verdict(mutant, broken, unchanged), monotonic() - began


def verdict(mutant: Mutant, broken: set[str], unchanged: Path) -> tuple[bool, str]:
    """Return whether this mutant is caught, and by which test (or why not).  `broken`: tests that fail without it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = shutil.copytree(unchanged, Path(name), symlinks=True, dirs_exist_ok=True)
        if not applies(mutant, folder):
            return False, "the patch does not fit the code any more: make it again"
        # One failure is enough: a mutant that hangs would hang in each test.
        status, output = run(mutant.tests, folder, "--exitfirst", *(f"--deselect={test}" for test in sorted(broken)))
    if failures := FAILURE.findall(output) if status == FAILED else []:
        return True, failures[0]
    if status in (0, FAILED):
        return False, f"SURVIVED: {output.strip().splitlines()[-1]}"
    return False, f"pytest could not run (status {status}): {output.strip()[-400:]}"


def try_all(trials: Sequence[tuple[str, Mutant]]) -> int:
    """Try these mutants and print a table, in which each has its label; return the exit status."""
    tests = sorted({test for _, mutant in trials for test in mutant.tests})
    print(f"{len(trials)} mutants; first their {len(tests)} tests on the code as it is …", flush=True)
    missed = 0
    with copied() as unchanged:
        # All tests together take longer than those of one mutant.  Each has its own deadline.
        status, output = run(tests, unchanged, "-n", str(os.cpu_count()), patience=None)
        broken = set(FAILURE.findall(output))
        if status not in (0, FAILED) or (status == FAILED and not broken):
            print(f"pytest could not run (status {status}):\n{output[-3000:]}", file=sys.stderr)
            return 1
        for test in sorted(broken):
            print(f"fails on the code as it is, and catches nothing: {test}", flush=True)
        with ThreadPoolExecutor(os.cpu_count()) as trying:
            verdicts = trying.map(lambda trial: timed_verdict(trial[1], broken, unchanged), trials)
            for (label, mutant), (caught, by, took) in zip(trials, verdicts, strict=True):
                missed += not caught
                word = "caught" if caught else "MISSED"
                print(f"{word}  {mutant.name}  {took:.0f} s  {by}\n        {label}", flush=True)
    print(f"{len(trials) - missed} of {len(trials)} caught.")
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(try_all([(mutant.promise, mutant) for mutant in mutants(sys.argv[1:])]))
