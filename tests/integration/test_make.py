"""The Makefile and the tool that finds a Redis for the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tools import redis_server

TARGETS = ["demo", "test", "check", "lint", "types", "docs", "bench", "survival", "matrix", "newest", "dist"]


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
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(redis_server, "debian", lambda: False)
        monkeypatch.setattr(redis_server, "fetch", lambda program: None)

    def program(self, folder: Path, name: str = "redis-server") -> None:
        folder.mkdir(exist_ok=True)
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
        self.program(tmp_path / "cache")
        assert redis_server.main(tmp_path / "cache") == 0
        assert capsys.readouterr().out.strip() == str(tmp_path / "cache")

    def test_without_any_it_says_what_to_install_and_fails(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert redis_server.main(tmp_path / "cache") == 1
        said = capsys.readouterr().err
        assert "apt-get install redis-server" in said
        assert "REDIS_URL=" in said
