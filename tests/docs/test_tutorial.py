"""The tutorial, as a reader types it: every line is cut out of the page, and runs in an empty folder.

What a page says to do in a browser is done here by requests with the same addresses and forms."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.docs.pages import ROOT
from tests.support.backends.redis_process import free_port
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until

PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The packages are those of the tests; the folder is that of the test.
NOT_HERE = ("mkdir ", "cd ", "python -m venv", ". .venv", "pip install")
STAYS = ("python manage.py runserver", "python manage.py runworkers")
#: What the page promises in its first sentence, without the typing.
TEN_MINUTES = 600


class Step(NamedTuple):
    """One command, or one file; `expected` are the lines that the command prints."""

    command: str = ""
    expected: tuple[str, ...] = ()
    file: str = ""
    text: str = ""
    appended: bool = False


def steps() -> Iterator[Step]:
    """The steps of the page, in their order.  A block that is neither a command nor a file is an error of the page."""
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *printed = part.rstrip("\n").split("\n")
                yield Step(command, tuple(printed))
        else:
            named = re.match(r"# ([\w/]+\.py)(, at the end)?\n", text)
            assert named, f"A block of the tutorial names no file: {text[:60]!r}"
            yield Step(file=named[1], text=text, appended=bool(named[2]))


class Reader:
    """Somebody with a terminal for each program that stays, and a browser."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.running: list[subprocess.Popen[bytes]] = []
        self.browser = build_opener(HTTPCookieProcessor(CookieJar()))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        unset = {"DJANGO_SETTINGS_MODULE", "PYTEST_CURRENT_TEST"}
        self.environment = {key: value for key, value in os.environ.items() if key not in unset}
        self.environment |= {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def do(self, step: Step) -> None:
        """Follow one step; fail if a command fails or prints something else than the page shows."""
        if step.file:
            path = self.folder / step.file
            path.write_text((path.read_text() if step.appended else "") + step.text)
        elif step.command.startswith(STAYS):
            self.start(step.command)
        elif not step.command.startswith(NOT_HERE):
            self.type(step)

    def start(self, command: str) -> None:
        if "runserver" in command:
            command = command.replace("runserver", f"runserver 127.0.0.1:{self.port}")
        with (self.folder / f"terminal-{len(self.running)}.log").open("wb") as log:
            self.running.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=log, stderr=log,
                    preexec_fn=die_with_parent,
                )
            )  # fmt: skip
        if "runserver" in command:
            wait_until(self.answers, "the web server answers")

    def answers(self) -> bool:
        try:
            self.get("/admin/login/")
        except URLError:
            return False
        return True

    def type(self, step: Step) -> None:
        """Type a command until it prints what the page shows: a job needs a moment, and so does a reader."""
        command = step.command.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}").replace("curl ", "curl --silent ")
        only_looks = "jobs list" in command

        def printed() -> str | None:
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                timeout=300, check=False,
            )  # fmt: skip
            output = done.stdout + done.stderr
            assert done.returncode == 0, f"$ {command}\n{output}"
            return output if shown(step.expected, output) else None

        if only_looks:
            wait_until(printed, f"$ {command} prints {step.expected}")
        else:
            output = printed()
            assert output is not None, f"$ {command} does not print {step.expected}"

    # -- the browser -------------------------------------------------------------

    def get(self, path: str) -> str:
        with self.browser.open(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: str) -> str:
        """Send a form of the page at `path`, to where the page is."""
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.get(path))
        assert token, f"{path} has no form"
        data = urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        with self.browser.open(f"http://127.0.0.1:{self.port}{path}", data, timeout=60) as answer:
            return str(answer.read().decode())

    def retry_the_dead_job(self) -> None:
        """From the login to the button, as the section says."""
        self.post("/admin/login/", username="ada", password="tutorial", next="/admin/django_jobs/dashboard/")
        assert "dead" in self.get("/admin/django_jobs/dashboard/").lower()
        listed = self.get("/admin/django_jobs/dashboard/jobs/dead/")
        found = re.search(r'href="(/admin/django_jobs/dashboard/job/[^"]+/)"', listed)
        assert found, listed
        page = html.unescape(self.get(found[1]))
        assert "monday" in page
        assert "FileNotFoundError" in page
        assert 'value="retry"' in page
        self.post(found[1], verb="retry")
        wait_until(lambda: "2 prices" in html.unescape(self.get(found[1])), "the job has its result")

    def leave(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(timeout=60)


def shown(expected: tuple[str, ...], output: str) -> bool:
    """Are these lines there, in this order?  "…" stands for anything."""
    at = 0
    for line in expected:
        if line.strip("… "):
            found = re.search(".*".join(re.escape(part.strip()) for part in line.split("…")), output[at:])
            if not found:
                return False
            at += found.end()
    return True


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.leave()


def test_the_tutorial_leads_to_a_job_that_is_retried_in_the_admin(
    reader: Reader, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    retried = False
    for step in steps():
        if "jobs list succeeded" in step.command:
            reader.retry_the_dead_job()
            retried = True
        reader.do(step)
    took = time.monotonic() - began
    record_property("seconds", round(took, 1))
    print(f"The tutorial took {took:.1f} s, without the typing.")
    assert retried
    assert took < TEN_MINUTES
    assert [process.poll() for process in reader.running] == [None, None]


def test_every_block_of_the_tutorial_is_a_step() -> None:
    fences = re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE)
    assert fences == [language for language, _ in BLOCK.findall(PAGE.read_text())]
    assert len(list(steps())) > 15


def test_a_line_that_is_not_printed_is_noticed() -> None:
    assert shown(("… queued",), "01ab queued\n")
    assert shown(("…", "OK", "…"), "..\nOK\n")
    assert not shown(("… queued",), "01ab dead\n")
    assert not shown(("one", "two"), "two\none\n")
