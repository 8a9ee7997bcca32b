"""A suspect with one crash left begins when nothing else runs in its worker: what parent and child say about it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs.core.values import Lane
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.crash_loop import CrashLoop
from django_jobs.worker.ipc import IpcChannel, pair
from django_jobs.worker.messages import ChildStatus, ClaimId, Idle, MayBegin, Message, Ping, WaitsToBegin, Yielded
from django_jobs.worker.parent.children import ChildHandle, ChildProcesses
from django_jobs.worker.parent.pool import ChildPool
from django_jobs.worker.parent.suspects import LONGEST, PATIENCE, Suspects
from django_jobs.worker.shared_memory import SharedMemory

KEY = ClaimId("q", "a", 7)


def _word(message: Message) -> str:
    if isinstance(message, MayBegin):
        return "begin" if message.begins else "back"
    return type(message).__name__


class Worker:
    """A parent, and its children as they look from there."""

    def __init__(self) -> None:
        config: Any = WorkerConfig(queues=())
        nothing: Any = SimpleNamespace()
        self.processes = ChildProcesses(nothing, config, "w", nothing)
        self.pool = ChildPool(config, self.processes, nothing, CrashLoop(), lambda: None)
        self.suspects, self.now = Suspects(self.pool), 1000.0
        self.ends: dict[str, IpcChannel] = {}
        for pid, (name, lane) in enumerate({"shared": Lane.SHARED, "other": Lane.ALONE, "tries": Lane.ALONE}.items()):
            ours, self.ends[name] = pair()
            self.processes.children[pid] = ChildHandle(name, lane, pid, ours, SharedMemory([], 0))
        self["other"].retiring = True  # so that the right goes to the third
        self.step()
        self["other"].retiring = False
        assert self.told("tries") == ["MayRunSuspects"]

    def __getitem__(self, name: str) -> ChildHandle:
        return next(child for child in self.processes if child.name == name)

    def step(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.suspects.step(self.now)

    def told(self, name: str) -> list[str]:
        self[name].tell(Ping(0))  # or there would be nothing to receive
        return [_word(message) for message in self.ends[name].receive() if not isinstance(message, Ping)]

    def say(self, name: str, message: Message) -> None:
        self.ends[name].send(message)
        self[name].read()

    def wait(self) -> None:
        """The child that may run suspects has a claim that waits."""
        self.say("tries", WaitsToBegin(KEY))
        self.step()

    def answer(self, name: str, *, idle: bool) -> None:
        self.say(name, ChildStatus(self.processes.serial, idle=idle))


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    for child in worker.processes:
        child.channel.close()
    for end in worker.ends.values():
        end.close()


def test_it_begins_when_every_other_child_runs_nothing(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.processes, "spawn", lambda lane: pytest.fail("a process is started meanwhile"))
    worker.answer("shared", idle=True)
    worker.answer("other", idle=True)
    worker.wait()
    assert [worker.told(name) for name in ("shared", "other", "tries")] == [["Close"], ["Close"], []]
    worker.step()
    assert worker.told("tries") == [], "they said so before they were closed"
    worker.answer("shared", idle=True)
    worker.answer("other", idle=False)
    worker.step(1)
    worker.pool.fill_up(worker.now)
    assert worker.told("tries") == []
    worker.answer("shared", idle=True)
    worker.answer("other", idle=True)
    worker.step(1)
    assert worker.told("tries") == ["begin"]
    worker.step(10 * LONGEST)
    [worker.told(name) for name in ("shared", "other")]
    worker.step(10 * LONGEST)
    assert [worker.told(name) for name in ("shared", "other", "tries")] == [[], [], []], "for as long as it runs"
    worker.say("tries", Idle())
    worker.step()
    assert [worker.told(name) for name in ("shared", "other")] == [["Open"], ["Open"]]


def test_if_its_process_is_frozen_before_it_began_the_others_go_on(worker: Worker) -> None:
    worker.wait()
    worker.told("shared")
    worker["tries"].is_frozen = True
    worker.step()
    assert worker.told("shared") == ["Open"]


@pytest.mark.parametrize("why", ["quiet", "fenced"])
def test_what_is_closed_for_another_reason_stays_closed(worker: Worker, why: str) -> None:
    worker.wait()
    worker.told("shared")
    setattr(worker.pool, why, True)
    worker.say("tries", Idle())
    worker.step()
    assert worker.told("shared") == []


def test_who_waits_in_vain_gives_it_away_for_a_while(worker: Worker) -> None:
    worker.wait()
    worker.step(PATIENCE)
    assert worker.told("tries") == ["YieldSuspects", "back", "Open"], "in this order, or it could claim the job again"
    assert worker.told("shared") == ["Close", "Open"]
    worker.say("tries", Idle())
    worker.say("tries", Yielded())
    worker.step()
    worker.step(PATIENCE - 0.1)
    assert (worker.told("tries"), worker.told("other")) == ([], ["Close", "Open"])
    worker.step(0.1)
    assert [*worker.told("tries"), *worker.told("other")] == ["MayRunSuspects"]


def test_in_a_worker_that_is_never_idle_it_begins_after_an_hour_and_a_half(worker: Worker) -> None:
    """However many suspects wait, the worker does other work for as long as it has waited for one."""
    began = worker.now
    name = "tries"
    for token in range(100):
        worker.say(name, WaitsToBegin(ClaimId("q", "a", token)))
        worker.step()
        closed_at = worker.now
        while not worker.told(name):
            worker.step(PATIENCE / 2)
        waited = worker.now - closed_at
        if worker.suspects.due(worker.now) == float("inf") and worker.pool.reserved:
            break
        worker.say(name, Idle())
        worker.say(name, Yielded())
        worker.step()
        for name in ("tries", "other"):
            worker.told(name)
        worker.step(waited - PATIENCE / 2)
        assert [worker.told(name) for name in ("tries", "other")] == [[], []]
        worker.step(PATIENCE / 2)
        name = next(name for name in ("tries", "other") if "MayRunSuspects" in worker.told(name))
    assert worker.now - began <= 5400 + 600
