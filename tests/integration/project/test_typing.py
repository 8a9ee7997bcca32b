"""A user's project under type checkers: options, arguments and results have types."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from django_jobs import job
from django_jobs.core.options.declared import KNOWN
from tests.support.backends.missing import missing
from tools import options

ROOT = Path(__file__).resolve().parents[3]
PROJECT = ROOT / "tests" / "integration" / "typed_project"
WRONG = {number for number, line in enumerate((PROJECT / "bad.py").read_text().splitlines(), 1) if "# wrong" in line}


def test_the_keywords_and_the_page_are_those_of_the_declaration() -> None:
    assert options.KEYWORDS.read_text() == options.keywords(), "run `make docs`"
    assert options.PAGE.read_text() == options.page(options.PAGE.read_text()), "run `make docs`"


def test_help_lists_every_option() -> None:
    told = inspect.getdoc(job) or ""
    assert [name for name in KNOWN if f"`{name}`" not in told] == []


def test_mypy_finds_each_mistake_and_no_other(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        missing("mypy is not installed: pip install --group types.")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-django_jobs.*]\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(tmp_path / "cache")]
    # As in the project of a user: without the plugin for Django, and without the sources of the package under check.
    done = subprocess.run(
        [*command, *map(str, sorted(PROJECT.glob("*.py")))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    found = re.findall(r"(\w+)\.py:(\d+): error", done.stdout)
    assert {(file, int(line)) for file, line in found} == {("bad", number) for number in WRONG}, done.stdout


def test_pyright_finds_each_mistake_and_no_other(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyright") is None:
        missing("pyright is not installed: pip install --group types.")
    shutil.copytree(PROJECT, tmp_path / "typed")
    config = tmp_path / "pyrightconfig.json"
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    config.write_text(json.dumps({"include": ["typed"], **settings}))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--project", str(config), "--pythonpath", sys.executable],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    if not done.stdout.lstrip().startswith("{"):
        pytest.skip(f"pyright cannot run here: {(done.stderr or done.stdout)[-300:]}")
    found = {
        (Path(each["file"]).stem, each["range"]["start"]["line"] + 1)
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    }
    assert found == {("bad", number) for number in WRONG}, done.stdout
