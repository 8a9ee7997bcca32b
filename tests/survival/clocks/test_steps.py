"""The store's clock is set, by a minute or a day, forward or back: what workers hold stays theirs."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import pytest

from django_jobs.core.values import Lane, NewJob, State
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from tests.conftest import Clock

pytestmark = [pytest.mark.survival, pytest.mark.redis]

Q, LEASE = "default", 30_000
MINUTE, DAY = 60_000, 86_400_000


class Fleet:
    """A worker that lives, and the maintenance of another.  Both have a clock that goes on while the store's steps."""

    def __init__(self, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.clock, self.mine = store, clock, [monotonic()]
        for module in ("stores.redis.connection.clock_steps", "worker.maintenance.tasks", "stores.redis.settling"):
            monkeypatch.setattr(f"django_jobs.{module}.monotonic", lambda: self.mine[0])
        self.tasks = MaintenanceTasks(store, [Q], LEASE)

    def live(self, seconds: int) -> None:
        """So much time passes; the living worker renews its leases every five seconds."""
        for second in range(seconds):
            self.clock.advance(1000)
            self.mine[0] += 1
            while self.tasks.due <= self.mine[0]:
                self.tasks.step(self.mine[0])
            if second % 5 == 4:
                self.store.extend(Q, ["alive"], LEASE)

    def state(self, id: str) -> State:
        info = self.store.get(Q, id)
        assert info is not None
        return info.state


@pytest.fixture
def fleet(redis_store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(redis_store, clock, monkeypatch)


@pytest.mark.accepts("R33", "G57")
@pytest.mark.parametrize("step", [MINUTE, DAY, -MINUTE, -DAY])
def test_a_step_takes_no_claim_from_a_worker_that_lives(
    fleet: Fleet, make_job: Callable[..., NewJob], step: int
) -> None:
    store = fleet.store
    store.enqueue(Q, [make_job("plain"), make_job("once", at_most_once=True), make_job("dead")])
    for lane in Lane:
        store.claim(Q, "alive", 1, lane=lane, lease=LEASE)
    fleet.live(60)
    fleet.clock.advance(step)
    fleet.live(60)
    assert [fleet.state(id) for id in ("plain", "once")] == [State.RUNNING] * 2
    store.claim(Q, "dies", 1, lease=LEASE)
    fleet.live(LEASE // 1000 - 1)
    assert fleet.state("dead") is State.RUNNING
    fleet.live(6)
    assert fleet.state("dead") is State.QUEUED, "a dead worker is found as soon as ever"


@pytest.mark.accepts("R33")
@pytest.mark.parametrize("step", [MINUTE, DAY])
def test_a_process_that_begins_after_a_step_takes_only_what_nobody_renews(
    fleet: Fleet, make_job: Callable[..., NewJob], step: int
) -> None:
    store = fleet.store
    store.enqueue(Q, [make_job("lives"), make_job("lost")])
    for worker in ("alive", "dead"):
        store.claim(Q, worker, 1, lease=LEASE)
    fleet.clock.advance(step)
    vars(store).pop("_steps_of_clocks", None)
    fleet.tasks = MaintenanceTasks(store, [Q], LEASE)
    fleet.live(5)
    assert fleet.state("lost") is State.RUNNING
    assert not fleet.tasks.has_recovered, "a burst waits for it"
    fleet.live(4)
    assert [fleet.state(id) for id in ("lives", "lost")] == [State.RUNNING, State.QUEUED]
    assert fleet.tasks.has_recovered
