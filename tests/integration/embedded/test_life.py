"""The life of a private server: who starts it, who shares it, who ends it, whatever is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.embedded.conftest import ROOT, User
from tests.support.backends.embedded import running, servers, shells, wait_until_it_ends
from tests.support.backends.missing import missing
from tests.support.processes import die_with_parent, is_alive, send_signal
from tests.support.waiting import wait_until

UserMaker = Callable[..., User]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def kill(*pids: int) -> None:
    for pid in pids:
        send_signal(pid, signal.SIGKILL)


class TestStart:
    def test_twenty_processes_at_the_same_instant_share_one_server(
        self, user: UserMaker, place: Path, tmp_path: Path
    ) -> None:
        users = [user(f"embedded:{place}", str(tmp_path / "go")) for _ in range(20)]
        for n, each in enumerate(users):
            each.tell(f"add job-{n}")
        (tmp_path / "go").touch()
        for each in users:
            assert each.read() == "ready"
            assert "value" in each.read()
        (server,) = servers(place)
        assert all(users[0].do(f"has job-{n}") for n in range(20))
        assert servers(place) == [server]

    def test_many_threads_at_the_same_instant_share_one_server(self, user: UserMaker, place: Path) -> None:
        assert user(f"embedded:{place}").do("threads 30") == []
        assert len(servers(place)) == 1

    def test_one_that_comes_while_the_server_ends_starts_another(self, user: UserMaker, place: Path) -> None:
        store = user(f"embedded:{place}")
        for n in range(5):
            store.do(f"add job-{n}")
            # Told to end as the shell tells it, and called at once.
            for server in servers(place):  # none, if the last one was slow to end and answered until now
                send_signal(server, signal.SIGTERM)
            store.do(f"add next-{n}")
        assert all(store.do(f"has job-{n}") and store.do(f"has next-{n}") for n in range(5))
        # The last one that was told to end may have answered all of this: then the next call starts another.
        wait_until(lambda: store.do("has job-0") and len(servers(place)) == 1, "there is one server", every=0.1)

    def test_a_reboot_leaves_files_that_nobody_trusts(self, user: UserMaker, place: Path) -> None:
        first = user(f"embedded:{place}")
        first.do("add before")
        kill(first.pid, *running(place))
        wait_until_it_ends(place)
        assert {"socket", "lock", "users"} <= {file.name for file in place.iterdir()}
        again = user(f"embedded:{place}")
        assert again.do("has before")
        again.do("add after")

    def test_blocked_and_ignored_signals_of_the_starter_keep_no_server_alive(
        self, user: UserMaker, place: Path
    ) -> None:
        def block() -> None:
            die_with_parent()
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)

        stubborn = user(f"embedded:{place}", preexec_fn=block)
        stubborn.do("add job")
        stubborn.leave()
        wait_until_it_ends(place)


class TestEnd:
    def test_it_ends_after_its_last_user_and_not_before(self, user: UserMaker, place: Path) -> None:
        first, second = user(f"embedded:{place}"), user(f"embedded:{place}")
        first.do("add job")
        (server,) = servers(place)
        assert second.do("has job")
        kill(first.pid)  # it started the server
        second.do("add other")
        assert servers(place) == [server]
        kill(second.pid)
        wait_until_it_ends(place)
        assert user(f"embedded:{place}").do("has other")

    def test_commands_one_after_another_share_a_server(self, user: UserMaker, place: Path) -> None:
        found = set()
        for n in range(4):
            each = user(f"embedded:{place}")
            each.do(f"add job-{n}")
            found.update(servers(place))
            each.leave()
        assert len(found) == 1

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
    def test_a_signal_to_the_group_of_the_starter_does_not_reach_it(
        self, user: UserMaker, place: Path, number: int
    ) -> None:
        other = user(f"embedded:{place}")

        def lead() -> None:
            os.setpgid(0, 0)

        starter = user(f"embedded:{place}", preexec_fn=lead)
        starter.do("add job")
        (server,) = servers(place)
        assert other.do("has job")
        os.killpg(starter.pid, number)
        starter.process.wait(60)
        assert other.do("has job")
        assert servers(place) == [server]

    def test_a_copy_keeps_it_alive_after_its_parent(self, user: UserMaker, place: Path) -> None:
        parent = user(f"embedded:{place}")
        parent.do("add parent")
        copy = parent.do("fork child")
        (server,) = servers(place)
        assert parent.do("has child")
        kill(parent.pid)
        parent.process.wait(60)
        other = user(f"embedded:{place}")
        assert other.do("has child")
        assert servers(place) == [server]
        kill(copy, other.pid)
        wait_until_it_ends(place)

    def test_a_copy_made_while_a_thread_starts_the_server_keeps_no_lock(self, user: UserMaker, place: Path) -> None:
        store = user(f"embedded:{place}")
        copy = store.do("fork-while-starting child")
        for n in range(3):
            kill(*servers(place))
            store.do(f"add job-{n}")
        assert store.do("has thread")
        assert store.do("has child")
        kill(copy)

    def test_calls_of_threads_during_close_end_or_say_so(self, user: UserMaker, place: Path) -> None:
        store = user(f"embedded:{place}")
        assert set(store.do("close 2000")) <= {"StoreUnavailable"}
        store.do("add job")
        store.leave()
        wait_until_it_ends(place)


class TestKills:
    @pytest.mark.accepts("P01", "P03")
    def test_the_next_call_starts_a_killed_server_again(self, user: UserMaker, place: Path) -> None:
        store = user(f"embedded:{place}")
        for n in range(5):
            store.do(f"add job-{n}")
            kill(*servers(place))
        assert all(store.do(f"has job-{n}") for n in range(5))
        assert len(servers(place)) == 1

    def test_whatever_is_killed_no_acknowledged_job_is_lost_and_it_ends(self, user: UserMaker, place: Path) -> None:
        rng, users, added = random.Random(5), [user(f"embedded:{place}") for _ in range(3)], []
        for n in range(60):
            each = rng.choice(users)
            if "error" not in each.ask(f"add job-{n}"):
                added.append(f"job-{n}")
            victims = list(running(place))
            kill(*rng.sample(victims, rng.randrange(min(3, len(victims) + 1))))
        assert len(added) > 50
        assert [id for id in added if not users[0].do(f"has {id}")] == []
        # The shell that waits for the server may be the last victim: the one that watches the users is enough.
        wait_until(lambda: len(servers(place)) == 1 and shells(place), "one server is left, and a shell")
        kill(*(each.pid for each in users))
        wait_until_it_ends(place)

    @pytest.mark.parametrize("which", [[0], [1], [0, 1]])
    def test_killed_shells_keep_no_server_alive(self, user: UserMaker, place: Path, which: list[int]) -> None:
        store = user(f"embedded:{place}")
        store.do("add job")
        wait_until(lambda: len(shells(place)) == 2, "both shells run")
        kill(*(sorted(shells(place))[n] for n in which))
        wait_until(lambda: store.do("has job") and len(shells(place)) >= 1, "there is a shell again")
        store.leave()
        wait_until_it_ends(place)


class TestMemory:
    def directory(self, store: User) -> Path:
        return Path(store.do("directory"))

    @pytest.mark.parametrize("number", [0, signal.SIGKILL])
    def test_it_ends_with_its_process_and_leaves_nothing(self, user: UserMaker, number: int) -> None:
        store = user("memory")
        place = self.directory(store)
        assert place.stat().st_mode & 0o777 == 0o700
        assert len(servers(place)) == 1
        send_signal(store.pid, number) if number else store.leave()
        wait_until_it_ends(place)
        wait_until(lambda: not place.exists(), "the directory has gone")

    def test_copies_share_it(self, user: UserMaker) -> None:
        store = user("memory")
        place = self.directory(store)
        copy = store.do("fork child")
        assert store.do("has child")
        kill(store.pid)
        store.process.wait(60)
        assert len(servers(place)) == 1
        assert is_alive(copy)
        kill(copy)
        wait_until(lambda: not place.exists(), "the directory has gone")

    def test_processes_of_other_interpreters_have_their_own(self, user: UserMaker) -> None:
        one, other = user("memory"), user("memory")
        one.do("add job")
        assert not other.do("has job")

    def test_four_test_processes_leave_no_server(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text(
            "import pytest\nfrom tests.integration.embedded.user import add, make\n"
            "@pytest.mark.parametrize('n', range(12))\n"
            "def test(n):\n    store = make('memory')\n    add(store, 'job')\n    assert store.get('default', 'job')\n"
            "    print(store.transport.client.config_get('dir')['dir'])\n"
        )
        command = [sys.executable, "-m", "pytest", "-n", "4", "-q", "-rP", "-p", "no:cacheprovider", "test_it.py"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        if "unrecognized arguments: -n" in ran.stderr:
            missing("pytest-xdist is not installed.")
        assert ran.returncode == 0, ran.stdout
        places = {Path(line) for line in ran.stdout.splitlines() if line.startswith("/") and "django_jobs-" in line}
        assert places
        wait_until(lambda: not any(running(place) or place.exists() for place in places), "nothing is left")
