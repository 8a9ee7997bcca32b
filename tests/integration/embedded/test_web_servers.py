"""Web servers whose processes share an embedded store: one that loads the site and then forks, and one that starts anew
when a file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.integration.embedded.conftest import ROOT
from tests.support.backends.embedded import servers, wait_until_it_ends
from tests.support.backends.redis_process import free_port
from tests.support.backends.servers import server_program
from tests.support.processes import die_with_parent, send_signal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

#: A site whose import uses the store.  `/add/ID` adds a job and `/has/ID` looks for one; the answer begins with the
#: process that gave it.
SITE = """
import os

from django.conf import settings
from django.http import HttpResponse
from django.urls import path

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="-", DEBUG=True)

from tests.integration.embedded import user

store = user.make("embedded:{place}")
user.add(store, f"import-{{os.getpid()}}")


def act(request, word, id):
    return HttpResponse(f"{{os.getpid()}} {{user.answer(store, word, id)}}")


urlpatterns = [path("<word>/<id>", act)]

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line()
"""


def end(process: subprocess.Popen[bytes]) -> None:
    """With the processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


class Web:
    """A web server that serves the site."""

    def __init__(self, folder: Path, place: Path, stack: ExitStack) -> None:
        self.file, self.port, self._stack = folder / "web_site.py", free_port(), stack
        self.file.write_text(SITE.format(place=place))

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{self.file.parent}", "PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=self.file.parent, preexec_fn=die_with_parent,
            start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self._stack.callback(end, process)
        return process

    def ask(self, word: str, id: str) -> tuple[int, str]:
        """(process, answer)"""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{word}/{id}", timeout=30) as answer:
            pid, _, text = answer.read().decode().partition(" ")
            return int(pid), text

    def answers(self, word: str = "has", id: str = "nothing") -> tuple[int, str] | None:
        with suppress(OSError):
            return self.ask(word, id)
        return None


@pytest.fixture
def web(tmp_path: Path, place: Path) -> Iterator[Web]:
    server_program()
    with ExitStack() as stack:
        yield Web(tmp_path, place, stack)


def test_gunicorn_that_loads_the_site_before_it_forks(web: Web, place: Path) -> None:
    gunicorn = web.start("-m", "gunicorn", "--preload", "-w2", "-b", f"127.0.0.1:{web.port}", "web_site")
    wait_until(web.answers, "it answers")
    assert web.ask("has", f"import-{gunicorn.pid}")[1] == "True"
    (server,) = servers(place)
    served: set[int] = set()

    def by_both() -> bool:
        served.add(web.ask("add", f"job-{len(served)}")[0])
        return len(served) == 2

    wait_until(by_both, "both processes have served")
    for pid in served:
        send_signal(pid, signal.SIGKILL)
    wait_until(lambda: (found := web.answers("has", "job-1")) is not None and found[0] not in served, "another serves")
    assert web.ask("has", "job-0")[1] == "True"
    assert servers(place) == [server]
    send_signal(server, signal.SIGKILL)
    wait_until(lambda: web.answers("add", "after"), "another server was started")
    assert web.ask("has", "job-0")[1] == web.ask("has", "after")[1] == "True"
    gunicorn.terminate()
    assert gunicorn.wait(60) == 0
    wait_until_it_ends(place)


def test_runserver_that_starts_anew_when_a_file_changes(web: Web, place: Path) -> None:
    run = web.start("web_site.py", "runserver", f"127.0.0.1:{web.port}")
    found = wait_until(web.answers, "it answers")
    web.ask("add", "before")
    (server,) = servers(place)

    def another_answers() -> bool:
        now = web.answers()
        if now == found:  # once more: a change before its first look at the files is none
            web.file.write_text(f"{web.file.read_text()}\n# changed\n")
        return now is not None and now[0] != found[0]

    wait_until(another_answers, "another process answers", every=2)
    assert web.ask("has", "before")[1] == "True"
    assert servers(place) == [server]
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    run.wait(60)
    wait_until_it_ends(place)
