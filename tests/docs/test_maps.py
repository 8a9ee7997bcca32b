"""The maps in the documents name the files that a job passes: here one job is followed through enqueue and a worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.backends.servers import running_redis

PACKAGE = ROOT / "django_jobs"
PAGE = "docs/contributing/internals.md"
#: Files on the way of a plain enqueue.  Who adds one finds out here.  The ninth is stores/__init__.py: the store in use
#: is asked for at each call, because a test run has one for each test.  The tenth is connection/thread_connection.py,
#: which sends and reads without redis-py's layers.
MOST_FILES_OF_ENQUEUE = 11
MAP = re.compile(r"^```\n(enqueue .*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"[a-z_/]+\.(?:py|lua)")
#: Enqueues a job and has a worker run it.  Each process notes which files of the package it runs, in their order; the
#: worker's children are forked from this process, and so note theirs, too.
FOLLOW = """
import os, sys, threading
import django
from django.conf import settings

settings.configure(INSTALLED_APPS=["django_jobs"], DJANGO_JOBS={"STORE": sys.argv[1]}, USE_TZ=True)
django.setup()
import django_jobs
from django.core.management import call_command

root, seen = os.path.dirname(django_jobs.__file__) + os.sep, set()

def follow(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root) and (os.getpid(), name) not in seen:
        seen.add((os.getpid(), name))
        os.write(1, (name.removeprefix(root) + "\\n").encode())

@django_jobs.job(name="followed")
def followed():
    pass

@django_jobs.job(name="fails", max_attempts=1)
def fails():
    raise ValueError

followed.enqueue()  # what is made once per process is made
sys.setprofile(follow)
followed.enqueue()
sys.setprofile(None)
os.write(1, b"---\\n")
seen.clear()
if sys.argv[2] == "fails":
    fails.enqueue()
threading.setprofile(follow)
sys.setprofile(follow)
call_command("runworkers", burst=True, processes=1, threads=1, verbosity=0)
"""


def rows(page: str) -> dict[str, list[str]]:
    """First word of a row → the files in it, and in the rows below that begin with no word."""
    found: dict[str, list[str]] = {}
    word = ""
    drawn = MAP.search((ROOT / page).read_text())
    assert drawn, f"{page} has no map"
    for line in drawn[1].splitlines():
        word = line.split(" ")[0] or word
        found.setdefault(word, []).extend(FILE.findall(line))
    return found


def run(script: str, *arguments: str) -> str:
    """What the script prints; its first argument is the address of a server."""
    with running_redis() as url:
        return subprocess.run(
            [sys.executable, "-c", script, url, *arguments], env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip


def follow(which: str) -> tuple[list[str], set[str]]:
    """The files that `enqueue()` runs, in their order, and those that a worker runs."""
    enqueued, _, ran = run(FOLLOW, which).partition("---\n")
    return enqueued.splitlines(), set(ran.splitlines())


def test_every_file_of_the_map_exists():
    scripts = {path.name for path in (PACKAGE / "stores/redis/lua").rglob("*.lua")}
    for word, files in rows(PAGE).items():
        assert files, word
        assert [file for file in files if not (PACKAGE / file).exists() and Path(file).name not in scripts] == []


@pytest.mark.redis
@pytest.mark.parametrize(("which", "row"), [("succeeds", "run"), ("fails", "fail")])
def test_a_job_passes_the_files_of_the_map(which, row):
    enqueued, ran = follow(which)
    drawn = [file for file in rows(PAGE)["enqueue"] if file.endswith(".py")]
    assert [file for file in enqueued if file in drawn] == drawn
    assert len(enqueued) <= MOST_FILES_OF_ENQUEUE, enqueued
    assert {file for file in rows(PAGE)[row] if file.endswith(".py")} - ran == set()
