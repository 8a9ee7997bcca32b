"""The parts of parent and child one by one: batch monitor, settler, maintenance tasks, channel."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from threading import Event
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import HandedOver, RetryIn, SnoozeFor, Succeeded
from django_jobs.core.values import Attempt, Claim, NewJob, Recovered, State
from django_jobs.events.signal_events import SignalEvent
from django_jobs.exceptions import StoreFull, StoreUnavailable
from django_jobs.signals import job_expired
from django_jobs.stores.redis import Store
from django_jobs.stores.values.answers import UpkeepDue
from django_jobs.stores.values.sizes import MAX_BYTES, SETTLED_AT_ONCE
from django_jobs.worker.child.batch_monitor import INTERVAL, SLOW, BatchMonitor
from django_jobs.worker.child.queue_selector import BatchSizer
from django_jobs.worker.child.settler import Settler, calls_of
from django_jobs.worker.ipc import pair
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from django_jobs.worker.messages import (
    Busy,
    ChildStatus,
    ClaimId,
    ClaimsChecked,
    ClaimsInStore,
    Drain,
    MayBegin,
    WaitsToBegin,
    decode,
    encode,
)
from tests.conftest import Clock
from tests.support.waiting import wait_until

# -- the batch monitor -------------------------------------------------------------------


class FakeRunner:
    """A thread whose job began `running` seconds ago, with claims waiting behind it."""

    def __init__(self, *, running: float, waiting: int = 0, done: int = 0, busy: bool = True, before: int = 0) -> None:
        self.busy, self.since, self.ran = busy, 100.0 - running, before
        self.batch_since = self.since - before * running  # the jobs before it took as long
        self.waiting, self.offered, self.done = deque(range(waiting)), deque[int](), deque(range(done))
        self.flushed: list[float] = []
        job = SimpleNamespace(flush_checkin=self.flushed.append)
        self.current = SimpleNamespace(claim=SimpleNamespace(queue="q"), running=job)

    def give_back(self) -> None:
        self.waiting.clear()

    def settle_done(self) -> None:
        self.done.clear()


def look(*runners: FakeRunner) -> tuple[bool, BatchSizer]:
    sizer = BatchSizer()
    return BatchMonitor(runners, None, sizer, Event()).tick(100.0), sizer  # type: ignore[arg-type]


@pytest.mark.accepts("O13")
def test_what_waits_behind_a_slow_job_goes_back_and_smaller_batches_follow() -> None:
    slow, quick = FakeRunner(running=SLOW + 0.01, waiting=5), FakeRunner(running=SLOW - 0.01, waiting=5)
    busy, sizer = look(slow, quick)

    assert busy
    assert (len(slow.waiting), len(quick.waiting)) == (0, 5)
    assert sizer.size("q") < 8


@pytest.mark.accepts("O13")
def test_what_waits_behind_many_jobs_goes_back_too_though_none_of_them_is_slow() -> None:
    together = FakeRunner(running=SLOW / 10, waiting=5, before=10)
    _, sizer = look(together)

    assert not together.waiting
    assert sizer.size("q") == 1


def test_results_of_a_batch_are_not_held_behind_a_slow_job() -> None:
    runner = FakeRunner(running=INTERVAL + 0.01, done=3)
    look(runner)
    assert not runner.done


# -- the settler ---------------------------------------------------------------------


class Flaky:
    """A store whose calls fail so many times before they reach the real one."""

    def __init__(self, store: Any, failures: int, error: Exception | None = None) -> None:
        self.store, self.failures, self.error = store, failures, error or StoreUnavailable()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            if self.failures > 0:
                self.failures -= 1
                raise self.error
            return getattr(self.store, name)(*args, **given)

        return call


def test_what_the_store_cannot_take_now_is_settled_later_and_held_up_nobody(
    redis_store: Store, make_job: Callable[..., NewJob], caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [make_job() for _ in range(3)]
    redis_store.enqueue("default", jobs)
    claims = redis_store.claim("default", "w", 10, lease=30_000).claims
    settler = Settler(Flaky(redis_store, 3))  # type: ignore[arg-type]

    settler.settle_now([Attempted(claim, Succeeded(), "tests.job") for claim in claims])
    assert not settler.is_idle

    wait_until(lambda: settler.is_idle, "everything is settled", seconds=5)
    states = {redis_store.get("default", job.id).state for job in jobs}  # type: ignore[union-attr]
    assert states == {State.SUCCEEDED}
    assert caplog.text.count("does not answer") == 1


# -- maintenance tasks ------------------------------------------------------------------------------


class Quiet:
    """A store with nothing to do, that counts who asks.  It says that there may be something to do in every queue."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {"recover": [], "prune": {}, "reconcile": {}, "sample": None}
        self.answers |= {"expire": ([], False), "let_in": b""}

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            self.asked.append(name)
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def lapsed(self, queues: Sequence[str]) -> Sequence[str]:
        return queues

    def upkeep_due(self, queues: Sequence[str]) -> dict[str, UpkeepDue]:
        return dict.fromkeys(queues, UpkeepDue(True, None, True))

    def check_turn(self, queue: str, checker: str, lease: int) -> int:
        return 0

    def is_walking(self, queue: str) -> bool:
        return False

    def watches_for(self, queue: str) -> float:
        return inf


def run_due(tasks: MaintenanceTasks, steps: int) -> None:
    for _ in range(steps):
        tasks.step(monotonic())


def test_every_chore_is_done_in_every_queue_one_call_at_a_time() -> None:
    store = Quiet()
    tasks = MaintenanceTasks(store, ["a", "b"], 30_000)  # type: ignore[arg-type]
    soon = monotonic() + 1
    while tasks.due <= soon:
        asked = len(store.asked)
        tasks.step(soon)
        assert len(store.asked) <= asked + 1

    assert sorted(store.asked) == sorted([*["recover", "expire", "let_in", "prune", "reconcile"] * 2, "sample"])
    run_due(tasks, 5)
    assert len(store.asked) == 11, "nothing is due again yet"


def test_a_failing_task_does_not_end_the_maintenance(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def tick(self) -> float:
            raise RuntimeError("the archive is down")

    store = Quiet()
    tasks = MaintenanceTasks(store, ["a"], 30_000, [Broken()])  # type: ignore[arg-type]
    run_due(tasks, 8)

    assert sorted(store.asked) == ["expire", "let_in", "prune", "reconcile", "recover"]
    assert "the archive is down" in caplog.text


def test_a_store_that_is_away_is_asked_less_and_less() -> None:
    store = Quiet()
    store.answers = dict.fromkeys(store.answers, StoreUnavailable())
    tasks = MaintenanceTasks(store, ["a"], 30_000)  # type: ignore[arg-type]
    run_due(tasks, 50)

    assert len(store.asked) == 1
    assert tasks.due > monotonic()


@pytest.mark.parametrize("lease", [2_000, 10_000, 30_000])
def test_leases_are_spared_once_and_recovered_after_it_however_short_they_are(
    lease: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for the grace to end is no outage: it must not begin the grace again."""
    clock = [monotonic()]
    monkeypatch.setattr("django_jobs.worker.maintenance.tasks.monotonic", lambda: clock[0])
    store = Quiet()
    store.answers["now"] = 0
    tasks = MaintenanceTasks(store, ["a"], lease)  # type: ignore[arg-type]
    tasks.spare_expired_leases(lease / 1000)
    began = clock[0]
    while "recover" not in store.asked and clock[0] - began < 120:
        tasks.step(clock[0])
        clock[0] = max(tasks.due, clock[0] + 0.001)
    assert lease / 1000 <= clock[0] - began <= lease / 1000 + 5


@pytest.mark.accepts("K20", "R25")
@pytest.mark.parametrize("lease", [30_000, 86_400_000])
def test_stuck_jobs_are_looked_for_every_minute_however_long_a_lease_is(
    lease: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [monotonic()]
    monkeypatch.setattr("django_jobs.worker.maintenance.tasks.monotonic", lambda: clock[0])
    store = Quiet()
    store.answers["now"] = 0
    tasks = MaintenanceTasks(store, ["a"], lease)  # type: ignore[arg-type]
    looked, ends = [clock[0]], clock[0] + 600
    while clock[0] < ends:
        asked = store.asked.count("recover")
        tasks.step(clock[0])
        if store.asked.count("recover") > asked:
            looked.append(clock[0])
        clock[0] = max(tasks.due, clock[0] + 0.001)
    assert max(later - earlier for earlier, later in pairwise([*looked, ends])) <= 60


def test_a_full_batch_of_recoveries_is_followed_by_the_next_at_once() -> None:
    store = Quiet()
    store.answers["recover"] = [Recovered(str(n), b"", State.QUEUED, 1, "w", 1, 0, 0) for n in range(100)]
    tasks = MaintenanceTasks(store, ["a"], 30_000)  # type: ignore[arg-type]
    run_due(tasks, 14)
    assert store.asked.count("recover") > 3


def test_jobs_that_nobody_claims_expire_when_their_time_is_over(
    redis_store: Store, make_job: Callable[..., NewJob], clock: Clock
) -> None:
    jobs = [make_job(str(n), expires_at=clock.now + 5) for n in range(3)]
    redis_store.enqueue("a", jobs)
    redis_store.pause("a", reason="a deploy")
    clock.advance(5)
    told: list[SignalEvent] = []
    job_expired.connect(receiver := lambda **_: None)
    run_due(MaintenanceTasks(redis_store, ["a"], 30_000, deliver=told.append), 9)
    job_expired.disconnect(receiver)
    counts = redis_store.stats(["a"])[0].counts
    assert (counts["queued"], counts["expired"]) == (0, 3)
    assert [(event.signal, event.id) for event in told] == [("job_expired", job.id) for job in jobs]


class Informed(Quiet):
    """A store that says in which queues there is something to do."""

    ended: list[str] = []
    due: dict[str, UpkeepDue] = {}

    def lapsed(self, queues: Sequence[str]) -> Sequence[str]:
        return self.ended

    def upkeep_due(self, queues: Sequence[str]) -> dict[str, UpkeepDue]:
        return self.due

    def let_in(self, queue: str, limits: Any, position: str) -> str:
        return ""

    def __getattr__(self, name: str) -> Any:
        def call(queue: str, **given: Any) -> Any:
            self.asked.append(f"{name} {queue}")
            return self.answers[name]

        return call


def test_only_queues_with_something_to_do_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [monotonic()]
    monkeypatch.setattr("django_jobs.worker.maintenance.tasks.monotonic", lambda: clock[0])
    store = Informed()
    names = [f"q{n}" for n in range(100)]
    tasks = MaintenanceTasks(store, names, 30_000)  # type: ignore[arg-type]

    def during(seconds: float) -> list[str]:
        store.asked.clear()
        ends = clock[0] + seconds
        while clock[0] < ends:
            tasks.step(clock[0])
            clock[0] = max(tasks.due, clock[0] + 0.001)
        return store.asked

    store.due = dict.fromkeys(names, UpkeepDue(False, ""))
    assert during(60) == []
    store.ended = ["q1"]
    assert set(during(6)) == {"recover q1", "expire q1"}
    store.ended, store.due["q2"] = [], UpkeepDue(False, "1 0")
    assert sorted(during(11)) == ["prune q2", "reconcile q2"]
    assert during(60) == [], "its sizes have not changed"
    store.due["q2"] = UpkeepDue(False, "2 0")
    assert sorted(during(31)) == ["prune q2", "reconcile q2"]
    store.due["q3"] = UpkeepDue(False, None)  # jobs run there
    assert during(60).count("reconcile q3") in (6, 7)
    store.due = dict.fromkeys(names, UpkeepDue(False, "1"))
    during(11)
    assert len(set(during(1100))) == 100, "in turn, each of them is checked anyway"


class Laborious(Informed):
    """A store of which each check takes 15 ms, and in which one process has the turn."""

    def __init__(self, clock: list[float], queues: list[str]) -> None:
        super().__init__()
        self.clock, self.checks = clock, list[tuple[float, str]]()
        self.turns: dict[str, tuple[float, str]] = {}
        self.due = dict.fromkeys(queues, UpkeepDue(False, None))

    def check_turn(self, queue: str, checker: str, lease: int) -> int:  # type: ignore[override]
        ends, holder = self.turns.get(queue, (0.0, checker))
        if holder != checker and ends > self.clock[0]:
            return int((ends - self.clock[0]) * 1000) + 1
        self.turns[queue] = self.clock[0] + lease / 1000, checker
        return 0

    def reconcile(self, queue: str, **_: Any) -> dict[str, int]:
        self.checks.append((self.clock[0], queue))
        self.clock[0] += 0.015
        return {}


@pytest.mark.parametrize(("queues", "processes"), [(1, 1), (1, 6), (5, 6), (100, 1), (100, 6), (500, 3)])
def test_checks_take_two_percent_of_one_processor_however_many_processes_and_queues(
    queues: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("django_jobs.worker.maintenance.tasks.monotonic", lambda: clock[0])
    store = Laborious(clock, [f"q{n}" for n in range(queues)])
    running = [MaintenanceTasks(store, list(store.due), 30_000) for _ in range(processes)]  # type: ignore[arg-type]

    def during(seconds: float) -> list[tuple[float, str]]:
        del store.checks[:]
        until = clock[0] + seconds
        while clock[0] < until:
            first = min(running, key=lambda tasks: tasks.due)
            clock[0] = max(clock[0], first.due)
            first.step(clock[0])
        return store.checks

    assert len({queue for _, queue in during(400)}) == queues, "each was checked"
    again = len(during(1200)) - queues  # the first check of each queue ends a pause of the time before
    assert 0.015 * again <= max(0.02, queues * 0.015 / 300) * 1200
    for queue in store.due:
        times = [at for at, which in store.checks if which == queue]
        assert max(after - before for before, after in itertools.pairwise(times)) <= 320
    running.pop()
    if running:
        assert len({queue for _, queue in during(640)}) == queues, "the others check what it checked"


def test_samples_are_taken_of_twenty_queues_in_a_call_and_hold_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls, full = [monotonic()], list[list[str]](), [False]
    monkeypatch.setattr("django_jobs.worker.maintenance.tasks.monotonic", lambda: clock[0])
    store = Informed()

    def sample(queues: list[str]) -> None:
        calls.append(queues)
        if full[0]:
            raise StoreFull("no memory")

    store.sample = sample  # type: ignore[method-assign]
    names = [f"q{n}" for n in range(45)]
    tasks = MaintenanceTasks(store, names, 30_000)  # type: ignore[arg-type]

    def during(seconds: float) -> list[int]:
        calls.clear()
        ends = clock[0] + seconds
        while clock[0] < ends:
            tasks.step(clock[0])
            clock[0] = max(tasks.due, clock[0] + 0.001)
        return [len(each) for each in calls]

    store.due = {name: UpkeepDue(False, "1 0", sample=True) for name in names} | {"new": UpkeepDue(False, "", True)}
    assert during(5) == [20, 20, 5]
    assert sorted(name for each in calls for name in each) == sorted(names), (
        "a queue without keys has nothing to sample"
    )
    full[0] = True
    assert during(31) == [20, 20, 20]
    assert not tasks.refused, "what makes room goes on"


# -- the channel ---------------------------------------------------------------------------


def test_messages_arrive_whole_and_the_end_of_a_process_is_seen() -> None:
    parent, child = pair()
    for n in range(50):
        assert child.send(ClaimsChecked("x" * 1000, [str(n)]))
    got: list[Any] = []
    while not parent.is_dry:
        got += parent.receive()
    assert got == [ClaimsChecked("x" * 1000, [str(n)]) for n in range(50)]

    child.close()
    assert parent.receive() == []
    assert not parent.is_open
    assert not parent.send(Drain())
    parent.close()


def test_a_message_comes_out_as_it_went_in() -> None:
    """Messages may hold other messages' parts; names of queues and jobs never look like a message."""
    claim = ClaimId("q", "a", 7)
    for message in (
        Drain(),
        WaitsToBegin(claim),
        MayBegin(claim, begins=False),
        Busy(),
        ChildStatus(3, idle=True, claimed=2, jobs=[{"id": "a", "name": "shop.pay", "queue": "q", "since": 4}]),
        ClaimsInStore({"_": {"7": 2}, "Drain": {}}, ["other"]),
    ):
        assert decode(encode(message)) == message


def test_failures_are_told_in_calls_of_bounded_size_and_what_was_handed_over_by_itself() -> None:
    """A log grows with every attempt, and is written as a whole."""

    def failing(number: int, attempt: int, traceback: str = "") -> list[Attempted]:
        line = Attempt(attempt, "failed", 0, error="no", traceback=traceback)
        return [Attempted(Claim(str(n), "q", 1, b""), RetryIn(5, line)) for n in range(number)]

    def sizes(attempts: list[Attempted]) -> list[int]:
        return [len(call) for call in calls_of(attempts)]

    assert sizes(failing(500, 1)) == [SETTLED_AT_ONCE, SETTLED_AT_ONCE, 100]
    assert sizes(failing(200, 1, "x" * 12_000)) == [88, 88, 24]
    assert sizes(failing(10, 24, "x" * 12_000)) == [4, 4, 2]
    over = Attempted(Claim("a", "q", 1, b""), HandedOver("remote:a", 5))
    snoozed = Attempted(Claim("b", "other", 1, b""), SnoozeFor(5))
    assert sizes([*failing(3, 1), over, snoozed]) == [1, 3, 1]


def test_long_results_are_told_in_several_calls() -> None:
    attempts = [
        Attempted(Claim(str(n), "q", 1, b""), Succeeded(b"x" * (MAX_BYTES * 3 // 4)), wait_ms=0, run_ms=1)
        for n in range(5)
    ]
    assert [[attempted.claim.id for attempted in call] for call in calls_of(attempts)] == [
        ["0", "1"],
        ["2", "3"],
        ["4"],
    ]
