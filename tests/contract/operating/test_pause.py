"""Closed queues and closed job types."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Lane, Pause, State
from tests.contract.acts import Q, claim, claim_ids, counts, enqueue, ids_in, start, state_of


class TestAPausedQueue:
    @pytest.mark.accepts("G11", "G66")
    @pytest.mark.parametrize("lane", Lane)
    def test_gives_nothing_until_it_is_resumed(self, store, make_job, lane):
        enqueue(store, make_job("a", at_most_once=lane is not Lane.SHARED))
        store.pause(Q)
        assert claim(store, lane=lane) == []
        store.resume(Q)
        assert claim_ids(store, lane=lane) == ["a"]

    def test_stays_resumed_if_the_clock_is_set_back(self, store, make_job, clock):
        enqueue(store, make_job("a"), make_job("b"))
        store.pause(Q, until=clock.now + 5000)
        store.resume(Q)
        clock.advance(-60_000)
        assert store.stats([Q])[0].paused is None
        assert store.outlook([Q])[Q].left == 2
        assert claim_ids(store) == ["a"]

    def test_says_why_since_when_and_until_when(self, store, clock):
        store.pause(Q, reason="moving: house", until=clock.now + 5000)
        assert store.stats([Q])[0].paused == Pause("moving: house", clock.now + 5000, clock.now)
        store.resume(Q)
        assert store.stats([Q])[0].paused is None

    def test_opens_by_itself_at_its_time(self, store, make_job, clock):
        enqueue(store, make_job("a"))
        store.pause(Q, until=clock.now + 5000)
        clock.advance(4999)
        assert claim(store) == []
        clock.advance(1)
        assert store.stats([Q])[0].paused is None
        assert claim_ids(store) == ["a"]

    def test_that_was_open_stays_open_when_resumed(self, store, make_job):
        store.resume(Q)
        assert len(start(store, make_job())) == 1


class TestAPausedType:
    def test_comes_back_in_its_order_when_resumed(self, store, make_job):
        store.pause(Q, name="bad")
        enqueue(store, make_job("a", name="bad"), make_job("b", name="bad", priority=1))
        claim(store, 2)
        enqueue(store, make_job("later", name="good"))
        store.resume(Q, name="bad")
        assert claim_ids(store, 3) == ["b", "a", "later"]

    def test_leaves_another_paused_type_blocked(self, store, make_job):
        for name in ("one", "three", "two"):
            store.pause(Q, name=name)
            enqueue(store, make_job(name, name=name))
        claim(store, 3)
        store.resume(Q, name="two")
        assert claim_ids(store, 3) == ["two"]
        assert sorted(ids_in(store, State.BLOCKED)) == ["one", "three"]

    def test_comes_back_whole_by_later_claims_however_many(self, store, make_job):
        store.pause(Q, name="bad")
        enqueue(store, *[make_job(name="bad") for _ in range(700)])
        for _ in range(10):
            claim(store, 100)
        assert counts(store) == {"blocked": 700}
        store.resume(Q, name="bad")
        taken = sum(len(claim(store, 300)) for _ in range(6))
        assert taken == 700

    def test_with_a_limit_is_limited_when_it_is_back(self, store, make_job):
        store.pause(Q, name="bad")
        enqueue(store, *[make_job(i, name="bad", limit_key="bad", limit=1) for i in "ab"])
        assert claim(store, 2) == []
        store.resume(Q, name="bad")
        assert claim_ids(store, 2) == ["a"]
        assert state_of(store, "b") is State.BLOCKED


class TestTheEndOfAPause:
    def test_is_told_to_whoever_claims_like_the_time_of_a_due_job(self, store, clock, make_job):
        store.pause(Q, until=clock.now + 5000)
        assert store.claim(Q, "w", 1, lease=1000).next_due == 5000
        store.resume(Q)
        assert store.claim(Q, "w", 1, lease=1000).next_due is None

    def test_of_a_type_is_told_too_if_nothing_is_due_before(self, store, clock, make_job):
        store.pause(Q, name="bad", until=clock.now + 5000)
        assert store.claim(Q, "w", 1, lease=1000).next_due == 5000
        enqueue(store, make_job(run_at=clock.now + 3000))
        assert store.claim(Q, "w", 1, lease=1000).next_due == 3000

    def test_is_not_told_when_only_a_person_ends_it(self, store):
        store.pause(Q)
        store.pause(Q, name="bad")
        assert store.claim(Q, "w", 1, lease=1000).next_due is None
