"""What this machine lacks: the tests that need it are skipped with the reason, and fail in continuous integration."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import pytest

#: In continuous integration nothing may be missing: a skipped test would look like a passed one.
CI = os.environ.get("CI", "").lower() == "true"


def missing(reason: str) -> NoReturn:
    """End the test, or all of the module: the machine does not have what it needs."""
    if CI:
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def libraries(*names: str) -> list[Any]:
    """Import these packages for a module of tests, or end all its tests."""
    absent = [name for name in names if find_spec(name) is None]
    if absent:
        missing(f"Not installed: {', '.join(absent)}.")
    return [import_module(name) for name in names]


def only_in_ci() -> None:
    """Skip outside of continuous integration: these tests have run before, and run once more with other settings."""
    if not CI:
        pytest.skip("Tests that run again elsewhere: in continuous integration (CI=true).")


def need(*programs: str) -> None:
    """Go on only where every one of these programs is on PATH."""
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        missing(f"Not on PATH: {', '.join(absent)}.")


def need_toolchain(program: str) -> None:
    """Skip without this program, in continuous integration too: it does not install a language for one example."""
    if shutil.which(program) is None:
        pytest.skip(f"Not on PATH: {program}.")


def chromium() -> str:
    """The browser's program: the one without windows needs half the processor."""
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    missing("No chromium on PATH: install it to run the tests in a browser.")
