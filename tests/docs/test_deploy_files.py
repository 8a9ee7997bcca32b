"""The files in deploy/ are valid, start commands that parse, and are those that the how-to page explains."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class

from tests.docs.pages import ROOT, blocks
from tests.support.backends.redis_process import free_port
from tests.support.backends.servers import running_redis
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until

yaml = pytest.importorskip("yaml")
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "howto" / "deploy.md"
#: Seconds that running jobs have to end: the default of SHUTDOWN_TIMEOUT.
SHUTDOWN = 25


def options_of(command: list[str]) -> Any:
    """Parse `[python, manage.py, NAME, …]`.  Raises CommandError if the command refuses it."""
    return load_command_class("django_jobs", command[2]).create_parser("manage.py", command[2]).parse_args(command[3:])


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """The services of the Compose file."""
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return loaded


def test_compose_starts_workers_that_may_finish_and_are_checked(services: dict[str, dict[str, Any]]) -> None:
    workers = services["workers"]
    assert options_of(workers["command"]).processes == 2
    assert int(workers["stop_grace_period"].removesuffix("s")) > SHUTDOWN
    assert workers["healthcheck"]["test"] == ["CMD", "python", "manage.py", "jobs", "health"]
    assert options_of(workers["healthcheck"]["test"][1:]).subcommand == "health"


def test_composes_redis_keeps_jobs_and_deletes_none(services: dict[str, dict[str, Any]]) -> None:
    command = " ".join(services["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert services["redis"]["volumes"]


class Example:
    """The example shop on a server with the options of the Compose file: without containers, in a folder of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.environment = {
            **os.environ, "DJANGO_SETTINGS_MODULE": "config.settings",
            "REDIS_URL": url, "SHOP_STORE": url, "SHOP_STATE": str(folder),
        }  # fmt: skip

    def run(self, command: list[str]) -> str:
        """Run `[python, manage.py, …]` and return its output."""
        done = subprocess.run(
            [sys.executable, *command[1:]],
            cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def example(services: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    with running_redis(*services["redis"]["command"][1:]) as url:
        made = Example(url, tmp_path_factory.mktemp("shop"))
        assert set(services["workers"]["environment"]) < set(made.environment)
        made.run(services["migrate"]["command"])
        yield made


@pytest.mark.redis
@pytest.mark.parametrize("file", ["compose", "kubernetes", "systemd"])
def test_the_commands_of_a_file_do_its_work(
    file: str, services: dict[str, dict[str, Any]], example: Example, tmp_path: Path
) -> None:
    """A job waits, workers start, are well, run it, and end in time.  Only programs and ports are others."""
    deployment, _ = yaml.safe_load_all((DEPLOY / "kubernetes" / "workers.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    unit = (DEPLOY / "systemd" / "shop-workers.service").read_text()
    of_unit = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    command, seconds = {
        "compose": (services["workers"]["command"], int(services["workers"]["stop_grace_period"].removesuffix("s"))),
        "kubernetes": (pod["containers"][0]["command"], pod["terminationGracePeriodSeconds"]),
        "systemd": (shlex.split(of_unit["ExecStart"]), int(of_unit["TimeoutStopSec"])),
    }[file]
    command = [f":{free_port()}" if word == ":8001" else word for word in command]
    told = example.run(["python", "manage.py", "jobs", "enqueue", "shop.jobs.remove_old_carts", "--json"])
    if file == "kubernetes":
        example.run(pod["initContainers"][0]["command"])
    log = tmp_path / "log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, *command[1:]],
            cwd=ROOT, env=example.environment, stdout=output, stderr=output, preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        line = re.compile(rf"{json.loads(told)['id']} on \w+: succeeded")
        wait_until(lambda: line.search(log.read_text()), "the worker ran the job")
        if file == "compose":
            example.run(services["workers"]["healthcheck"]["test"][1:])
        worker.terminate()
        assert worker.wait(timeout=seconds) == 0
    finally:
        worker.kill()
        worker.wait()


def test_compose_reads_the_file() -> None:
    if not shutil.which("docker"):
        pytest.skip("Docker is not on PATH.")
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=60, check=False)
    if asked.returncode:
        pytest.skip("This Docker has no Compose.")
    file = str(DEPLOY / "compose.yaml")
    done = subprocess.run(
        ["docker", "compose", "--file", file, "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_unit_and_its_drop_in_are_those_of_the_page() -> None:
    unit, watchdog = [block.code for block in blocks(PAGE, "ini")][:2]
    assert (DEPLOY / "systemd" / "shop-workers.service").read_text() == unit
    assert (DEPLOY / "systemd" / "watchdog.conf").read_text().endswith(watchdog)


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not on PATH.")
    text = (DEPLOY / "systemd" / "shop-workers.service").read_text()
    for line in (DEPLOY / "systemd" / "watchdog.conf").read_text().splitlines():
        if "=" in line:
            text = text.replace("[Service]\n", f"[Service]\n{line}\n")
    unit = tmp_path / "shop-workers.service"
    # The program and the user of the template are not on this machine.
    unit.write_text(
        text.replace("/srv/shop/.venv/bin/python", "/bin/sh").replace("/srv/shop", "/").replace("User=shop\n", "")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in done.stderr.splitlines() if "shop-workers" in line] == []


def test_the_manifest_is_that_of_the_page_with_a_disruption_budget() -> None:
    deployment, budget = yaml.safe_load_all((DEPLOY / "kubernetes" / "workers.yaml").read_text())
    (told,) = [
        document
        for block in blocks(PAGE, "yaml")
        for document in yaml.safe_load_all(block.code)
        if document["kind"] == "Deployment"
    ]
    assert deployment == told
    assert (budget["apiVersion"], budget["kind"]) == ("policy/v1", "PodDisruptionBudget")
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]


def test_the_image_starts_its_command_without_a_shell() -> None:
    (line,) = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("CMD")]
    command = yaml.safe_load(line.removeprefix("CMD "))
    assert options_of(command).processes == 2
