"""What is installed is all there: scripts, templates, static files and translations go along with the modules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from datetime import date
from pathlib import Path

import pytest

import django_jobs
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


def test_the_version_is_the_same_everywhere_and_its_changes_are_dated() -> None:
    """In the package, in its metadata and in the changelog, where an "Unreleased" may come first."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == django_jobs.__version__
    text = (ROOT / "CHANGELOG.md").read_text()
    newest = next(head for head in re.findall(r"^## (.*)$", text, re.MULTILINE) if head != "[Unreleased]")
    version, _, day = newest.partition(" - ")
    assert version == f"[{django_jobs.__version__}]"
    date.fromisoformat(day)
    # People who upgrade look for this; docs/howto/upgrade.md sends them there.
    assert "\n### Upgrading\n" in text.split(f"## {newest}")[1].split("\n## ")[0]


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    wanted = {file for file in files if "__pycache__" not in file}
    assert {Path(file).suffix for file in wanted} >= {".py", ".lua", ".html", ".css", ".js", ".mo", ".typed"}
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


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, made without asking a package index."""
    pytest.importorskip("build", reason="makes the source distribution")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=500)
    (made,) = folder.glob("*.tar.gz")
    return made


def test_a_package_index_can_show_what_is_uploaded(wheel: Path, sdist: Path) -> None:
    pytest.importorskip("twine", reason="checks what an index would show")
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_metadata_has_what_a_stranger_looks_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (place,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(place).decode()
    for wanted in (
        "Author:",
        "License-Expression: BSD-3-Clause",
        "License-File: LICENSE",
        "Classifier: Typing :: Typed",
    ):
        assert wanted in text, wanted
    for label in ("Documentation", "Source", "Changelog", "Issues", "Security"):
        assert f"Project-URL: {label}, https://" in text
    assert f"\nVersion: {django_jobs.__version__}\n" in text


def test_the_tests_of_the_source_distribution_pass_on_the_installed_wheel(
    wheel: Path, sdist: Path, tmp_path: Path
) -> None:
    """Outside the checkout, and without the package's own sources beside the tests."""
    with tarfile.open(sdist) as archive:
        # Python 3.11 has the filter from 3.11.4 on; later versions warn without one.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (source,) = tmp_path.iterdir()
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    (source / "django_jobs").rename(tmp_path / "away")
    # pytest puts the folder itself first on the path; the wheel comes from PYTHONPATH.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/adding/test_enqueue.py"],
        cwd=source, env={**os.environ, "PYTHONPATH": str(installed), "STORES": "redis"},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_the_workflow_files_of_a_forge_are_valid_and_run_the_scripts_of_the_project() -> None:
    yaml = pytest.importorskip("yaml")
    folder = ROOT / ".github" / "workflows"
    if not folder.exists():
        pytest.skip("A source distribution has no workflow files.")
    steps = {
        file.stem: [step for each in yaml.safe_load(file.read_text())["jobs"].values() for step in each["steps"]]
        for file in folder.glob("*.yml")
    }
    assert any(step.get("run") == "bash .ci/run" for step in steps["ci"])
    used = " ".join(step.get("uses", "") + " " + step.get("run", "") for step in steps["release"])
    for needed in (
        "twine check --strict",
        "cyclonedx",
        "attest-build-provenance",
        "attest-sbom",
        "gh-action-pypi-publish",
    ):
        assert needed in used, needed
