"""What `renew` and `holdings` tell of the claims of a worker, and that a worker and its store come to agree on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import RetryIn
from django_jobs.core.values import Claim, Lane, State
from django_jobs.stores.redis import Store
from django_jobs.worker.child import holdings as module
from django_jobs.worker.child.holdings import ClaimComparison, HeldClaims
from tests.contract.acts import (
    FAILED,
    LEASE,
    LOST,
    Q,
    claim,
    claim_alone,
    complete,
    counts,
    done,
    enqueue,
    info,
    start,
    state_of,
)

ENDS: dict[str, Callable[[Store, Claim], object]] = {
    "complete": lambda store, claim: complete(store, claim),
    "retry": lambda store, claim: store.retry(claim, FAILED, 5),
    "snooze": lambda store, claim: store.snooze(claim, 5),
    "bury": lambda store, claim: store.bury(claim, FAILED),
    "discard": lambda store, claim: store.discard(claim, FAILED),
    "release": lambda store, claim: store.release(Q, [claim]),
    "transfer": lambda store, claim: store.transfer(claim, f"remote:{claim.id}", LEASE),
    "kill": lambda store, claim: store.kill(Q, [claim.id], "by hand"),
}


def holds(store: Store, worker: str = "w") -> dict[int, int]:
    """What `renew` says, which must be what `holdings` says."""
    answer: Any = store.renew([Q], [worker], LEASE)[Q]
    told = dict(answer[worker].holds) if worker in answer else {}
    counted = Counter(claim.token for claim in store.holdings(Q, worker))
    assert told == counted
    return told


class TestRenew:
    def test_does_in_each_queue_what_extend_does_in_one(self, store, make_job, clock):
        start(store, make_job("a"), make_job("b"))
        store.enqueue("other", [make_job("c", queue="other")])
        store.claim("other", "w", 1, lease=LEASE)
        store.cancel(Q, ["b"])
        clock.advance(LEASE - 1)
        renewed = store.renew([Q, "other", "empty"], ["w", "nobody"], LEASE)
        assert {queue: {w: list(r.asked) for w, r in told.items()} for queue, told in renewed.items()} == {
            Q: {"w": ["b"]},
            "other": {"w": []},
            "empty": {},
        }
        clock.advance(LEASE - 1)
        assert store.recover(Q) == store.recover("other") == []

    def test_tells_how_many_claims_of_each_call_the_worker_has(self, store, make_job):
        enqueue(store, *[make_job() for _ in range(5)])
        first, second = claim(store, 3), claim(store, 2)
        claim(store, 1, "another")
        assert holds(store) == {first[0].token: 3, second[0].token: 2}
        complete(store, *first[:2], second[0])
        assert holds(store) == {first[0].token: 1, second[0].token: 1}

    @pytest.mark.parametrize("end", ENDS)
    def test_tells_nothing_of_what_has_ended(self, store, make_job, end):
        a, b = start(store, make_job("a"), make_job("b"))
        ENDS[end](store, a)
        assert holds(store) == {b.token: 1}
        ENDS[end](store, b)
        assert holds(store) == {}

    def test_tells_nothing_of_what_was_recovered(self, store, make_job, clock):
        start(store, make_job("a"))
        clock.advance(LEASE)
        store.recover(Q)
        enqueue(store, make_job("b"))
        (b,) = claim(store)
        assert holds(store) == {b.token: 1}


class TestHoldings:
    def test_are_whole_claims(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        start(store, make_job("b"), worker="another")
        assert store.holdings(Q, "w") == [claimed]
        store.retry(claimed, FAILED, 0)
        (again,) = claim(store)
        assert [(c.id, c.failures) for c in store.holdings(Q, "w")] == [("a", 1)] == [(again.id, again.failures)]


class Worker:
    """A child's knowledge, and the heartbeats of its parent."""

    def __init__(self, store: Store) -> None:
        self.store, self.holding, self.lost = store, HeldClaims(), list[str]()
        self.comparison = ClaimComparison(store, "w", self.holding, self.lost.append)

    def claim(self, lane: Lane = Lane.SHARED) -> list[Claim]:
        return self.holding.claim(self.store, Q, "w", 10, lane=lane, lease=LEASE).claims

    def complete(self, *claims: Claim) -> None:
        self.store.complete(Q, [done(claim) for claim in claims])
        self.holding.completed([done(claim) for claim in claims])

    def beat(self, times: int = 2) -> None:
        for _ in range(times):
            told: Any = self.store.renew([Q], ["w"], LEASE)[Q]
            held = {Q: {str(token): n for token, n in told["w"].holds.items()}} if "w" in told else {}
            self.comparison.compare(held, [])


@pytest.fixture
def worker(store: Store) -> Worker:
    return Worker(store)


class TestClaimComparison:
    @pytest.mark.parametrize("at_most_once", [False, True])
    def test_hands_back_what_the_worker_never_heard_of_uncounted(self, store, worker, make_job, at_most_once):
        start(store, make_job("a", at_most_once=at_most_once))
        worker.beat(1)
        assert state_of(store, "a") is State.RUNNING, "it may be on its way"
        worker.beat(1)
        assert state_of(store, "a") is State.QUEUED
        found = info(store, "a")
        assert (found.failures, found.crashes, found.attempts) == (0, 0, ())

    def test_waits_for_a_claim_that_is_under_way(self, store, worker, make_job):
        worker.beat(1)
        worker.holding.claiming = (Q, 0.0)
        start(store, make_job("a"))
        worker.beat(3)
        assert state_of(store, "a") is State.RUNNING
        worker.holding.claiming = None
        worker.beat(1)
        assert state_of(store, "a") is State.QUEUED

    def test_leaves_what_runs_alone_and_asks_nobody(self, store, worker, make_job, monkeypatch):
        enqueue(store, *[make_job() for _ in range(4)])
        claims = worker.claim()
        monkeypatch.setattr(store, "holdings", None)
        worker.beat()
        worker.complete(*claims[:2])
        worker.beat()
        worker.complete(*claims[2:])
        worker.beat()
        assert counts(store) == {"succeeded": 4}
        assert worker.lost == []

    def test_ends_again_what_the_store_has_forgotten_to_have_ended(self, store, worker, make_job):
        enqueue(store, make_job("a"), make_job("b", at_most_once=True), make_job("c"), make_job("d"))
        claims = {claim.id: claim for claim in worker.claim() + worker.claim(Lane.ALONE)}
        # As if they had been recorded, before the store lost its last second:
        worker.holding.completed([done(claims["a"]), done(claims["b"])])
        worker.holding.settled([Attempted(claims["c"], RetryIn(5000, FAILED))])
        worker.holding.released([claims["d"]])
        worker.beat()
        assert {id: str(state_of(store, id)) for id in "abcd"} == {
            "a": "succeeded",
            "b": "succeeded",
            "c": "retry",
            "d": "queued",
        }

    def test_of_what_is_not_remembered_buries_what_may_not_run_twice(self, store, worker, make_job, monkeypatch):
        monkeypatch.setattr(module, "MOST_ENDED", 0)
        enqueue(store, make_job("a"), make_job("b", at_most_once=True))
        worker.holding.completed([done(claim) for claim in worker.claim() + worker.claim(Lane.ALONE)])
        worker.beat()
        assert (state_of(store, "a"), state_of(store, "b")) == (State.QUEUED, State.DEAD)
        (attempt,) = info(store, "b").attempts
        assert attempt.outcome == LOST.outcome

    def test_tells_of_claims_that_the_store_has_lost(self, store, worker, make_job):
        enqueue(store, make_job("a"), make_job("b"))
        worker.claim()
        store.release_worker(Q, "w")
        claim(store, worker="another")
        worker.beat()
        assert worker.lost == [Q]

    def test_finds_one_among_others_that_run(self, store, worker, make_job):
        enqueue(store, make_job("a"))
        worker.claim()
        worker.beat()
        start(store, make_job("b", alone=True))
        worker.beat()
        assert (state_of(store, "a"), state_of(store, "b")) == (State.RUNNING, State.QUEUED)
        assert [claimed.id for claimed in claim_alone(store)] == ["b"]
