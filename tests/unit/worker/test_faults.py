"""What a worker does when something of its own goes wrong: no job is forgotten, and none is charged for another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from math import inf
from threading import Event, Lock, Thread
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs import signals
from django_jobs.conf import QueueSettings
from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import HandedOver, Outcome, RetryIn, Succeeded
from django_jobs.core.values import Attempt, Claim, Killed, Lane
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis import Store
from django_jobs.worker.child.event_loop import EventLoop
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.child.holdings import HeldClaims
from django_jobs.worker.child.settler import Settler
from django_jobs.worker.child.thread import Runner
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.crash_loop import CrashLoop
from django_jobs.worker.ipc import pair
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from django_jobs.worker.messages import Ping, RemoteTypes
from django_jobs.worker.parent.children import ChildHandle
from django_jobs.worker.parent.heartbeat_answers import HeartbeatAnswers
from django_jobs.worker.parent.pool import ChildPool
from django_jobs.worker.parent.supervisor import Supervisor
from django_jobs.worker.shared_memory import SharedMemory
from tests.support.waiting import wait_until


class Releasing:
    """A store that takes claims back, or does not answer."""

    def __init__(self) -> None:
        self.away = False
        self.released: list[tuple[str, list[str]]] = []

    def release(self, queue: str, claims: Sequence[Claim]) -> list[str]:
        if self.away:
            raise StoreUnavailable
        self.released.append((queue, [claim.id for claim in claims]))
        return []


@pytest.fixture
def store() -> Releasing:
    return Releasing()


@pytest.fixture
def runner(store: Releasing, monkeypatch: pytest.MonkeyPatch) -> Runner:
    for signal in (signals.job_failed, signals.job_retried, signals.job_dead, signals.job_cancelled):
        monkeypatch.setattr(signal, "receivers", [])  # those of other tests keep exceptions, which are settled sooner

    def nothing_to_fetch() -> None:
        return None

    fetcher = SimpleNamespace(fetch=nothing_to_fetch, claiming=False, is_forsaken=False)
    child: Any = SimpleNamespace(
        store=store,
        gate=Gate(),
        reports=None,
        fetcher=fetcher,
        retry_state=SimpleNamespace(is_on=False),
        holding=HeldClaims(),
        shared=SharedMemory(["one", "two"], 1),
    )
    return Runner(child, 0, Lock())


def test_claims_of_several_queues_are_handed_back_each_to_its_own(runner: Runner, store: Releasing) -> None:
    runner.offered.extend([Claim("a", "one", 1, b""), Claim("b", "two", 2, b"")])
    runner.waiting.append((0, Claim("c", "one", 3, b"")))
    runner.give_back()
    assert store.released == [("one", ["a", "c"]), ("two", ["b"])]
    assert not runner.waiting


def test_what_could_not_be_handed_back_is_offered_again_before_the_next_claim(runner: Runner, store: Releasing) -> None:
    """And never begun: the store may have taken it, and another may have begun it."""
    runner.waiting.append((0, Claim("a", "one", 1, b"")))
    store.away = True
    runner.give_back()
    assert not runner.waiting
    assert [claim.id for claim in runner.offered] == ["a"]
    store.away = False
    runner._turn()
    assert store.released == [("one", ["a"])]


def run_failing(runner: Runner, number: int, outcome: Outcome) -> list[list[str]]:
    """Run so many jobs that end in that way.  Returns the ids that were settled, by call."""
    settled: list[list[str]] = []
    claims = [Claim(str(n), "one", 1, b"") for n in range(number)]
    runner.child.settler = SimpleNamespace(  # type: ignore[assignment]
        settle_now=lambda attempts: settled.append([each.claim.id for each in attempts])
    )
    runner.child.executor = SimpleNamespace(  # type: ignore[assignment]
        prepare=lambda claim, store, begins: Attempted(claim, outcome)
    )
    for n, claim in enumerate(claims):
        runner._run_one(n, claim)
    return settled


FAILURE = RetryIn(1000, Attempt(1, "failed", 0))


@pytest.mark.accepts("G42")
def test_attempts_that_failed_wait_for_those_that_follow_but_not_for_too_many(runner: Runner) -> None:
    """Each keeps what its exception refers to."""
    settled = run_failing(runner, 99, FAILURE)
    assert (settled, len(runner.done)) == ([], 99)
    settled = run_failing(runner, 1, FAILURE)
    assert ([len(each) for each in settled], len(runner.done)) == ([100], 0)
    assert run_failing(runner, 99, FAILURE) == []


def test_a_failed_attempt_of_a_process_that_runs_one_job_is_settled_before_the_next_begins(runner: Runner) -> None:
    """The next job may be killed by its time limit: then the parent counts only what it knows to have ended."""
    runner.child.reports = SimpleNamespace(returned=lambda: None, started=lambda number, job: None)  # type: ignore[assignment]
    assert run_failing(runner, 3, FAILURE) == [["0"], ["1"], ["2"]]


def test_a_job_that_was_handed_over_is_settled_at_once(runner: Runner) -> None:
    assert run_failing(runner, 2, HandedOver("remote:0", 1000)) == [["0"], ["1"]]


def test_a_thread_is_not_done_before_its_results_are_settled_whoever_took_them(runner: Runner) -> None:
    """The batch monitor may have taken them a moment before; a process whose threads are done may end at once."""
    taken, answered, is_done = Event(), Event(), Event()

    def slow(attempts: Sequence[Attempted]) -> None:
        taken.set()
        assert answered.wait(60)

    def end_batch() -> None:
        runner.settle_done()
        is_done.set()

    runner.child.settler = SimpleNamespace(settle_now=slow)  # type: ignore[assignment]
    runner.done.append(succeeded("a"))
    threads = [Thread(target=runner.settle_done, name="batch_monitor"), Thread(target=end_batch)]
    threads[0].start()
    assert taken.wait(60)
    threads[1].start()
    assert not is_done.wait(0.2)
    answered.set()
    for thread in threads:
        thread.join()
    assert is_done.is_set()


class OneChild:
    """A parent with one child."""

    def __init__(self, child: ChildHandle) -> None:
        self.child = child

    def __iter__(self) -> Any:
        return iter([self.child])


def test_the_process_of_a_killed_job_is_ended_when_the_store_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not only when the child's claims are compared with the store's, two heartbeats later."""
    killed: list[int] = []
    monkeypatch.setattr("django_jobs.worker.parent.children.kill_group", killed.append)
    ours, theirs = pair()
    child_processes: Any = OneChild(ChildHandle("w:1", Lane.SHARED, 4711, ours, SharedMemory(["q"], 1)))
    told = HeartbeatAnswers(SimpleNamespace(), child_processes)  # type: ignore[arg-type]
    told.asked_to_stop("w:1", "q", "another")
    assert killed == []
    told.asked_to_stop("w:1", "q", Killed("a", 7))
    assert killed == [4711]
    for end in (ours, theirs):
        end.close()


def test_a_question_that_a_child_did_not_get_is_asked_again() -> None:
    """Its channel is full, because it has not read for long."""
    ours, theirs = pair()
    child = ChildHandle("w:1", Lane.SHARED, 4711, ours, SharedMemory(["q"], 1))
    types = RemoteTypes(1.0, [])
    while child.tell(Ping(1)):
        continue
    child.check("q")
    child.hold({}, [])
    child.send_types(types)
    assert (child.in_doubt, child.agrees, child.listens) == (set(), True, True)
    while not child.tell(Ping(2)):
        theirs.receive()
    child.check("q")
    child.hold({}, [])
    child.send_types(types)
    assert (child.in_doubt, child.agrees, child.listens) == ({"q"}, False, False)
    for end in (ours, theirs):
        end.close()


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_job_is_not_killed_for_the_time_of_the_one_before_it(
    has_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr("django_jobs.worker.parent.children.kill_group", killed.append)
    ours, theirs = pair()
    shared = SharedMemory(["q"], 1)
    child = ChildHandle("w:1", Lane.ALONE, 4711, ours, shared)
    now = monotonic()
    shared.may_run_until(now - 1)
    if has_ended:
        shared.may_run_until(now + 1)
    child_processes: Any = OneChild(child)
    child_pool = ChildPool(WorkerConfig(queues=()), child_processes, SimpleNamespace(), CrashLoop(), lambda: None)  # type: ignore[arg-type]
    child_pool.keep_time_limits(now)
    assert killed == ([] if has_ended else [4711])
    for end in (ours, theirs):
        end.close()


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    return found


def succeeded(id: str) -> Attempted:
    return Attempted(Claim(id, "q", 1, b""), Succeeded(), "a.job")


def test_a_settler_that_cannot_go_on_ends_the_process_instead_of_its_thread(exits: list[int]) -> None:
    class Broken:
        def complete(self, queue: str, done: Sequence[Any]) -> list[str]:
            raise RuntimeError("a fault of ours")

    settler = Settler(Broken())  # type: ignore[arg-type]
    settler.settle_soon(succeeded("a"))
    wait_until(lambda: exits, "the process ends")
    assert exits == [70]
    assert not settler.is_idle


def test_a_settler_is_not_idle_before_the_store_has_taken_everything() -> None:
    class Slow:
        def __init__(self) -> None:
            self.asked, self.answer = Event(), Event()
            self.failures = 1

        def complete(self, queue: str, done: Sequence[Any]) -> list[str]:
            self.asked.set()
            self.answer.wait(60)
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable
            return []

    slow = Slow()
    settler = Settler(slow)  # type: ignore[arg-type]
    assert settler.is_idle
    settler.settle_soon(succeeded("a"))
    assert slow.asked.wait(60)
    assert not settler.is_idle
    slow.answer.set()
    wait_until(lambda: settler.is_idle, "it is settled")
    assert slow.failures == 0


@pytest.mark.parametrize("on_loop", [True, False])
def test_a_fault_round_an_async_job_does_not_leave_it_running_for_ever(on_loop: bool, exits: list[int]) -> None:
    class Faulty:
        async def run_on_loop(self, prepared: Any) -> Attempted:
            raise RuntimeError("a fault of ours")

        def run_here(self, prepared: Any) -> Attempted:
            raise RuntimeError("a fault of ours")

    loop = EventLoop(2, lambda attempted: None)
    loop.executor = Faulty()  # type: ignore[assignment]
    prepared: Any = SimpleNamespace(running=object(), plan=SimpleNamespace(on_loop=on_loop))
    loop.submit(prepared)
    wait_until(lambda: exits, "the process ends")
    assert exits == [70]


def test_the_first_call_that_an_awakened_store_answers_takes_no_lease_away() -> None:
    class Awakening:
        def __init__(self) -> None:
            self.recoveries = 0

        def lapsed(self, queues: list[str]) -> list[str]:
            tasks._worked_at -= 20  # it took that long to answer
            return queues

        def recover(self, queue: str, **_: Any) -> list[Any]:
            self.recoveries += 1
            return []

        def watches_for(self, queue: str) -> float:
            return inf

        def prune(self, queue: str, **_: Any) -> dict[str, int]:
            return {}

        def upkeep_due(self, queues: list[str]) -> dict[str, Any]:
            return {}

    store = Awakening()
    tasks = MaintenanceTasks(store, ["q"], 30_000)  # type: ignore[arg-type]
    for _ in range(6):
        tasks.step(monotonic())
    assert store.recoveries == 0
    tasks.grace_until, tasks._worked_at = 0.0, monotonic()
    tasks._recover("q", 5.0)
    assert store.recoveries == 1


@pytest.mark.parametrize(("name", "expected"), [("remote:eu", "worker:remote:eu"), ("eu", "eu")])
def test_no_worker_is_taken_for_a_remote_holder_whose_claims_nobody_recovers(name: str, expected: str) -> None:
    config = WorkerConfig(queues=(QueueSettings("default"),), name=name)
    supervisor = Supervisor(Store.from_setting("redis://localhost"), config)
    assert supervisor.name == expected
    supervisor.signals.close()


def test_a_fault_ends_the_process_also_if_it_cannot_be_logged() -> None:
    code = """
from django_jobs.runtime.faults import faults_end_process, logger
logger.addFilter(lambda record: 1 / 0)
with faults_end_process():
    raise RuntimeError("a fault of ours")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL).returncode == 70
