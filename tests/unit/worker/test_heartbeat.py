"""The heartbeat of a parent: whom it asks and when, and what it makes of the answers and of silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from django_jobs.conf import QueueSettings, read
from django_jobs.exceptions import StoreCorrupt, StoreUnavailable
from django_jobs.stores.values.answers import Renewal
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.parent.heartbeat import Heartbeat
from django_jobs.worker.parent.queue_capacity import QueueCapacity
from django_jobs.worker.served_queues import ServedQueues
from django_jobs.worker.shared_memory import SharedMemory

#: Seconds that a call to a silent server takes.
SILENCE = 5.0


class Clock:
    """Monotonic seconds that pass when somebody waits."""

    def __init__(self) -> None:
        self.now = monotonic()

    def __call__(self) -> float:
        return self.now


class Fleet:
    """Answers heartbeats; queue "a1" is on server "a"."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[str] = []
        self.round_trips = 0
        #: seconds of each call.
        self.takes = 0.0
        self.holders = {"child-1"}
        self.renewed: dict[str, list[float]] = {}
        self.silent: set[str] = set()
        self.broken: set[str] = set()
        #: queues in which nobody holds anything.
        self.idle: set[str] = set()
        #: the names of all queues in the store.
        self.found: list[str] = []

    def server_of(self, queue: str) -> str:
        return queue[0]

    renewed_at_once = 100

    def queues(self) -> list[str]:
        if "fleet" in self.silent:
            raise StoreUnavailable
        return self.found

    def renew(self, queues: Sequence[str], workers: Sequence[str], lease: int) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for queue in queues:
            self._call(f"extend {queue}", queue[0])
            if queue in self.broken:
                answers[queue] = StoreCorrupt()
                continue
            self.renewed.setdefault(queue, []).append(self.clock.now)
            asked = [f"job in {queue}"]
            holds = {} if queue in self.idle else {7: 1}
            asked = asked if holds else []
            answers[queue] = {worker: Renewal(asked, holds) for worker in workers if worker in self.holders}
        self.round_trips += 1
        return answers

    def publish_worker(self, name: str, info: Any, ttl: int) -> list[str]:
        self._call("publish", "fleet")
        return ["quiet"]

    def _call(self, what: str, server: str) -> None:
        self.calls.append(what)
        self.clock.now += self.takes
        if server in self.silent:
            self.clock.now += SILENCE
            raise StoreUnavailable


class OneChild:
    """A parent with one child, which shows the queues that it claims from."""

    name = "child-1"

    def __init__(self, store: Fleet, queues: ServedQueues) -> None:
        self.store, self.shared, self.closed = store, SharedMemory(queues.names, 1, queues.most), frozenset[str]()

    def __iter__(self) -> Any:
        return iter([self])

    def close_queues(self, queues: frozenset[str]) -> None:
        self.closed = queues
        self.shared.close_queues(queues)


class Beat:
    """A heartbeat on such a fleet, and what it has told its parent."""

    def __init__(self, clock: Clock, *queues: str, lease: int = 6000) -> None:
        self.clock, self.fleet = clock, Fleet(clock)
        self.told: list[Any] = []
        self.in_doubt: list[tuple[str, str]] = []
        self.held: list[tuple[str, Any, list[str]]] = []
        self.workers = ["child-1"]
        self.served = ServedQueues(map(QueueSettings, queues), ["new-*"])
        self.child_processes = OneChild(self.fleet, self.served)
        for queue in queues:
            self.claims(queue)
        self.capacity = QueueCapacity(self.served, lease, self.child_processes)  # type: ignore[arg-type]
        self.heart = Heartbeat(
            self.fleet,  # type: ignore[arg-type]
            WorkerConfig(queues=self.served, lease=lease),
            "parent",
            workers=lambda: self.workers,
            describe=dict,
            asked_to_stop=lambda *given: self.told.append(given),
            command=self.told.append,
            holds_nothing=lambda worker, queue, asked_at: self.in_doubt.append((worker, queue)),
            holds=lambda worker, held, unasked: self.held.append((worker, held, list(unasked))),
            capacity=self.capacity,
        )

    def claims(self, queue: str) -> None:
        """The child claims from the queue, and gets an answer."""
        self.child_processes.shared.begin_claim(queue)
        self.child_processes.shared.claim_succeeded(queue, [])
        self.child_processes.shared.end_claim()

    def calls(self) -> list[str]:
        """The calls of the next round."""
        seen, due = len(self.fleet.calls), self.heart.due
        self.clock.now = max(self.clock.now, due)
        while self.heart.due == due:  # until the round has ended, well or not
            self.heart.step(self.clock.now)
        return self.fleet.calls[seen:]

    def go_on(self, seconds: float) -> None:
        """Rounds for that long."""
        ends = self.clock.now + seconds
        while self.clock.now < ends:
            self.calls()


@pytest.fixture
def make_beat(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Beat]:
    clock = Clock()
    for module in ("heartbeat", "queue_capacity"):
        monkeypatch.setattr(f"django_jobs.worker.parent.{module}.monotonic", clock)
    return lambda *queues, **given: Beat(clock, *queues, **given)


@pytest.mark.accepts("G67")
def test_a_worker_without_settings_beats_every_five_seconds(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", lease=round(read({"STORE": "memory"}).lease * 1000))
    times = []
    for _ in range(4):
        assert {"extend a1", "publish"} <= set(beat.calls())
        times.append(beat.clock.now)
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([5.0] * 3)


def test_each_child_is_told_what_the_store_has_for_it_and_what_was_not_asked(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "a2")
    beat.workers = ["child-1", "child-2"]
    beat.fleet.broken = {"a1"}
    beat.calls()
    assert beat.held == [("child-1", {"a2": {7: 1}}, ["a1"]), ("child-2", {}, ["a1"])]


def test_a_queue_whose_leases_cannot_be_renewed_is_told_once_each_time(
    make_beat: Callable[..., Beat], caplog: pytest.LogCaptureFixture
) -> None:
    """With many queues and a user that lost a permission, a line for each queue in each round would bury all others."""
    beat = make_beat("a1", "a2")
    for times in (1, 2):
        beat.fleet.broken = {"a1"}
        for _ in range(3):
            beat.calls()
        assert caplog.text.count("Leases in queue 'a1' cannot be renewed") == times
        beat.fleet.broken = set()
        beat.calls()


def test_rounds_that_endanger_leases_are_told_once(
    make_beat: Callable[..., Beat], caplog: pytest.LogCaptureFixture
) -> None:
    beat = make_beat("a1", "a2", lease=6000)
    beat.fleet.takes = 0.5
    beat.calls()
    assert "fewer queues" not in caplog.text
    beat.fleet.takes = 1.5
    beat.calls()
    beat.calls()
    assert caplog.text.count("fewer queues") == 1


QUEUES = [f"a{n:02}" for n in range(40)]


def test_a_worker_that_cannot_renew_in_time_claims_from_fewer_queues(make_beat: Callable[..., Beat]) -> None:
    """Of a lease of 6 s a quarter is planned for: 15 calls of 0.1 s."""
    beat = make_beat(*QUEUES)
    beat.fleet.renewed_at_once, beat.fleet.takes = 1, 0.0999  # a hair less: clocks round
    beat.heart.step(beat.clock.now)
    beat.heart.step(beat.clock.now)
    assert beat.child_processes.closed == set(QUEUES[15:]), "after the second call of the first round"
    beat.calls()
    assert len(beat.calls()) == 41, "what is held is renewed"

    beat.fleet.idle = set(QUEUES[20:])
    beat.calls()
    assert len(beat.calls()) == 21, "and what is not need not be"
    assert not beat.child_processes.shared.is_open(QUEUES[15])

    beat.fleet.takes, beat.fleet.idle = 0.001, set()
    beat.calls()
    beat.calls()
    assert beat.child_processes.closed == frozenset()
    assert len(beat.calls()) == 41


def test_a_worker_that_cannot_renew_in_time_claims_from_no_new_queue_either(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat(*QUEUES)
    beat.fleet.renewed_at_once, beat.fleet.takes = 1, 0.0999
    beat.calls()
    beat.fleet.found = ["new-1", "new-2", "old"]
    beat.capacity.step(beat.clock.now)
    assert beat.child_processes.closed == {*QUEUES[15:], "new-1", "new-2"}
    assert not beat.child_processes.shared.is_open("new-1")

    beat.fleet.takes = 0.001
    for _ in range(4):
        beat.calls()
    assert beat.child_processes.closed == frozenset()
    assert beat.child_processes.shared.is_open("new-2")
    beat.claims("new-2")
    assert "extend new-2" in beat.calls()


def test_new_queues_are_looked_for_every_two_seconds(make_beat: Callable[..., Beat]) -> None:
    beat, looks = make_beat("a1"), []
    for _ in range(40):
        beat.clock.now += 0.25
        before, beat.fleet.found = list(beat.served.names), [f"new-{beat.clock.now}"]
        beat.capacity.step(beat.clock.now)
        looks.append(list(beat.served.names) != before)
    assert looks.count(True) == 5
    beat.fleet.silent, beat.clock.now = {"fleet"}, beat.clock.now + 3
    beat.capacity.step(beat.clock.now)  # it is tried again
    assert beat.capacity.due > beat.clock.now


def test_a_queue_is_renewed_while_a_claim_from_it_may_be_under_way(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat(*QUEUES)
    beat.child_processes.shared.begin_claim(QUEUES[30])
    beat.fleet.renewed_at_once, beat.fleet.takes, beat.fleet.idle = 1, 0.0999, set(QUEUES[15:])
    for _ in range(3):
        beat.calls()
    assert beat.calls() == [*(f"extend {queue}" for queue in sorted([*QUEUES[:15], QUEUES[30]])), "publish"]


def test_a_worker_without_answers_fences_itself_before_its_lease_ends(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "a2")
    began = beat.heart.last_round
    beat.fleet.silent = {"a", "fleet"}
    beat.calls()

    verdicts = {}
    for after in (1.0, 4.9, 5.1, 6.1, 12.1):
        beat.clock.now = began + after
        verdicts[after] = (beat.heart.should_fence, beat.heart.has_lost_leases, beat.heart.is_hopeless)
    assert verdicts == {
        1.0: (False, False, False),
        4.9: (False, False, False),
        5.1: (True, False, False),
        6.1: (True, True, False),
        12.1: (True, True, True),
    }


def test_a_worker_that_was_only_frozen_asks_before_it_despairs(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "a2")
    beat.clock.now += 3600

    assert not beat.heart.should_fence
    beat.calls()
    assert not beat.heart.should_fence


def test_who_has_no_lease_is_looked_into_in_every_round(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1")
    beat.workers = ["child-1", "child-2"]
    beat.calls()
    beat.calls()

    assert beat.in_doubt == [("child-2", "a1")] * 2


def test_after_a_silence_longer_than_a_lease_everybody_is_looked_into_once(make_beat: Callable[..., Beat]) -> None:
    """Whoever claims before his parent asks has a lease again."""
    beat = make_beat("a1", "a2", lease=6000)
    beat.calls()
    beat.clock.now += 5.9
    beat.calls()
    assert beat.in_doubt == []
    beat.clock.now += 6.1
    beat.calls()
    beat.calls()
    assert beat.in_doubt == [("child-1", "a1"), ("child-1", "a2")]


# -- several servers ---------------------------------------------------------------


@pytest.mark.parametrize("dead", ["a", "abc"])
def test_no_lease_on_a_server_that_answers_ends_while_others_are_silent(
    make_beat: Callable[..., Beat], dead: str
) -> None:
    queues = [f"{server}{n}" for server in "abcd" for n in range(8)]
    beat = make_beat(*queues, lease=30_000)
    beat.go_on(60)
    beat.fleet.silent = set(dead)
    beat.go_on(600)

    for queue in queues:
        if queue[0] not in dead:
            times = [*beat.fleet.renewed[queue], beat.clock.now]
            assert max(later - earlier for earlier, later in pairwise(times)) < 30, queue


def test_leases_that_cannot_be_renewed_fence_the_worker_though_others_are(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "b1", lease=30_000)
    beat.calls()
    beat.fleet.silent = {"a"}
    beat.go_on(31)

    assert len(beat.fleet.renewed["b1"]) > 2
    assert beat.heart.has_lost_leases


def test_leases_that_are_refused_fence_the_worker_unless_others_are_renewed(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "b1", lease=30_000)
    beat.fleet.broken = {"a1"}
    beat.go_on(60)
    assert beat.heart.silence == 0
    beat.fleet.broken = {"a1", "b1"}
    beat.go_on(31)
    assert beat.heart.has_lost_leases
    beat.fleet.broken = set()
    beat.go_on(1)
    assert not beat.heart.should_fence


def test_who_cannot_show_himself_but_renews_his_leases_works_on(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", lease=30_000)
    beat.fleet.silent = {"fleet"}
    beat.go_on(120)

    assert not beat.heart.retry_state.is_on
    assert beat.heart.silence == 0


def test_who_holds_nothing_learns_of_a_silent_store_by_showing_himself(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1")
    beat.workers = []
    beat.fleet.silent = {"a", "fleet"}
    beat.go_on(13)

    assert beat.heart.is_hopeless


# -- queues in which nobody holds anything -----------------------------------------


def test_idle_queues_are_not_renewed_but_one_of_each_server(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "a2", "a3", "b1", "b2")
    beat.fleet.idle = {"a1", "a2", "b1", "b2"}
    beat.go_on(3)
    assert len(beat.calls()) == 6  # they were idle for less than a lease: a server may forget its last seconds
    beat.go_on(3)
    assert sorted(beat.calls()) == ["extend a3", "extend b1", "publish"]


def test_a_queue_is_renewed_again_from_the_next_beat_after_a_claim_call(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "a2", "a3")
    beat.fleet.idle = {"a1", "a2", "a3"}
    beat.go_on(9)
    assert beat.calls() == ["extend a1", "publish"]
    beat.claims("a2")
    assert "extend a2" in beat.calls()
    assert "extend a3" not in beat.calls()
    beat.fleet.idle.discard("a2")  # what it claimed is held for long
    beat.go_on(20)
    assert "extend a2" in beat.calls()


def test_a_queue_is_renewed_while_a_claim_call_may_still_arrive(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "a2")
    beat.fleet.idle = {"a1", "a2"}
    beat.child_processes.shared.begin_claim("a2")
    beat.child_processes.shared.claim_failed("a2")
    beat.child_processes.shared.end_claim()
    beat.go_on(20)
    assert "extend a2" in beat.calls()
    beat.claims("a2")
    beat.go_on(9)
    assert "extend a2" not in beat.calls()


def test_after_an_outage_all_queues_are_renewed_again(make_beat: Callable[..., Beat]) -> None:
    beat = make_beat("a1", "a2")
    beat.fleet.idle = {"a1", "a2"}
    beat.go_on(9)
    beat.fleet.silent = {"a"}
    beat.calls()
    beat.fleet.silent = set()
    assert {"extend a1", "extend a2"} <= set(beat.calls())
