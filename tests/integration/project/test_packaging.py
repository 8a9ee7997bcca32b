"""What is installed is all there: scripts, templates, static files and translations go along with the modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PACKAGE = ROOT / "django_jobs"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made without asking a package index."""
    pytest.importorskip("hatchling", reason="builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*command, str(folder), str(ROOT)], check=True, capture_output=True, timeout=500)
    (made,) = folder.glob("*.whl")
    return made


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    wanted = {file for file in files if "__pycache__" not in file}
    assert {Path(file).suffix for file in wanted} >= {".py", ".lua", ".html", ".css", ".js", ".mo", ".typed", ".sql"}
    assert wanted <= names(wheel)


def test_nothing_but_the_package_is_in_the_wheel(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"django_jobs"}


def test_the_wheel_starts_from_elsewhere(wheel: Path, tmp_path: Path) -> None:
    code = (
        "import django_jobs\n"
        "from django.conf import settings\n"
        "settings.configure(DJANGO_JOBS={'STORE': 'memory'})\n"
        "import django_jobs.stores\n"
        "assert 'unpacked' in django_jobs.__file__\n"
        "from importlib.resources import files\n"
        "assert list(files('django_jobs.stores.redis').joinpath('lua').iterdir())\n"
    )
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=unpacked, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


def test_the_example_runs_a_job_on_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="the example's photos")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)

    def manage(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT / "example_project",
            env={**os.environ, "PYTHONPATH": str(unpacked), "SHOP_STATE": str(tmp_path), "SHOP_STORE": "embedded",
                 "DJANGO_SETTINGS_MODULE": "config.settings"},
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert manage("shell", "--no-imports", "-c", "import django_jobs; print(django_jobs.__file__)").startswith(
        str(unpacked)
    )
    assert "no issues" in manage("check")
    manage("migrate", "--verbosity", "0")
    id = json.loads(manage("jobs", "enqueue", "shop.jobs.remove_old_carts", "--json"))["id"]
    manage("runworkers", "--burst", "--processes", "1", "--verbosity", "0")
    # By its id: a schedule of the shop may have run meanwhile.
    assert json.loads(manage("jobs", "show", id, "--json"))["state"] == "succeeded"
