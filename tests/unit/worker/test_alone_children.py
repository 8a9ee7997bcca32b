"""How many children the parent keeps for jobs that run one at a time, and whom it ends for which job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs.core.values import Claim, Lane
from django_jobs.worker.batch_memory import StartedJob
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.crash_loop import CrashLoop
from django_jobs.worker.ipc import pair
from django_jobs.worker.parent.children import ChildHandle, ChildProcesses
from django_jobs.worker.parent.heartbeat_answers import HeartbeatAnswers
from django_jobs.worker.parent.pool import ALONE_BUSY, LOOK, ChildPool
from django_jobs.worker.parent.suspects import Suspects
from django_jobs.worker.shared_memory import SharedMemory, Thread


class Family:
    """A parent that can start as many children as it likes, and says which."""

    def __init__(self, processes: int) -> None:
        config = WorkerConfig(queues=(), processes=processes, threads=8)
        nothing: Any = SimpleNamespace()
        self.processes = ChildProcesses(nothing, config, "w", nothing)
        self.pool = ChildPool(config, self.processes, nothing, CrashLoop(), lambda: None)
        self.now, self.sleepers, self.ends = 1000.0, set[int](), list[Any]()
        for _ in range(processes):
            self.add(Lane.SHARED)

    def add(self, lane: Lane) -> ChildHandle:
        pid = len(self.processes.children) + 1
        ours, theirs = pair()
        self.ends += [ours, theirs]
        shared = SharedMemory(["q"], 1)
        child = self.processes.children[pid] = ChildHandle(f"w:{pid}", lane, pid, ours, shared)
        return child

    def runs(self, child: ChildHandle, *, left: int = 0, since: float | None = None, sleeps: bool = False) -> Thread:
        """The child runs a job, and has another one that has not begun."""
        thread = Thread(child.shared, 0)
        child.shared.begin_claim("q")
        claims = [Claim(f"{child.pid}-{n}", "q", 7, b"") for n in range(2)]
        thread.note_claims("q", claims, left)
        thread.begin_job(0)
        thread.memory.runs(0, self.now if since is None else since, None)
        child.is_busy = True
        if sleeps:
            self.sleepers.add(child.pid)
        return thread

    def fill_up(self, turns: int = 1) -> int:
        """Let it look so often.  Returns how many alone children there are."""
        for _ in range(turns):
            self.now += LOOK
            self.pool.fill_up(self.now)
        return len(self.processes.of(Lane.ALONE))


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Iterator[Family]:
    family = Family(processes=2)
    monkeypatch.setattr(family.processes, "spawn", family.add)
    monkeypatch.setattr("django_jobs.worker.parent.pool.job_sleeps", lambda child: child.pid in family.sleepers)
    yield family
    for end in family.ends:
        end.close()


def alone(family: Family) -> list[ChildHandle]:
    return family.processes.of(Lane.ALONE)


def test_one_is_kept_ready(family: Family) -> None:
    assert family.fill_up(50) == 1


def test_there_are_as_many_as_processes_while_jobs_wait(family: Family) -> None:
    family.fill_up()
    family.runs(alone(family)[0], left=500)
    assert family.fill_up() == 2
    assert family.fill_up(10) == 2, "one of them is idle"


def test_jobs_that_sleep_get_more(family: Family) -> None:
    family.fill_up()
    for _ in range(16):
        family.runs(alone(family)[-1], left=500, since=family.now + 1000, sleeps=True)
        family.fill_up(8)
    assert family.fill_up(100) == family.pool.config.most_alone == 16


def test_there_is_one_besides_each_long_job(family: Family) -> None:
    family.fill_up()
    family.runs(alone(family)[0])
    assert family.fill_up() == 1, "it may end soon"
    for n in range(1, 5):
        family.now += ALONE_BUSY
        assert family.fill_up() == n + 1
        family.runs(alone(family)[-1])


def test_a_job_that_is_killed_before_it_begins_ends_no_process(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("django_jobs.worker.parent.children.kill_group", killed.append)
    family.fill_up()
    (child,) = alone(family)
    thread = family.runs(child)
    child.end_attempt("q", f"{child.pid}-1", 7)
    assert not killed
    assert not thread.begin_job(1), "it is handed back with what has not begun, which the store refuses"
    child.end_attempt("q", f"{child.pid}-0", 6)
    assert not killed, "an earlier attempt"
    child.end_attempt("q", f"{child.pid}-0", 7)
    assert killed == [child.pid]


def test_a_job_may_end_between_two_looks_of_the_parent(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child writes what the parent reads: whatever the parent decides, it looks at a job once."""
    children = [family.add(Lane.ALONE) for _ in range(2)]
    threads = {child.pid: family.runs(child, left=1) for child in children}
    read = SharedMemory.running

    def running(shared: SharedMemory) -> StartedJob | None:
        job = read(shared)
        for child in children:
            if child.shared is shared:
                threads[child.pid].memory.runs_nothing()
        return job

    monkeypatch.setattr(SharedMemory, "running", running)
    store: Any = SimpleNamespace(get=lambda queue, id: None)
    suspects = Suspects(family.pool)
    decisions: list[Callable[[], object]] = [
        lambda: suspects.step(family.now),
        lambda: suspects.step(family.now + 1),  # it has a holder now
        lambda: family.pool.fill_up(family.now),
        lambda: family.pool.next_moment(family.now),
        lambda: family.pool.keep_time_limits(family.now),
        lambda: [child.end_attempt("q", "other", 1) for child in children],
        lambda: [HeartbeatAnswers(store, family.processes).holds_nothing(c.name, "other", inf) for c in children],
    ]
    for decide in decisions:
        for thread in threads.values():
            thread.memory.runs(0, family.now, None)
        decide()
