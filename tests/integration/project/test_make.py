"""The Makefile and the tool that finds a Redis for the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    "matrix",
    "oldest",
    "newest",
    "dist",
]


@pytest.mark.accepts("K25")
@pytest.mark.parametrize("target", TARGETS)
def test_one_command_each(target: str) -> None:
    if (make := shutil.which("make")) is None:
        pytest.skip("No make on PATH.")
    done = subprocess.run([make, "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_make_alone_says_what_there_is() -> None:
    if (make := shutil.which("make")) is None:
        pytest.skip("No make on PATH.")
    done = subprocess.run([make], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert {target for target in TARGETS if target in done.stdout} == set(TARGETS)


class TestFindingRedis:
    """In the order: a URL, a program on PATH, the program of the wheel, Debian's package, words."""

    @pytest.fixture(autouse=True)
    def nothing_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("REDIS_URL", raising=False)
        monkeypatch.delenv("SERVER", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(redis_server, "debian", lambda: False)
        monkeypatch.setattr(redis_server, "fetch", lambda program, wheel: None)

    def program(self, folder: Path, name: str = "redis-server") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!{sys.executable}\n")
        (folder / name).chmod(0o755)

    def test_a_url_is_taken_as_it_is(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
        assert redis_server.main(tmp_path / "cache") == 0

    @pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
    def test_a_program_on_path_is_enough(self, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.program(tmp_path, name)
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out == ""

    @pytest.mark.skipif(sys.platform != "linux", reason="the wheel has a program for Linux on x86-64 only")
    def test_the_program_of_the_wheel_is_put_before_path(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        folder = tmp_path / "cache" / redis_server.WHEELS["oldest"].requirement
        self.program(folder)
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out.strip() == str(folder)

    @pytest.mark.skipif(sys.platform != "linux", reason="the wheels have programs for Linux on x86-64 only")
    @pytest.mark.parametrize("which", ["oldest", "newest"])
    def test_the_server_that_is_asked_for_is_taken_whatever_there_is(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, which: str
    ) -> None:
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setenv("SERVER", which)
        monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
        self.program(tmp_path)
        wheel = redis_server.WHEELS[which]
        assert redis_server.main(tmp_path / "cache") == 1
        assert wheel.requirement in capsys.readouterr().err
        self.program(tmp_path / "cache" / wheel.requirement, wheel.name)
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
        self.program(tmp_path / "a", first)
        self.program(tmp_path / "b", second)
        monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
        assert redis_server.program_on_path() == str(tmp_path / "a" / first)

    def test_without_any_it_says_what_to_install_and_fails(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert redis_server.main(tmp_path / "cache") == 1
        said = capsys.readouterr().err
        assert "apt-get install redis-server" in said
        assert "REDIS_URL=" in said
