"""How a job that was claimed comes back to its queue, each as a function of the store, the claim and the clock."""

from __future__ import annotations

from typing import Any

from django_jobs.core.values import Claim, Ended, State
from django_jobs.stores.redis import Store
from tests.contract.acts import FAILED, Q


def retried(store: Store, claimed: Claim, clock: Any) -> None:
    store.retry(claimed, FAILED, 10)
    clock.advance(10)
    store.promote(Q)


def retried_by_hand(store: Store, claimed: Claim, clock: Any) -> None:
    store.retry(claimed, FAILED, 10)
    assert store.revive(Q, [claimed.id]) == [claimed.id]


def snoozed(store: Store, claimed: Claim, clock: Any) -> None:
    store.snooze(claimed, 10)
    clock.advance(10)
    store.promote(Q)


def released(store: Store, claimed: Claim, clock: Any) -> None:
    assert store.release(Q, [claimed]) == []


def handed_back(store: Store, claimed: Claim, clock: Any) -> None:
    assert [job.id for job in store.release_worker(Q, claimed.worker)] == [claimed.id]


def parked(store: Store, claimed: Claim, clock: Any) -> None:
    store.park(claimed, "digest")


def refiled(store: Store, claimed: Claim, clock: Any) -> None:
    assert store.settle(Q, [Ended(claimed, "refile", record=claimed.record)]) == [State.QUEUED]
