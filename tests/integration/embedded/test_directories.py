"""The directory of an embedded store, and what is done to it; the server programs, and what they cannot do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.embedded.conftest import User
from tests.support.backends.embedded import running, servers, shells, wait_until_it_ends
from tests.support.backends.missing import missing, need
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

UserMaker = Callable[..., User]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
NOBODY = 65534


@pytest.fixture
def namespaces() -> list[str]:
    """Runs a command in a mount namespace of its own; add `-p -f` for one of processes."""
    need("unshare", "mount")
    if subprocess.run(["unshare", "-m", "-p", "-f", "true"], capture_output=True).returncode != 0:
        missing("Mount and process namespaces need root.")
    return ["unshare", "-m"]


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that another user can reach: each pytest that starts closes the folder of all runs to others."""
    if os.geteuid() != 0:
        missing("Needs root, to become another user.")
    with tempfile.TemporaryDirectory(prefix="djo") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder, "jobs")


class TestWhoMayUseIt:
    def test_only_its_owner_may_enter(self, user: UserMaker, place: Path) -> None:
        user(f"embedded:{place}", umask=0).do("add job")
        assert place.stat().st_mode & 0o777 == 0o700

    def test_an_empty_one_that_is_open_is_closed(self, user: UserMaker, place: Path) -> None:
        place.mkdir()
        place.chmod(0o755)
        user(f"embedded:{place}").do("add job")
        assert place.stat().st_mode & 0o777 == 0o700

    def test_one_that_is_open_with_foreign_files_is_refused(self, user: UserMaker, place: Path) -> None:
        place.mkdir()
        place.chmod(0o755)
        (place / "index.html").touch()
        kind, text = user(f"embedded:{place}").fails("add job")
        assert kind == "StoreMisconfigured"
        assert "holds other files" in text
        assert f"'{place}/jobs'" in text
        assert place.stat().st_mode & 0o777 == 0o755
        assert [file.name for file in place.iterdir()] == ["index.html"]

    def test_another_users_is_refused(self, user: UserMaker, open_place: Path) -> None:
        open_place.mkdir(0o700)
        os.chown(open_place, NOBODY, NOBODY)
        kind, text = user(f"embedded:{open_place}").fails("add job")
        assert kind == "StoreMisconfigured"
        assert "belongs to another user (id 65534" in text
        assert "same user" in text

    def test_one_that_cannot_be_written_or_made_is_refused(self, user: UserMaker, open_place: Path) -> None:
        open_place.mkdir(0o500)
        os.chown(open_place, NOBODY, NOBODY)
        one, other = user(f"embedded:{open_place}"), user(f"embedded:{open_place}/below")
        one.do(f"become {NOBODY}")
        other.do(f"become {NOBODY}")
        kind, text = one.fails("add job")
        assert kind == "StoreMisconfigured"
        assert "read-only. Make it writable" in text
        kind, text = other.fails("add job")
        assert kind == "StoreMisconfigured"
        assert "cannot be created: Permission denied. Name one" in text

    def test_one_on_a_read_only_disk_is_refused(self, user: UserMaker, place: Path, namespaces: list[str]) -> None:
        place.mkdir(0o700)
        mount = ["sh", "-c", f'mount -t tmpfs -o ro,mode=700 none "{place}" && exec "$@"', "sh"]
        kind, text = user(f"embedded:{place}", before=[*namespaces, *mount]).fails("add job")
        assert kind == "StoreMisconfigured"
        assert "read-only" in text

    @pytest.mark.parametrize("is_beside", [False, True])
    def test_jobs_of_an_older_release_are_not_forgotten(self, user: UserMaker, place: Path, is_beside: bool) -> None:
        old = place.parent / "jobs.sqlite3" if is_beside else place
        old.write_bytes(b"SQLite format 3\0" + b"\0" * 100)
        kind, text = user(f"embedded:{place}").fails("add job")
        assert kind == "StoreMisconfigured"
        assert f"{old} holds the jobs of an older release" in text
        assert "runworkers --burst" in text

    def test_a_file_is_refused(self, user: UserMaker, place: Path) -> None:
        place.write_text("mine")
        kind, text = user(f"embedded:{place}").fails("add job")
        assert kind == "StoreMisconfigured"
        assert "Name one" in text
        assert place.read_text() == "mine"


class TestWhereItIs:
    @pytest.mark.parametrize("name", ["with spaces and 'quotes' $(x)", "x" * 200, "é" * 90])
    @pytest.mark.accepts("P08")
    def test_its_path_may_be_long_and_strange(self, user: UserMaker, place: Path, name: str) -> None:
        path = place / name
        one, other = user(f"embedded:{path}"), user(f"embedded:{path}")
        one.do("add job")
        assert other.do("has job")
        assert len(servers(path)) == 1
        copy = other.do("fork child")
        assert one.do("has child")
        send_signal(copy, signal.SIGKILL)

    @pytest.mark.accepts("P02")
    def test_its_server_listens_on_no_port(self, user: UserMaker, place: Path) -> None:
        assert user(f"embedded:{place}").do("config port") == "0"

    def test_two_pid_namespaces_share_one_server(self, user: UserMaker, place: Path, namespaces: list[str]) -> None:
        apart = [*namespaces, "-p", "-f", "--mount-proc", "--kill-child"]
        one, other = user(f"embedded:{place}", before=apart), user(f"embedded:{place}", before=apart)
        for n in range(3):
            one.do(f"add one-{n}")
            other.do(f"add other-{n}")
        assert len(servers(place)) == 1
        assert other.do("has one-0")
        one.close()  # with its namespace, the server dies if it was started there
        jobs = [f"{who}-{n}" for who in ("one", "other") for n in range(3)]
        # The namespace dies while the first of these calls are made: the old server may answer them, or reset them.
        wait_until(
            lambda: all(other.ask(f"has {job}").get("value") for job in jobs) and len(servers(place)) == 1, "one server"
        )


def remove(place: Path) -> None:
    shutil.rmtree(place)


def empty(place: Path) -> None:
    for entry in place.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def replace(place: Path) -> None:
    place.rename(place.with_name("elsewhere"))
    place.mkdir(0o700)


class TestWhatIsDoneToIt:
    @pytest.mark.parametrize("act", [remove, empty, replace])
    def test_nothing_more_is_written_into_one_that_has_gone(
        self, user: UserMaker, place: Path, act: Callable[[Path], None]
    ) -> None:
        users = [user(f"embedded:{place}") for _ in range(3)]
        for n, each in enumerate(users):
            each.do(f"add before-{n}")
        old = servers(place)
        act(place)
        for n, each in enumerate(users):
            wait_until(lambda each=each: "value" in each.ask("has x"), "the store answers again")
            each.do(f"add after-{n}")
        assert all(each.do(f"has after-{n}") for each in users for n in range(3))
        assert not users[0].do("has before-0")
        wait_until(lambda: set(servers(place)).isdisjoint(old) and len(servers(place)) == 1, "the old server has ended")
        wait_until_it_ends(place, deleted=True)
        users[0].leave()
        assert users[0].process.stderr is not None
        assert "was removed or replaced while it was in use" in users[0].process.stderr.read()
        if act is replace:  # what was acknowledged before is still there
            assert user(f"embedded:{place.with_name('elsewhere')}").do("has before-0")

    def test_one_that_is_removed_again_and_again_while_servers_start_is_made_again(
        self, user: UserMaker, place: Path
    ) -> None:
        users = [user(f"embedded:{place}") for _ in range(3)]
        for n in range(15):
            for each in users:
                each.tell(f"add job-{n}")
            shutil.rmtree(place, ignore_errors=True)
            for each in users:
                answer = each.read()
                assert answer["seconds"] < 5
                assert answer.get("error", "StoreUnavailable") == "StoreUnavailable", answer
        for each in users:
            each.do("add last")
        wait_until(lambda: len(servers(place)) == 1 and not running(place, deleted=True), "one server is left")

    def test_without_its_socket_the_server_is_started_again(self, user: UserMaker, place: Path) -> None:
        store = user(f"embedded:{place}")
        store.do("add job")
        (place / "socket").unlink()
        assert store.do("has job")  # over the connection that it has
        assert user(f"embedded:{place}").do("has job")
        assert store.do("has job")

    def test_a_full_disk_is_said_and_loses_nothing(
        self, user: UserMaker, place: Path, namespaces: list[str], tmp_path: Path
    ) -> None:
        place.mkdir(0o700)
        mount = ["sh", "-c", f'mount -t tmpfs -o size=2m,mode=700 none "{place}" && exec "$@"', "sh"]
        store = user(f"embedded:{place}", before=[*namespaces, *mount])
        accepted, kind, text = store.do("fill 1000")
        assert 20 < accepted < 250
        assert kind == "StoreUnavailable", (kind, text)
        kind, text = store.fails("add more")
        assert kind == "StoreUnavailable"
        assert "is full. Make room" in text
        # Seen through the process, because the disk is in its namespace only.
        inside = ["nsenter", f"--mount=/proc/{store.pid}/ns/mnt"]
        subprocess.run([*inside, "mount", "-o", "remount,size=8m", place], check=True)
        store.do("add more")
        assert all(store.do(f"has fill-{n}") for n in range(accepted))


class TestTheFile:
    def test_a_tail_that_was_cut_loads(self, user: UserMaker, place: Path) -> None:
        file = self.filled(user, place)
        with file.open("ab") as opened:
            opened.write(b"*3\r\n$3\r\nSET\r\n$1\r\nx")
        assert user(f"embedded:{place}").do("has job-1")

    def test_a_broken_middle_is_said_with_the_remedy(self, user: UserMaker, place: Path) -> None:
        file = self.filled(user, place)
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2] + b"garbage" + data[len(data) // 2 :])
        kind, text = user(f"embedded:{place}").fails("add job")
        assert kind == "StoreUnavailable"
        assert "check-aof" in text
        assert not servers(place)

    def filled(self, user: UserMaker, place: Path) -> Path:
        store = user(f"embedded:{place}")
        for n in range(3):
            store.do(f"add job-{n}")
        send_signal(store.pid, signal.SIGKILL)
        for pid in running(place):
            send_signal(pid, signal.SIGKILL)
        wait_until_it_ends(place)
        return max(place.rglob("appendonly*"), key=lambda file: file.stat().st_size * file.is_file())

    @pytest.mark.accepts("P05")
    def test_each_command_is_flushed_before_it_is_answered(self, user: UserMaker, place: Path) -> None:
        store = user(f"embedded:{place}")
        assert (store.do("config appendonly"), store.do("config appendfsync")) == ("yes", "always")

    def test_each_command_is_flushed_unless_the_setting_says_no(self, user: UserMaker, place: Path) -> None:
        fast = user(f"embedded:{place}?fsync=no")
        assert fast.do("config appendfsync") == "no"
        safe = user(f"embedded:{place}")
        assert safe.do("config appendfsync") == "always"
        assert fast.do("config appendfsync") == "always"
        assert len(shells(place)) == 2
