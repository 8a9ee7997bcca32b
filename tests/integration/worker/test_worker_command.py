"""`manage.py runworkers` before it runs anything: what it says, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_jobs.exceptions import StoreError, StoreMisconfigured
from django_jobs.management.commands.runworkers import Command
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.worker.cpus import usable_cpus
from django_jobs.worker.parent.supervisor import Supervisor
from tests.support.pools import ROOT

#: What `startproject` leaves to its reader: DEBUG, and no LOGGING.
DEVELOPMENT = """
SECRET_KEY, DEBUG, USE_TZ = "development", {debug}, True
INSTALLED_APPS = ["django_jobs"]
DJANGO_JOBS = {{"STORE": "embedded:{path}", "PROCESSES": 1}}
"""


def refusing(error: StoreError) -> Store:
    """A store that answers nobody."""
    store = Store.from_setting("redis://localhost")
    store.describe = Mock(side_effect=error)  # type: ignore[method-assign]
    return store


def output_of(folder: Path, *options: str, debug: bool = True, **more: Any) -> str:
    """What a burst in a fresh project prints; its exit status is 0."""
    (folder / "development.py").write_text(DEVELOPMENT.format(debug=debug, path=folder / "store"))
    ended = subprocess.run(
        [sys.executable, "-m", "django", "runworkers", "--burst", *options],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "development", "PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
        **more,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def test_it_says_where_its_jobs_are_and_whose_settings_it_has(tmp_path: Path) -> None:
    said = output_of(tmp_path, "--name", "mail-1", debug=False)
    assert f"settings 'development', jobs at embedded:{tmp_path / 'store'}, namespace 'jobs'" in said
    assert "Worker mail-1: 1 process × 8 threads, queues default" in said


def test_without_a_number_it_starts_a_process_for_each_cpu_that_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DEVELOPMENT", DEVELOPMENT.replace(', "PROCESSES": 1', ""))
    one = {min(os.sched_getaffinity(0))}
    said = output_of(tmp_path, debug=False, preexec_fn=lambda: os.sched_setaffinity(0, one))
    assert ": 1 process × 8 threads" in said


@pytest.mark.parametrize(
    ("own", "files", "cpus"),
    [
        ("0::/shop/web", {"shop/web/cpu.max": "max 100000", "shop/cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "20000 100000"}, 1),
        ("0::/not/here", {"cpu.max": "300000 100000"}, 3),
        ("2:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "100000"}, 3),
        ("2:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "1600000 100000"}, 8),
        ("0::/", {"cpu.max": "?"}, 8),
        ("", {}, 8),
    ],
)
def test_a_quota_counts_rounded_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, text in {"own": own, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_cpus(tmp_path, tmp_path / "own") == cpus


def test_in_development_its_log_is_on_the_console_as_the_log_of_runserver(tmp_path: Path) -> None:
    assert "] Worker mail-1 starts" in output_of(tmp_path, "--name", "mail-1")


@pytest.mark.parametrize("options", [{"debug": False}, {"options": ["--verbosity", "0"]}], ids=["deployed", "quiet"])
def test_elsewhere_the_log_is_what_logging_says(tmp_path: Path, options: dict[str, Any]) -> None:
    assert "starts" not in output_of(tmp_path, *options.pop("options", ()), **options)


@pytest.mark.parametrize("settings", ["redis://localhost", {"QUEUES": ["mail"]}], ids=str)
def test_settings_that_cannot_be_read_are_left_to_the_checks(settings: Any) -> None:
    with override_settings(DJANGO_JOBS=settings):
        Command().create_parser("manage.py", "runworkers").parse_args(["--queues", "mail"])


def test_jobs_in_memory_are_refused_since_no_worker_could_see_them() -> None:
    with pytest.raises(CommandError, match="'memory': a worker cannot see the jobs"):
        call_command("runworkers", verbosity=0)


@pytest.mark.parametrize("error", [StoreMisconfigured("wrong password"), StoreError("DB index is out of range")])
def test_a_store_that_will_never_let_it_in_ends_it_at_once(error: StoreError) -> None:
    with override_settings(DJANGO_JOBS={"STORE": "redis://localhost"}):
        use_store(refusing(error))
        with pytest.raises(CommandError, match=str(error)):
            call_command("runworkers", verbosity=0)


def test_what_all_its_processes_need_is_prepared_before_the_first_of_them(
    redis_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(redis_store, "prepare", lambda: order.append("prepared"))
    monkeypatch.setattr(Supervisor, "run", lambda supervisor: order.append("ran") or 0)
    with override_settings(DJANGO_JOBS={"STORE": "redis://localhost"}):
        use_store(redis_store)
        call_command("runworkers", verbosity=0)
    assert order == ["prepared", "ran"]
