"""`manage.py` at the top of the repository runs the example shop, with nothing installed but the package itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.integration.project.test_example_project import assert_it_went_well, play

#: What `pip install -e .` does not bring: requirements of the API and of the demo.
OPTIONAL = ("ninja", "PIL", "aiosmtpd", "prometheus_client")
#: Python imports it first of all.
ABSENT = f"""
import importlib.util, sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if sys.modules.get(name, 0) is None else found(name, package)
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment in which the optional packages cannot be found."""
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    left = {name: value for name, value in os.environ.items() if not name.startswith(("SHOP_", "DJANGO_", "REDIS_URL"))}
    return {**left, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "SHOP_STATE": str(tmp_path / "state")}


def manage(environment: dict[str, str], *arguments: str) -> str:
    """Run it from the top; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_commands_run_at_the_top(bare: dict[str, str]) -> None:
    assert "no issues" in manage(bare, "check")
    manage(bare, "migrate", "--verbosity=0")
    assert "payments" in manage(bare, "jobs", "stats")
    manage(bare, "jobs", "enqueue", "shop.jobs.build_search_index")
    manage(bare, "runworkers", "--burst", "--processes", "1", "--no-periodic")
    assert "succeeded" in manage(bare, "jobs", "list", "succeeded")


def test_a_command_whose_output_is_closed_does_what_it_is_told(bare: dict[str, str]) -> None:
    manage(bare, "migrate", "--verbosity=0")
    for words in ("jobs pause payments >&-", "jobs list dead >&- 2>&-", "runworkers --burst --processes 1 >&-"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" manage.py {words}', sys.executable],
            cwd=ROOT, env=bare, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "payments" in manage(bare, "jobs", "paused")


def test_the_web_server_would_start_at_the_top(bare: dict[str, str]) -> None:
    assert "--noreload" in manage(bare, "runserver", "--help")
    code = "from django.test import Client; print(Client().get('/orders/').status_code)"
    manage(bare, "migrate", "--verbosity=0")
    assert manage(bare, "shell", "--verbosity=0", "-c", code).splitlines()[-1] == "200"


def test_test_runs_the_tests_of_the_shop_and_no_others(bare: dict[str, str]) -> None:
    said = manage(bare, "test")
    assert "Found 6 test(s)." in said
    assert "OK" in said


@pytest.mark.redis
def test_the_shop_keeps_its_jobs_in_the_redis_of_a_django_redis_cache(
    tmp_path: Path, redis_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server)
    done = play(tmp_path, "cache:default")
    assert_it_went_well(done, tmp_path)
    assert "workers on cache:default" in done.stdout
