"""What measures time may fail by accident: in continuous integration it runs once more, alone, and is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

#: Fails as often as is said, in whatever processes.
TEST = """
import pytest
from pathlib import Path

{mark}
@pytest.mark.parametrize("number", range({number}))
def test_it(number):
    runs = Path(f"runs-{{number}}")
    run = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("x" * (run + 1))
    assert run >= {fails}
"""


@pytest.mark.parametrize(
    ("mark", "number", "fails", "runs", "status"),
    [
        ("@pytest.mark.timed", 2, 1, 2, 0),
        ("@pytest.mark.timed", 1, 2, 2, 1),
        ("@pytest.mark.timed", 3, 1, 1, 1),
        ("", 1, 1, 1, 1),
    ],
    ids=["it-passes", "it-fails-again", "three-fail", "it-measures-no-time"],
)
def test_a_failed_test_that_measures_time_runs_once_more(
    tmp_path: Path, mark: str, number: int, fails: int, runs: int, status: int
) -> None:
    (tmp_path / "test_it.py").write_text(TEST.format(mark=mark, number=number, fails=fails))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = timed\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.second_chance", "-p", "xdist", "-n", "1", "test_it.py"],
        cwd=tmp_path,
        env={key: text for key, text in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
        | {"CI": "true", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    assert {len(path.read_text()) for path in tmp_path.glob("runs-*")} == {runs}
    named = re.findall(r"test_it\[\d\]: failed after \d+\.\d s, then (passed|failed) alone", done.stdout)
    assert ("flaky:" in done.stdout) is (runs == 2)
    assert named == (["passed" if status == 0 else "failed"] * number if runs == 2 else [])
