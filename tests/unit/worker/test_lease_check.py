"""What a child finds out about its jobs after its lease has ended for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.core.context import RunningJob
from django_jobs.core.values import Claim, Job
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis import Store
from django_jobs.worker.child.lease_check import LeaseCheck
from tests.contract.acts import Q, claim, claim_alone, complete, start


class Child:
    """Runs what it has claimed."""

    def __init__(self, store: Store) -> None:
        self.jobs: list[RunningJob] = []
        self.store: Any = store
        self.lease_check = LeaseCheck(self, lambda: list(self.jobs))  # type: ignore[arg-type]

    def get_many(self, queue: str, ids: list[str]) -> Any:
        return self.store.get_many(queue, ids)

    def run(self, *claims: Claim) -> None:
        self.jobs += [RunningJob(c, Job(c.id, c.queue, "tests.job", b"", 0), [], {}) for c in claims]

    def check(self, *queues: str) -> dict[str, list[str]]:
        self.lease_check.queues |= set(queues)
        return dict(self.lease_check.settle())


@pytest.fixture
def child(store: Store) -> Child:
    return Child(store)


def test_what_is_still_held_is_ours(store: Store, child: Child, make_job: Callable[..., Any]) -> None:
    child.run(*start(store, make_job("a"), make_job("b")))
    assert child.check(Q) == {Q: []}
    assert child.check() == {}


def test_what_another_worker_runs_is_lost_and_the_rest_is_not(
    store: Store, child: Child, make_job: Callable[..., Any]
) -> None:
    child.run(*start(store, make_job("a"), make_job("b"), worker="w"))
    store.recover(Q, worker="w", limit=1)
    (other,) = claim_alone(store, worker="other")
    assert child.check(Q) == {Q: [other.id]}


def test_what_waits_or_has_ended_elsewhere_is_lost(store: Store, child: Child, make_job: Callable[..., Any]) -> None:
    child.run(*start(store, make_job("a"), make_job("b")))
    store.recover(Q, worker="w")
    complete(store, *claim_alone(store, worker="other"))
    assert set(child.check(Q)[Q]) == {"a", "b"}


def test_what_was_claimed_again_here_is_lost_to_whoever_runs_it_on_the_old_claim(
    store: Store, child: Child, make_job: Callable[..., Any]
) -> None:
    child.run(*start(store, make_job("a")))
    store.release_worker(Q, "w")
    assert claim(store, worker="w")
    assert child.check(Q) == {Q: ["a"]}


def test_what_ends_while_the_store_is_asked_is_not_lost(
    store: Store, child: Child, make_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = start(store, make_job("a"))
    child.run(*claims)

    def ended_meanwhile(queue: str, ids: list[str]) -> Any:
        complete(store, *claims)
        child.jobs.clear()
        return store.get_many(queue, ids)

    monkeypatch.setattr(child, "get_many", ended_meanwhile)
    assert child.check(Q) == {Q: []}


def test_a_store_that_does_not_answer_is_asked_again(
    store: Store, child: Child, make_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    child.run(*start(store, make_job("a")))
    store.recover(Q, worker="w")

    def silent(queue: str, ids: list[str]) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as away:
        away.setattr(child, "get_many", silent)
        assert child.check("another", Q) == {"another": []}
    assert child.check() == {Q: ["a"]}
