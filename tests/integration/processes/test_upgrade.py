"""An upgrade and the way back: processes of an earlier version and of this one share a store, under load."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_jobs
from tests.support.backends.servers import running_redis
from tests.support.processes import catches, die_with_parent
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
PROJECT = ROOT / "tests" / "integration" / "upgrade_project"
#: The version before this one (0.1.0, which has no tag): at each release, name the tag of the release before it.
EARLIER = "690dffa953978eb52c8d0f378bfb43e123d38d9c"
#: The last state of the code that kept the index of failed jobs in other keys.
OTHER_INDEX = "3958cf126d6b6684e555b26dc4645ffc0356d906"
#: Jobs of each kind in each portion; five portions are enqueued.
PORTION = 8


def package_of(commit: str, folder: Path) -> Path:
    """Return the folder, with the package as it was."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("Needs a checkout with its history.")
    packed = subprocess.run(["git", "archive", commit, "django_jobs"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"This checkout has no {commit}.")
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=packed.stdout, check=True)
    return folder


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the earlier version, and nothing else."""
    folder = package_of(EARLIER, tmp_path_factory.mktemp("earlier"))
    # A comparison of a version with itself would show nothing.
    assert f'__version__ = "{django_jobs.__version__}"' not in (folder / "django_jobs" / "__init__.py").read_text()
    return folder


class Fleet:
    """Processes of both versions on one store."""

    def __init__(self, store: str, database: Path) -> None:
        self.store, self.database = store, database
        self.workers: list[subprocess.Popen[bytes]] = []
        self.ids: list[str] = []

    def environment(self, version: Path) -> dict[str, str]:
        return {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(version), str(PROJECT.parent)]),
            "DJANGO_SETTINGS_MODULE": "upgrade_project.settings", "UPGRADE_STORE": self.store,
            "UPGRADE_DATABASE": str(self.database), "PYTHONWARNINGS": "",
        }  # fmt: skip

    def run(self, version: Path, *words: str, text: str = "") -> list[str]:
        done = subprocess.run(
            [sys.executable, *words], cwd=self.database.parent, env=self.environment(version), input=text,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def fail(self, version: Path, *words: str) -> str:
        """Run a command that is to fail, and return what it says."""
        done = subprocess.run(
            [sys.executable, *words], cwd=self.database.parent, env=self.environment(version),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode != 0, done.stdout
        return done.stderr

    def enqueue(self, version: Path) -> None:
        """A web process of that version enqueues a portion."""
        self.ids += self.run(version, str(PROJECT / "fill.py"), str(len(self.ids)), str(PORTION))

    def start(self, version: Path) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "django",
            "runworkers",
            "--processes",
            "1",
            "--threads",
            "2",
            "--verbosity",
            "0",
        ]
        worker = subprocess.Popen(
            command, cwd=self.database.parent, env=self.environment(version), preexec_fn=die_with_parent
        )
        self.workers.append(worker)
        return worker

    def states(self, version: Path) -> dict[str, tuple[str, int]]:
        """id → state, and how many attempts ended otherwise than by the failure that the job itself makes."""
        lines = self.run(version, str(PROJECT / "look.py"), text="\n".join(self.ids))
        return {id: (state, int(lost)) for id, state, lost in (line.split() for line in lines)}

    def all_ran(self, version: Path) -> bool:
        found = self.states(version)
        return set(found.values()) == {("succeeded", 0)} and len(found) == len(set(self.ids))

    def stop(self, worker: subprocess.Popen[bytes]) -> None:
        wait_until(lambda: catches(worker.pid, signal.SIGTERM), "it listens to signals")
        worker.terminate()
        assert worker.wait(timeout=60) == 0

    def leave(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
                worker.wait(timeout=60)


@pytest.fixture
def on_redis(tmp_path: Path) -> Iterator[Fleet]:
    with running_redis() as url:
        made = Fleet(url, tmp_path / "database.sqlite3")
        yield made
        made.leave()


@pytest.fixture
def on_a_file(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(f"embedded:{tmp_path / 'jobs.sqlite3'}", tmp_path / "database.sqlite3")
    yield made
    made.leave()


@pytest.mark.redis
def test_workers_and_web_are_upgraded_one_by_one_and_go_back(on_redis: Fleet, earlier: Path) -> None:
    fleet = on_redis
    fleet.run(ROOT, "-m", "django", "migrate", "--verbosity", "0")
    fleet.enqueue(earlier)
    old = fleet.start(earlier)
    new = fleet.start(ROOT)
    fleet.enqueue(ROOT)
    fleet.enqueue(earlier)
    fleet.stop(old)
    wait_until(lambda: fleet.all_ran(ROOT), "the new worker ran what was left")
    # The way back: the new web process enqueues once more, and only workers of the earlier version are left.
    fleet.enqueue(ROOT)
    again = fleet.start(earlier)
    fleet.stop(new)
    fleet.enqueue(earlier)
    wait_until(lambda: fleet.all_ran(earlier), "the earlier version ran what the new one had stored")
    assert again.poll() is None


@pytest.mark.redis
def test_failed_jobs_are_shown_once_by_both_versions_of_the_index(on_redis: Fleet, tmp_path: Path) -> None:
    """Workers of both let jobs die and people move them, and each version catches up with what the other has done."""
    fleet = on_redis
    (tmp_path / "other").mkdir()
    other = package_of(OTHER_INDEX, tmp_path / "other")
    failed = str(PROJECT / "failed.py")

    def all_are_shown(dead: set[str]) -> None:
        for version in (ROOT, other):
            found = json.loads(fleet.run(version, failed, "show")[-1])
            assert sorted(found.pop("tag all")[0]) == sorted(dead)
            # The earlier version tells errors apart by their message, ours by the line that raised them.
            assert all(error.startswith("ValueError: ") for error in found)
            assert sorted(id for ids, _ in found.values() for id in ids) == sorted(dead)
            assert all(len(ids) == number for ids, number in found.values())

    def die(version: Path) -> set[str]:
        ids = set(fleet.run(version, failed, "enqueue", "10"))
        fleet.ids = [f"default {id}" for id in ids]
        wait_until(lambda: {state for state, _ in fleet.states(version).values()} == {"dead"}, "they are dead")
        return ids

    fleet.run(ROOT, "-m", "django", "migrate", "--verbosity", "0")
    old = fleet.start(other)
    dead = die(other)
    new = fleet.start(ROOT)
    dead |= die(ROOT)
    fleet.stop(old)
    dead |= die(other)
    for version in (other, ROOT):
        gone, again, *_ = sorted(dead)
        fleet.run(version, failed, "delete", gone)
        fleet.run(version, failed, "revive", again)
        dead -= {gone}
    fleet.ids = [f"default {id}" for id in dead]
    wait_until(lambda: {state for state, _ in fleet.states(ROOT).values()} == {"dead"}, "they are dead again")
    all_are_shown(dead)
    # The way back.
    fleet.start(other)
    fleet.stop(new)
    dead |= die(ROOT)
    all_are_shown(dead)


def test_a_file_of_the_earlier_version_is_refused_and_its_jobs_stay(on_a_file: Fleet, earlier: Path) -> None:
    fleet = on_a_file
    fleet.run(ROOT, "-m", "django", "migrate", "--verbosity", "0")
    fleet.enqueue(earlier)
    error = fleet.fail(ROOT, str(PROJECT / "fill.py"), "900", "1")
    assert "holds the jobs of an older release" in error
    assert "runworkers --burst" in error
    fleet.start(earlier)
    wait_until(lambda: fleet.all_ran(earlier), "the earlier version runs its jobs")
