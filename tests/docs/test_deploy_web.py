"""The web server of the deploy page answers while clients attack it, and the proxy before it understands its file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import pytest

from tests.docs.pages import ROOT, blocks
from tests.support.backends.missing import missing, need
from tests.support.backends.redis_process import free_port
from tests.support.backends.servers import running_redis
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until

DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "howto" / "deploy.md"
#: Attackers at a time: more than the server has threads.
MANY = 50
HEAD = "{method} /jobs/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{more}\r\n{body}"


class Front:
    """A server that answers at a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def is_well(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/jobs/healthz"
        with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    def send(self, stack: ExitStack, method: str, path: str, *headers: str, body: str = "") -> socket.socket:
        """Begin a request whose end never comes."""
        one = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=60))
        more = "".join(f"{header}\r\n" for header in headers)
        one.sendall(HEAD.format(method=method, path=path, more=more, body=body).encode())
        return one


class Web(Front):
    """The API behind gunicorn with the file of the page, but with one process, to be sure that it has started."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(free_port())
        environment = {
            **os.environ, "DJANGO_SETTINGS_MODULE": "tests.survival.project.pulled", "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "API_DATABASE": str(folder / "site.sqlite3"), "API_STORE": url,
        }  # fmt: skip
        django = [sys.executable, "-m", "django"]
        subprocess.run([*django, "migrate", "--verbosity=0"], env=environment, cwd=ROOT, check=True, timeout=240)
        made = subprocess.run(
            [*django, "jobs", "token", "create", "shop", "--scope=enqueue"],
            env=environment, cwd=ROOT, check=True, timeout=120, capture_output=True, text=True,
        )  # fmt: skip
        self.secret = made.stdout.split()[0]
        command = [sys.executable, "-m", "gunicorn", "-c", str(DEPLOY / "gunicorn.conf.py"), "-w1"]
        self.process = subprocess.Popen(
            [*command, "-b", f"127.0.0.1:{self.port}", "tests.survival.project.wsgi"],
            env=environment, cwd=folder, preexec_fn=die_with_parent,
        )  # fmt: skip
        wait_until(self.is_well, "the web server answers", seconds=60)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    if find_spec("gunicorn") is None:
        missing("gunicorn is not installed.")
    with running_redis() as url:
        web = Web(url, tmp_path_factory.mktemp("web"))
        yield web
        web.process.terminate()
        web.process.wait(60)


LONG, CHUNKED = "Content-Length: 200000", "Transfer-Encoding: chunked"


@pytest.mark.redis
@pytest.mark.timed
@pytest.mark.parametrize("length", [LONG, CHUNKED])
@pytest.mark.parametrize("token", ["", "Authorization: Bearer djt_wrong"])
@pytest.mark.parametrize("path", ["v1/jobs/x/1", "v1/reports", "nothing", "healthz"])
def test_strangers_with_slow_bodies_are_answered_and_keep_nobody_waiting(
    web: Web, path: str, token: str, length: str
) -> None:
    with ExitStack() as stack:
        began = monotonic()
        strangers = [web.send(stack, "PUT", path, length, *filter(None, [token]), body='2\r\n{"') for _ in range(MANY)]
        assert web.is_well()
        assert monotonic() - began < 1
        for stranger in strangers:
            assert stranger.recv(12)[9:12] in {b"401", b"404", b"405"}
        assert monotonic() - began < 2


@pytest.mark.redis
@pytest.mark.timed
def test_a_body_that_is_too_long_is_refused_before_it_has_come(web: Web) -> None:
    with ExitStack() as stack:
        began = monotonic()
        token = f"Authorization: Bearer {web.secret}"
        some = [web.send(stack, "PUT", "v1/jobs/x/1", token, "Content-Length: 262145") for _ in range(MANY)]
        some.append(web.send(stack, "PUT", "v1/jobs/x/1", token, CHUNKED, body=f"{300_000:x}\r\n" + " " * 300_000))
        assert [one.recv(12)[9:12] for one in some] == [b"413"] * (MANY + 1)
        assert monotonic() - began < 2


def test_the_files_are_those_of_the_page() -> None:
    code = {block.code for language in ("python", "nginx") for block in blocks(PAGE, language)}
    for name in ("gunicorn.conf.py", "nginx.conf"):
        assert (DEPLOY / name).read_text() in code


def configured(folder: Path, *replaced: tuple[str, str]) -> list[str]:
    """Return the options for nginx with the file of the page, without TLS, all else in this folder."""
    text = (DEPLOY / "nginx.conf").read_text().replace(" ssl;", ";")
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    plain = "".join(line for line in text.splitlines(keepends=True) if "ssl_certificate" not in line)
    logs = f"pid {folder}/pid;\nerror_log {folder}/log;\n"
    (folder / "nginx.conf").write_text(f"{logs}events {{}}\nhttp {{\naccess_log off;\n{plain}}}\n")
    return ["-p", str(folder), "-c", str(folder / "nginx.conf")]


def test_nginx_understands_its_file(tmp_path: Path) -> None:
    need("nginx")
    done = subprocess.run(
        ["nginx", "-t", *configured(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.redis
@pytest.mark.timed
def test_nginx_keeps_slow_clients_from_the_web_server_also_those_with_a_token(web: Web, tmp_path: Path) -> None:
    need("nginx")
    port = free_port()
    options = configured(tmp_path, ("listen 443;", f"listen {port};"), ("127.0.0.1:8000", f"127.0.0.1:{web.port}"))
    with (
        subprocess.Popen(["nginx", "-g", "daemon off;", *options], preexec_fn=die_with_parent) as process,
        ExitStack() as some,
    ):
        some.callback(process.terminate)
        front = Front(port)
        wait_until(front.is_well, "nginx answers", seconds=30)
        for _ in range(MANY):
            silent = some.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            silent.sendall(b"PUT /jobs/v1/jobs/x/1 HTTP/1.1\r\nHost:")
            front.send(some, "PUT", "v1/jobs/x/1", f"Authorization: Bearer {web.secret}", LONG, body='{"')
        began = monotonic()
        assert front.is_well()
        assert web.is_well()
        assert monotonic() - began < 1
        too_long = front.send(
            some, "PUT", "v1/jobs/x/1", f"Authorization: Bearer {web.secret}", "Content-Length: 262145"
        )
        assert too_long.recv(12)[9:12] == b"413"
        assert monotonic() - began < 2
