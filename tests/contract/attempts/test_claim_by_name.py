"""Claims of remote workers: by the names of jobs, and again under the id of a request."""

from __future__ import annotations

from django_jobs.core.values import Lane, State
from tests.contract.acts import FAILED, LEASE, Q, claim, claim_ids, complete, counts, enqueue, state_of


class TestAClaimByNames:
    def test_takes_only_jobs_of_these_names_and_moves_no_other(self, store, make_job):
        enqueue(store, *[make_job(str(n), name=("a", "b", "c")[n % 3]) for n in range(9)])
        before = store.get(Q, "0")
        assert claim_ids(store, 10, names=["b", "c"]) == ["1", "2", "4", "5", "7", "8"]
        assert [job.id for job in store.page(Q, State.QUEUED)] == ["0", "3", "6"]
        assert store.get(Q, "0") == before
        assert claim_ids(store, 10, names=["b"]) == []

    def test_finds_jobs_behind_any_number_of_others_in_calls_of_bounded_size(self, store, make_job):
        for start in range(0, 2000, 500):
            enqueue(store, *[make_job(f"other-{start + n}", name="other") for n in range(500)])
        enqueue(store, make_job("mine", name="mine"))
        rank, calls, found = 0, 0, []
        while not found and (rank or not calls):
            claimed = store.claim(Q, "w", 5, lease=LEASE, names=["mine"], rank=rank)
            found, rank, calls = claimed.claims, claimed.rank, calls + 1
        assert [each.id for each in found] == ["mine"]
        assert counts(store)["queued"] == 2000

    def test_continues_where_the_last_one_ended_though_jobs_have_left(self, store, make_job):
        for start in (0, 600):
            numbers = range(start, start + 600)
            enqueue(store, *[make_job(str(n), name="mine" if n % 2 else "other") for n in numbers])
        rank, found = 0, []
        while True:
            claimed = store.claim(Q, "w", 100, lease=LEASE, names=["mine"], rank=rank)
            found += [each.id for each in claimed.claims]
            rank = claimed.rank
            if not claimed.claims and not rank:
                break
        assert found == [str(n) for n in range(1200) if n % 2]

    def test_keeps_limits_and_leaves_expired_jobs_of_others_to_them(self, store, make_job, clock):
        enqueue(store, make_job("x", name="other", expires_at=clock.now + 1))
        enqueue(store, *[make_job(str(n), name="mine", limit_key="one", limit=1) for n in range(3)])
        clock.advance(10)
        assert claim_ids(store, 3, names=["mine"]) == ["0"]
        assert state_of(store, "x") is State.QUEUED
        assert counts(store)["blocked"] == 2

    def test_takes_what_cannot_be_read_so_that_people_learn_of_it(self, store, make_job):
        enqueue(store, make_job("bad")._replace(record=b"\xff\xfe"))
        assert claim_ids(store, 1, names=["mine"]) == ["bad"]


class TestAClaimUnderARequestId:
    def test_gets_the_same_jobs_again_with_a_new_lease_and_no_others(self, store, make_job, clock):
        enqueue(store, *[make_job(str(n)) for n in range(4)])
        first = claim(store, 2, "remote", lease_each=True, request="r1")
        clock.advance(LEASE - 1)
        again = claim(store, 2, "remote", lease_each=True, request="r1")
        assert [(each.id, each.token, each.claimed_at, each.worker) for each in again] == [
            (each.id, each.token, each.claimed_at, each.worker) for each in first
        ]
        clock.advance(LEASE - 1)
        assert store.overdue(Q) == []
        assert [each.id for each in claim(store, 2, "remote", lease_each=True, request="r2")] == ["2", "3"]

    def test_does_not_shorten_a_lease_that_was_extended_meanwhile(self, store, make_job, clock):
        enqueue(store, make_job("a"))
        (held,) = claim(store, 1, "remote", lease_each=True, request="r1")
        store.extend(Q, [held.worker], 10 * LEASE)
        assert claim(store, 1, "remote", lease_each=True, request="r1") == [held]
        clock.advance(10 * LEASE - 1)
        assert store.overdue(Q) == []
        clock.advance(1)
        assert [each.id for each in store.overdue(Q)] == ["a"]

    def test_gets_what_is_still_held_and_nothing_when_all_has_ended(self, store, make_job):
        enqueue(store, *[make_job(str(n)) for n in range(4)])
        first, second = claim(store, 2, "remote", lease_each=True, request="r1")
        complete(store, first)
        assert claim_ids(store, 2, worker="remote", lease_each=True, request="r1") == ["1"]
        store.retry(second, FAILED, 0)
        assert claim_ids(store, 2, worker="remote", lease_each=True, request="r1") == []
        assert claim_ids(store, 2, worker="remote", lease_each=True, lane=Lane.ALONE, request="r1") == []
        assert counts(store).get("running", 0) == 0

    def test_that_got_nothing_may_get_something_later(self, store, make_job):
        assert claim(store, 1, "remote", lease_each=True, request="r1") == []
        enqueue(store, make_job("a"))
        assert claim_ids(store, 1, worker="remote", lease_each=True, request="r1") == ["a"]
