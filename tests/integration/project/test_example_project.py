"""The example shop as a newcomer starts it: every process, the real work, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.backends.missing import CI
from tests.support.waiting import wait_until

SECONDS = 500


def play(tmp_path: Path, store: str) -> subprocess.CompletedProcess[str]:
    """`make demo ARGS=--once`, with fewer orders."""
    pytest.importorskip("aiosmtpd", reason="the demo's mail server")
    pytest.importorskip("PIL", reason="the demo's photos")
    return subprocess.run(
        [sys.executable, "-m", "demo", "--once", "--orders", "20"],
        cwd=ROOT / "example_project",
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHOP_STATE": str(tmp_path / "state"), "SHOP_STORE": store},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def processes_of(tmp_path: Path) -> list[str]:
    """Command lines of the living processes that were told to keep their files under `tmp_path`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(tmp_path).encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # ended while we looked, or another user's
    return found


def shell_worker_works() -> bool:
    """Is there what remote/pull_worker.sh needs?  A laptop may do without; continuous integration may not."""
    absent = [program for program in ("curl", "jq", "sha256sum") if shutil.which(program) is None]
    assert not absent or not CI, f"{absent} are missing"
    return not absent


def assert_it_went_well(done: subprocess.CompletedProcess[str], tmp_path: Path) -> None:
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout.splitlines()[-1].startswith("demo ok: "), said
    assert "WRONG" not in done.stdout
    assert "8 layouts made by the picture service" in done.stdout
    assert ("8 certificates sealed by the worker in shell" in done.stdout) == shell_worker_works()
    assert done.stderr == ""
    if Path("/proc").is_dir():
        # The shell beside the embedded store's server ends at once; its `sleep` takes the rest of its ten seconds.
        wait_until(lambda: processes_of(tmp_path) == [], "no process is left", seconds=60, every=0.2)


@pytest.mark.accepts("P02", "P01", "K17")
def test_the_shop_does_its_work_on_the_embedded_store(tmp_path: Path) -> None:
    assert_it_went_well(play(tmp_path, "embedded"), tmp_path)
