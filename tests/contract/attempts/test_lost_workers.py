"""A worker is lost among many: its jobs are found, and what they are charged with is theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.core.values import Claim, Lane, State
from django_jobs.stores.redis import Store
from tests.contract.acts import FAILED, LEASE, Q, claim, claim_alone, enqueue, start, state_of
from tests.contract.ways_back import handed_back, released, retried, retried_by_hand, snoozed


def rescheduled(store: Store, claimed: Claim, clock: Any) -> None:
    store.release(Q, [claimed])
    assert store.reschedule(Q, [claimed.id], clock() + 10) == [claimed.id]
    clock.advance(10)
    store.promote(Q)


@pytest.mark.parametrize("again", [retried, retried_by_hand, snoozed, released, handed_back, rescheduled])
def test_a_job_that_a_dead_worker_held_runs_alone_until_it_ends(
    store: Store, make_job: Any, clock: Any, again: Callable[[Store, Claim, Any], None]
) -> None:
    """In the shared lane it would be there when neighbours kill their process, and be buried for it in the end."""
    start(store, make_job("innocent"))
    store.recover(Q, worker="w")
    (claimed,) = claim_alone(store)
    again(store, claimed, clock)
    assert store.backlog([Q]) == {Q: 0}
    assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}


def test_a_job_that_is_retried_by_hand_after_its_end_begins_among_the_others(store: Store, make_job: Any) -> None:
    start(store, make_job("a"))
    store.recover(Q, worker="w")
    (claimed,) = claim_alone(store)
    store.bury(claimed, FAILED)
    assert store.revive(Q, ["a"]) == ["a"]
    assert store.backlog([Q]) == {Q: 1}


def test_many_remote_jobs_without_a_report_do_not_hide_a_dead_worker(store: Store, make_job: Any, clock: Any) -> None:
    enqueue(store, *(make_job(f"r{n}") for n in range(1000)))
    enqueue(store, *(make_job(f"s{n}") for n in range(100)))
    for _ in range(2):
        store.claim(Q, "remote", 1000, lease=LEASE, lease_each=True)
    clock.advance(1)
    start(store, make_job("a"))
    clock.advance(LEASE)
    assert [lost.id for lost in store.recover(Q)] == ["a"]
    assert len(store.overdue(Q, 100)) == 100


def test_a_dead_worker_among_many_claims_is_found_though_repairs_read_only_some(
    store: Store, make_job: Any, clock: Any
) -> None:
    start(store, make_job("a"), worker="dead")
    enqueue(store, *(make_job(f"b{n}") for n in range(900)))
    assert len(claim(store, 1000, "alive")) == 900
    clock.advance(LEASE - 1)
    store.extend(Q, ["alive"], LEASE)
    clock.advance(1)
    for _ in range(3):
        store.reconcile(Q, 10)
    assert [lost.id for lost in store.recover(Q)] == ["a"]
    assert state_of(store, "b0") is State.RUNNING
