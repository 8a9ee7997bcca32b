"""Jobs that a worker held when it died whole: suspects, of which each worker runs one at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.core.values import Claim, Edited, Lane, State
from django_jobs.stores.redis import Store
from tests.contract.acts import FAILED, LEASE, Q, claim, claim_alone, complete, enqueue, info, start, state_of
from tests.contract.ways_back import handed_back, released, retried, retried_by_hand, snoozed


def lose_whole(store: Store, clock: Any) -> None:
    clock.advance(LEASE)
    store.recover(Q)


def make_suspect(store: Store, job: Any, clock: Any) -> None:
    start(store, job)
    lose_whole(store, clock)


def make_last_chance(store: Store, job: Any, clock: Any) -> None:
    """A suspect whose next crash is its last."""
    make_suspect(store, job, clock)
    assert [claimed.has_to_wait for claimed in claim_alone(store)] == [False]
    lose_whole(store, clock)


def test_a_job_of_a_worker_that_died_whole_is_a_suspect(store: Store, make_job: Any, clock: Any) -> None:
    make_suspect(store, make_job("a"), clock)
    (claimed,) = claim_alone(store)
    assert claimed.suspect


def test_a_job_whose_process_died_and_whose_worker_lives_is_none(store: Store, make_job: Any) -> None:
    start(store, make_job("a"))
    store.recover(Q, worker="w")
    (claimed,) = claim(store, lane=Lane.CLEAR)
    assert (claimed.suspect, claimed.crashes) == (False, 1)


def test_who_may_run_no_suspect_is_given_what_waits_behind(store: Store, make_job: Any, clock: Any) -> None:
    make_suspect(store, make_job("a"), clock)
    enqueue(store, make_job("b", alone=True), make_job("c", alone=True))
    first = store.claim(Q, "w", 1, lane=Lane.CLEAR, lease=LEASE)
    assert ([c.id for c in first.claims], first.left) == (["b"], 1)
    assert store.backlog([Q], lane=Lane.CLEAR) == {Q: 1}
    assert store.backlog([Q], lane=Lane.ALONE) == {Q: 2}
    assert [c.id for c in claim(store, 5, lane=Lane.CLEAR)] == ["c"]
    assert store.claim(Q, "w", 1, lane=Lane.CLEAR, lease=LEASE).left == 0
    assert [c.id for c in claim_alone(store)] == ["a"]


def test_a_suspect_is_never_given_to_the_shared_lane(store: Store, make_job: Any, clock: Any) -> None:
    make_suspect(store, make_job("a"), clock)
    assert claim(store, 5) == []


def parked(store: Store, claimed: Claim, clock: Any) -> None:
    store.park(claimed, "old")
    (again,) = claim_alone(store, knows="new")
    assert again.suspect
    store.release(Q, [again])


def its_process_died(store: Store, claimed: Claim, clock: Any) -> None:
    assert [job.id for job in store.recover(Q, worker=claimed.worker)] == [claimed.id]


@pytest.mark.parametrize("again", [retried, retried_by_hand, snoozed, parked, released, handed_back, its_process_died])
def test_it_is_one_until_it_ends(
    store: Store, make_job: Any, clock: Any, again: Callable[[Store, Claim, Any], None]
) -> None:
    make_suspect(store, make_job("a"), clock)
    (claimed,) = claim_alone(store)
    again(store, claimed, clock)
    assert claim(store, 5, lane=Lane.CLEAR) == []
    (claimed,) = claim_alone(store)
    assert claimed.suspect


def test_its_crashes_and_failures_are_counted_as_of_any(store: Store, make_job: Any, clock: Any) -> None:
    make_suspect(store, make_job("a"), clock)
    (claimed,) = claim_alone(store)
    retried(store, claimed, clock)
    assert (info(store, "a").crashes, info(store, "a").failures) == (1, 1)
    (claimed,) = claim_alone(store)
    assert claimed.attempt == 3


def test_after_its_end_it_begins_among_the_others(store: Store, make_job: Any, clock: Any) -> None:
    make_suspect(store, make_job("a"), clock)
    (claimed,) = claim_alone(store)
    store.bury(claimed, FAILED)
    assert store.revive(Q, ["a"]) == ["a"]
    (claimed,) = claim(store)
    assert not claimed.suspect


def test_it_comes_back_from_its_limit_as_what_it_was(store: Store, make_job: Any, clock: Any) -> None:
    limited = {"limit_key": "k", "limit": 1}
    make_suspect(store, make_job("a", **limited), clock)
    (running,) = start(store, make_job("b", **limited))
    assert claim_alone(store) == []
    assert state_of(store, "a") is State.BLOCKED
    complete(store, running)
    assert claim(store, 5, lane=Lane.CLEAR) == []
    (claimed,) = claim_alone(store)
    assert (claimed.id, claimed.suspect) == ("a", True)


def test_it_stays_one_if_new_arguments_free_it_from_its_limit(store: Store, make_job: Any, clock: Any) -> None:
    make_suspect(store, make_job("a", limit_key="k", limit=1), clock)
    start(store, make_job("b", limit_key="k", limit=1))
    assert claim_alone(store) == []
    edited = make_job("a", limit_key="other", limit=1).record
    assert store.edit(Q, "a", edited, was=info(store, "a").record) is Edited.EDITED
    assert claim(store, 5) == claim(store, 5, lane=Lane.CLEAR) == []
    assert [(each.id, each.suspect) for each in claim_alone(store)] == [("a", True)]


def test_what_is_served_to_suspects_is_served_by_priority_and_age(store: Store, make_job: Any, clock: Any) -> None:
    start(store, make_job("a"), make_job("b"), make_job("urgent", priority=5))
    lose_whole(store, clock)
    enqueue(store, make_job("last", priority=100, alone=True))
    assert [claim_alone(store)[0].id for _ in range(4)] == ["urgent", "a", "b", "last"]


@pytest.mark.parametrize("lost", [lose_whole, lambda store, clock: store.recover(Q, worker="w")])
def test_the_last_crash_of_a_suspect_counts_only_after_it_has_begun(
    store: Store, make_job: Any, clock: Any, lost: Callable[[Store, Any], object]
) -> None:
    make_last_chance(store, make_job("a"), clock)
    for _ in range(4):
        (claimed,) = claim_alone(store)
        assert (claimed.suspect, claimed.has_to_wait, claimed.crashes, claimed.attempt) == (True, True, 2, 3)
        lost(store, clock)
        assert (state_of(store, "a"), info(store, "a").crashes) == (State.QUEUED, 2)
    assert len(info(store, "a").attempts) == 2
    (claimed,) = claim_alone(store)
    assert store.begin(claimed)
    lost(store, clock)
    assert (state_of(store, "a"), info(store, "a").crashes) == (State.DEAD, 3)
    assert [attempt.attempt for attempt in info(store, "a").attempts] == [1, 2, 3]


def test_begun_twice_is_begun_once(store: Store, make_job: Any, clock: Any) -> None:
    make_last_chance(store, make_job("a"), clock)
    (claimed,) = claim_alone(store)
    assert store.begin(claimed)
    assert store.begin(claimed)
    assert (info(store, "a").failures, info(store, "a").crashes) == (0, 2)
    assert complete(store, claimed) == []
    assert not store.begin(claimed)


@pytest.mark.parametrize("again", [retried, retried_by_hand, snoozed, parked, released, handed_back])
def test_each_claim_waits_for_its_own_beginning(
    store: Store, make_job: Any, clock: Any, again: Callable[[Store, Claim, Any], None]
) -> None:
    make_last_chance(store, make_job("a"), clock)
    (first,) = claim_alone(store)
    assert store.begin(first)
    again(store, first, clock)
    (second,) = claim_alone(store)
    assert second.has_to_wait
    assert not store.begin(first), "a call that comes late"
    lose_whole(store, clock)
    assert (state_of(store, "a"), info(store, "a").crashes) == (State.QUEUED, 2)


def test_to_begin_changes_nothing_for_jobs_that_need_not_wait(store: Store, make_job: Any, clock: Any) -> None:
    (claimed,) = start(store, make_job("a"))
    assert not claimed.has_to_wait
    assert store.begin(claimed)
    lose_whole(store, clock)
    assert (info(store, "a").failures, info(store, "a").crashes) == (0, 1)


def test_a_job_that_crashed_its_own_process_is_a_suspect_before_the_death_of_a_worker_ends_it(
    store: Store, make_job: Any, clock: Any
) -> None:
    start(store, make_job("a"))
    store.recover(Q, worker="w")
    (claimed,) = claim(store, lane=Lane.CLEAR)
    store.recover(Q, worker="w")
    (claimed,) = claim(store, lane=Lane.CLEAR)
    assert (claimed.crashes, claimed.has_to_wait) == (2, False)
    lose_whole(store, clock)
    (claimed,) = claim_alone(store)
    assert (claimed.crashes, claimed.has_to_wait) == (2, True)
    assert store.begin(claimed)
    store.recover(Q, worker="w")
    assert state_of(store, "a") is State.DEAD


def test_a_suspect_that_was_asked_to_stop_while_it_waits_is_cancelled(store: Store, make_job: Any, clock: Any) -> None:
    make_last_chance(store, make_job("a"), clock)
    claim_alone(store)
    store.cancel(Q, ["a"])
    lose_whole(store, clock)
    assert state_of(store, "a") is State.CANCELLED


def test_remote_workers_never_wait(store: Store, make_job: Any, clock: Any) -> None:
    make_last_chance(store, make_job("a"), clock)
    (claimed,) = claim_alone(store, worker="remote", lease_each=True)
    assert (claimed.suspect, claimed.has_to_wait) == (True, False)


class Machine:
    """A worker as the parent runs it: children that share, and children for one job at a time."""

    def __init__(self, store: Store, name: str, shared: int, alone: int) -> None:
        lanes = [Lane.SHARED] * shared + [Lane.ALONE] + [Lane.CLEAR] * (alone - 1)
        self.store, self.children = store, {f"{name}:{n}": lane for n, lane in enumerate(lanes)}
        self.held: dict[str, list[Claim]] = {child: [] for child in self.children}

    def waiting(self) -> list[Claim]:
        """The suspect that begins when nothing else runs here."""
        return [claimed for held in self.held.values() for claimed in held if claimed.has_to_wait]

    def claim(self, rng: random.Random) -> None:
        for child, lane in self.children.items():
            if not self.held[child] and not self.waiting():
                self.held[child] = claim(self.store, rng.randint(1, 5), child, lane=lane)

    def die(self) -> None:
        self.held = {child: [] for child in self.children}

    def run(self, rng: random.Random) -> bool:
        """Some of its children end what they hold.  True: a poisonous job was begun, and killed the machine."""
        for child, held in self.held.items():
            if held and held == self.waiting():
                if any(self.held[other] for other in self.children if other != child):
                    continue
                self.store.begin(held[0])
            if any(claimed.id.startswith("poison") for claimed in held):
                self.die()
                return True
            if held and rng.random() < 0.7:
                complete(self.store, *held)
                self.held[child] = []
        return False


@pytest.mark.accepts("G04")
@pytest.mark.parametrize(("machines", "poisonous"), [(1, 1), (2, 1), (3, 1), (1, 4), (3, 6)])
def test_a_machine_that_dies_whole_buries_the_guilty_and_nobody_else(
    store: Store, make_job: Any, clock: Any, machines: int, poisonous: int
) -> None:
    """All its processes at once, as at the memory limit of a container: nobody is left to say which job did it."""
    for seed in range(12):
        rng = random.Random(f"{machines} {seed}")
        innocent = [f"innocent-{seed}-{n}" for n in range(40)]
        guilty = {f"poison-{seed}-{n}" for n in range(poisonous)}
        ids = [*innocent, *sorted(guilty)]
        rng.shuffle(ids)
        enqueue(store, *(make_job(id, alone=rng.random() < 0.4) for id in ids))
        deaths, fleet = 0, [Machine(store, f"m{n}", rng.randint(1, 3), rng.randint(1, 5)) for n in range(machines)]
        while any(state_of(store, id) in {State.QUEUED, State.RUNNING} for id in ids):
            for machine in fleet:
                machine.claim(rng)
                if machine.run(rng):
                    deaths += 1
                    clock.advance(LEASE - 1)
                    store.extend(Q, [child for m in fleet if m is not machine for child in m.children], LEASE)
                    clock.advance(1)
                    store.recover(Q)
        assert {id for id in ids if state_of(store, id) is State.DEAD} == guilty
        assert deaths <= 3 * poisonous


def test_each_waiting_job_knows_how_many_are_claimed_before_it(store: Store, make_job: Any, clock: Any) -> None:
    """Also jobs that came back together: the store has them at one place, and claims them by their ids."""
    ids = [f"j{n}" for n in range(5)]
    start(store, *(make_job(id, alone=True) for id in ids))
    lose_whole(store, clock)
    enqueue(store, *(make_job(id, alone=True) for id in ("new", "newer")))
    suspects = sorted(ids, key=lambda id: store.standing(Q, id).ahead)
    assert [store.standing(Q, id).ahead for id in suspects] == [0, 1, 2, 3, 4]
    assert [store.standing(Q, id).ahead for id in ("new", "newer")] == [0, 1], "nobody waits for a suspect"
    assert [claim_alone(store)[0].id for _ in ids] == suspects
