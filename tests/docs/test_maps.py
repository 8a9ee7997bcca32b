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
#: Files on the way of a job through a thread of a child: from the claim call until its end is stored.  The 26th counts
#: for the charts of a worker: worker/tally.py, which its parent reads.
MOST_FILES_OF_A_RUN = 26
#: The types of which one job has objects, from `enqueue()` until its end is stored.  A batch, and what the
#: worker keeps of it, count as types of its one job.
TYPES = {
    "NewJobRequest",  # what the caller asks for, before and after the enqueue middleware
    "NewJob",  # the job as the store takes it
    "Ready",  # request, job and handle, until the store has answered
    "JobHandle",  # what the caller gets
    "Claimed",  # the answer to a claim call
    "Claim",  # the right to run one job
    "Job",  # the record that was read
    "RunningJob",  # what middleware and `get_context()` see
    "Prepared",  # claim, job, context and function together
    "Attempted",  # the attempt that ended
    "Done",  # the end as the store takes it
    "_Ended",  # the call that ends jobs, for as long as its answer may be lost
}
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

#: A thread of a worker notes which files it runs from each claim call on, and of which types of the package it makes
#: objects.  It writes both once the jobs are settled.
RUN = """
import os, sys, threading
import django
from django.conf import settings

settings.configure(INSTALLED_APPS=["django_jobs"], DJANGO_JOBS={"STORE": sys.argv[1]}, USE_TZ=True)
django.setup()
import django_jobs
from django.core.management import call_command

root, seen, types = os.path.dirname(django_jobs.__file__) + os.sep, [], []

def follow(frame, event, arg):
    name, function = frame.f_code.co_filename, frame.f_code.co_name
    if not name.startswith(root) or not threading.current_thread().name.startswith("runner"):
        return
    file = name.removeprefix(root)
    if (event, function, file) == ("call", "claim", "stores/redis/running.py"):
        seen.clear()
        types.clear()
    if file not in seen:
        seen.append(file)
    if (event, function) == ("return", "settle_now"):
        os.write(1, (" ".join(seen) + "|" + " ".join(types) + "\\n").encode())

def note(frame, event, arg):
    follow(frame, event, arg)
    if event == "call" and threading.current_thread().name.startswith("runner"):
        made = made_by(frame)
        if made is not None and made.__module__.startswith("django_jobs") and made.__name__ not in types:
            types.append(made.__name__)

def made_by(frame):
    if frame.f_globals.get("__name__", "").startswith("namedtuple_"):
        return frame.f_locals.get("_cls")
    code = frame.f_code
    return type(frame.f_locals[code.co_varnames[0]]) if code.co_name == "__init__" else None

@django_jobs.job(name="followed")
def followed(more):
    if more:
        followed.enqueue(more - 1)

followed.enqueue(2)  # the first jobs of a thread make what is made once
threading.setprofile(note)
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


@pytest.mark.redis
def test_a_thread_runs_a_job_in_few_files():
    *_, files = [line.partition("|")[0] for line in run(RUN).splitlines()]
    assert {"worker/child/thread.py", "execution/executor.py", "stores/redis/settling.py"} <= set(files.split())
    assert len(files.split()) <= MOST_FILES_OF_A_RUN, files.split()


@pytest.mark.redis
def test_a_job_has_few_types():
    """Among the jobs that a thread runs is one that enqueues another, so both halves of the way are followed."""
    of_each = [set(line.partition("|")[2].split()) for line in run(RUN).splitlines()]
    assert TYPES in of_each, of_each
    assert set().union(*of_each[1:]) <= TYPES
