"""What a type checker says of users' jobs: enqueue has the signature of the function."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.backends.missing import CI

PROGRAM = """
from django_jobs import JobContext, JobHandle, job

@job
def receipt(order_id: int, *, copy: bool = False) -> str:
    return ""

@job(queue="mail", takes_context=True)
def export(ctx: JobContext, name: str) -> None: ...

@job(max_attempts=3)
async def fetch(url: str) -> bytes:
    return b""

async def good() -> None:
    text: str = receipt(7, copy=True)
    data: bytes = await fetch("x")
    handle: JobHandle = receipt.enqueue(7, copy=True)
    handle = receipt.using(queue="mail").enqueue_in(5, order_id=7)
    handle = await receipt.aenqueue(7)
    handle = export.enqueue("a")
    handle = fetch.enqueue("x")
    maybe: JobHandle | None = receipt.enqueue_unique_by_key_in("k", 5, 7)

async def bad() -> None:
    receipt.enqueue("7")
    receipt.enqueue()
    receipt.using(queue="mail").enqueue(7, size=1)
    receipt.enqueue_in(5, 7, copy="yes")
    await receipt.aenqueue(None)
    export.enqueue(5)
    fetch.enqueue(5)
    receipt.enqueue_unique(7).id
"""


@pytest.mark.skipif(find_spec("mypy") is None and not CI, reason="mypy is not installed")
def test_calls_keep_the_signature_of_the_function(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    program = tmp_path / "shop_jobs.py"
    program.write_text(PROGRAM)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nfollow_imports = silent\nignore_missing_imports = True\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--cache-dir",
        str(root / ".mypy_cache" / "u"),
    ]
    run = subprocess.run(
        [*command, str(program)], cwd=root, capture_output=True, text=True, timeout=500, env={"MYPYPATH": str(root)}
    )
    errors = [line.split(": ")[0].rsplit(":")[-1] for line in run.stdout.splitlines() if ": error: " in line]
    first_bad = PROGRAM[: PROGRAM.index("async def bad")].count("\n") + 2
    assert errors == [str(first_bad + i) for i in range(8)], run.stdout + run.stderr
