"""The matrix: the Pythons, Djangos and redis-pys that are supported, in pairs, on the interpreters this machine has.

`make matrix` runs all of it, `make oldest` and `make newest` (both part of CI) a short run at either end.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["tests"]

#: Django 6 needs Python 3.12.
PYTHONS = {"3.11": ["5.2"], **{key: ["5.2", "6.0", "6.1"] for key in ["3.12", "3.13", "3.14"]}}
REDIS_PY = ["6", "7", "8"]
#: Every Python with every Django and with every redis-py, and each of these two with the other: faults of three at once
#: are rare, and all 30 cells would take a night.
CELLS = [
    (python, django, redis_py)
    for i, (python, djangos) in enumerate(PYTHONS.items())
    for j, django in enumerate(djangos)
    for k, redis_py in enumerate(REDIS_PY)
    if len(djangos) == 1 or (i + j + k) % len(REDIS_PY) == 0
]
#: Fast and about behaviour; the browser and the killing of processes do not differ by version.  What measures time is
#: measured once, elsewhere.
CHOSEN = ["-m", "not timed", "tests/unit", "tests/contract", "tests/integration", "tests/docs/test_tutorial.py"]
#: What differs between servers, clients, croniter and Django.
OLDEST = [
    "-m",
    "not timed",
    "tests/unit/stores",
    "tests/unit/schedules",
    "tests/contract",
    "tests/integration/stores",
    "tests/integration/schedules/test_periodic.py",
    "tests/integration/project/test_tasks_backend.py",
    "tests/integration/worker/test_worker_outage.py",
    "tests/survival/servers/test_cluster_changes.py",
    "tests/survival/servers/test_failover.py",
    "tests/survival/servers/test_min_replicas.py",
    "tests/survival/servers/test_power_loss.py",
    "tests/survival/servers/test_sentinel.py",
]
#: Where versions of Django and redis-py differ first, and a sample of the contract.
SHORT = [
    "-m",
    "not timed",
    "tests/unit/stores",
    "tests/contract",
    "tests/integration/project/test_tasks_backend.py",
    "tests/integration/worker/test_worker_remote_types.py",
    "tests/integration/enqueue/test_on_commit.py",
    "tests/integration/console/pages/test_pages.py",
    "tests/integration/console/acting/test_actions.py",
    "tests/integration/console/pages/test_host_settings.py",
    "tests/docs/test_tutorial.py",
]


def add_pyenv() -> None:
    """Interpreters that pyenv keeps are found, too; before its shims, which are there for versions it has not."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [str(folder / "bin") for python in PYTHONS for folder in sorted(versions.glob(f"{python}.*"))]
    os.environ["PATH"] = os.pathsep.join([*folders, os.environ["PATH"]])


add_pyenv()
NEWEST = max((python for python in PYTHONS if shutil.which(f"python{python}")), key=list(PYTHONS).index, default=None)


def run(session: nox.Session, django: str, redis_py: str, *more: str, chosen: list[str] = CHOSEN, **env: str) -> None:
    """In a new environment with these variables; as many processes at a time as the Makefile says."""
    session.install("pip>=25.1")
    wanted = [f"django~={django}.0", f"redis[hiredis]~={redis_py}.0", *more]
    session.install("--group", "test", "-e", ".[api,metrics]", *wanted)
    if django == "5.2":
        session.install("django-tasks")
    workers = os.environ.get("WORKERS", "4")
    session.run("python", "-m", "pytest", "-q", "-n", workers, *(session.posargs or chosen), env=env)


@nox.session
@nox.parametrize("python,django,redis_py", CELLS)
def tests(session: nox.Session, django: str, redis_py: str) -> None:
    """One cell of the matrix, with a sample of the contract."""
    run(session, django, redis_py, CONTRACT="4", DOSE="quick")


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """What talks to a server, on the oldest of everything; each worker is a new interpreter."""
    run(session, "5.2", "6", "croniter~=6.0.0", "django-redis~=5.4.0", chosen=OLDEST, NEW_INTERPRETERS="1")


@nox.session(python=NEWEST)
def newest(session: nox.Session) -> None:
    """A short run on the newest Python of this machine, with the newest Django and redis-py."""
    if NEWEST is None or "6.1" not in PYTHONS[NEWEST]:
        session.skip(f"Django 6.1 needs Python 3.12; the newest here is {NEWEST}.")
    run(session, "6.1", "8", chosen=SHORT, CONTRACT="8")
