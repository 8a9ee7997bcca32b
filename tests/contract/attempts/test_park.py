"""Jobs that a worker does not know wait for one that does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from django_jobs.core.values import Controls, Job, Lane, NewJob, State
from django_jobs.serialization.record import encode
from tests.contract.acts import LEASE, Q, claim, counts, enqueue, ids_in, info, start, state_of

OLD, NEW = "0ld", "2ew"


def claimed_by(store, knows, limit=10, **options):
    return store.claim(Q, f"worker {knows}", limit, lease=LEASE, knows=knows, **options)


def park(store, *ids):
    """Have an old worker meet these, which it does not know."""
    for found in claimed_by(store, OLD).claims:
        if found.id in ids:
            assert store.park(found, OLD) is State.BLOCKED
        else:
            store.release(Q, [found])


class TestPark:
    def test_moves_running_to_blocked_and_is_no_attempt(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        assert store.park(claimed, OLD) is State.BLOCKED
        found = info(store, "a")
        assert (found.state, found.failures, found.crashes, found.attempts) == (State.BLOCKED, 0, 0, ())
        assert found.parked_at == clock.now
        assert found.record == claimed.record

    @pytest.mark.parametrize("verb", ["cancel", "delete", "revive", "reschedule"])
    def test_leaves_a_job_that_people_may_move(self, store, make_job, verb):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        args = {"reschedule": (Q, ["a"], 1)}.get(verb, (Q, ["a"]))
        assert list(getattr(store, verb)(*args)) == ["a"]
        assert state_of(store, "a") is {
            "cancel": State.CANCELLED, "delete": None, "revive": State.QUEUED, "reschedule": State.SCHEDULED,
        }[verb]  # fmt: skip
        assert store.faults(Q) == ({}, True)


class TestAParkedJob:
    @pytest.mark.accepts("R04")
    def test_comes_back_in_the_claim_of_a_worker_that_may_know_it(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        (again,) = claimed_by(store, NEW).claims
        assert (again.id, again.attempt, again.parked_at) == ("a", 1, 0)
        assert info(store, "a").parked_at == 0

    def test_does_not_come_back_to_workers_that_do_not_know_it(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        found = claimed_by(store, OLD)
        assert (found.claims, found.left, found.others) == ([], 0, True)

    def test_keeps_the_others_of_its_name_from_workers_that_do_not_know_it(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        enqueue(store, *(make_job(f"n{n}", name="new") for n in range(5)), make_job("b", name="old"))
        found = claimed_by(store, OLD)
        assert [each.id for each in found.claims] == ["b"]
        assert counts(store) == {"running": 1, "blocked": 6}
        assert info(store, "n3").parked_at > 0
        assert [each.id for each in claimed_by(store, NEW).claims] == ["a", *(f"n{n}" for n in range(5))]

    def test_comes_back_however_many_others_of_its_kind_there_are(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        enqueue(store, *(make_job(f"n{n}", name="new") for n in range(600)))
        for _ in range(5):
            claimed_by(store, OLD)
        assert counts(store) == {"blocked": 601}
        got = []
        while (found := claimed_by(store, NEW, 100)).claims:
            got += [each.id for each in found.claims]
            claimed_by(store, OLD)
        assert got == ["a", *(f"n{n}" for n in range(600))]

    def test_comes_back_behind_many_names_that_nobody_knows(self, store, make_job):
        names = [f"new{n:03}" for n in range(70)]
        enqueue(store, *(make_job(name, name=name) for name in names))
        for found in claimed_by(store, OLD, 100).claims:
            store.park(found, OLD)
        met = set()
        while met != set(names):
            for found in claimed_by(store, NEW, 100).claims:
                met.add(found.id)
                store.park(found, OLD if found.id == "new065" else NEW)
        got = [each.id for _ in range(10) for each in claimed_by(store, NEW, 100).claims]
        assert got == ["new065"]

    def test_does_not_hold_up_what_stands_behind_it(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        enqueue(store, *(make_job(f"n{n}", name="new", priority=5) for n in range(300)), make_job("b", name="old"))
        assert [each.id for each in claimed_by(store, OLD, 1).claims] == ["b"]

    def test_waits_in_the_lane_that_it_had(self, store, make_job):
        enqueue(store, make_job("a", name="new", alone=True))
        (found,) = claimed_by(store, OLD, lane=Lane.ALONE).claims
        store.park(found, OLD)
        assert claimed_by(store, NEW).claims == []
        assert [each.id for each in claimed_by(store, NEW, lane=Lane.ALONE).claims] == ["a"]

    def test_stays_where_whatever_comes_is_taken(self, store, make_job):
        """Workers that fetch over HTTP have no list of names."""
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        assert claim(store) == []
        assert ids_in(store, State.BLOCKED) == ["a"]

    def test_respects_a_pause_and_its_limit_when_it_comes_back(self, store, make_job):
        enqueue(store, *(make_job(id, name="new", limit_key="k", limit=1) for id in "ab"))
        park(store, "a")
        store.pause(Q, name="new")
        assert claimed_by(store, NEW).claims == []
        store.resume(Q, name="new")
        assert len(claimed_by(store, NEW).claims) == 1
        assert counts(store) == {"running": 1, "blocked": 1}

    def test_expires_when_its_time_is_over(self, store, make_job, clock):
        enqueue(store, make_job("a", name="new", expires_at=clock.now + 1000))
        park(store, "a")
        clock.advance(1000)
        assert [one.id for one in claimed_by(store, NEW).expired] == ["a"]

    def test_is_no_fault(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        assert store.faults(Q) == ({}, True)
        assert set(store.reconcile(Q).values()) == {0}
        assert state_of(store, "a") is State.BLOCKED

    def test_is_offered_to_whoever_waits_until_one_takes_it(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        assert store.wait_for_work([Q], 1.0) is not None
        while store.wait_for_work([Q], 0.01, passed_over=[Q]) is not None:
            pass
        claimed_by(store, OLD)
        assert store.wait_for_work([Q], 0.01, passed_over=[Q]) is None

    def test_that_came_while_those_that_know_it_were_busy_wakes_the_first_that_is_free(self, store, make_job):
        enqueue(store, make_job("a", name="new"))
        park(store, "a")
        while store.wait_for_work([Q], 0.01) is not None:
            pass
        claimed_by(store, OLD)
        with ThreadPoolExecutor(1) as another:
            assert another.submit(store.wait_for_work, [Q], 1.0).result() is not None


def test_a_record_of_a_newer_format_waits_for_workers_that_read_it(store, clock):
    record = encode(Job("a", Q, "job", b"[[],{}]", clock.now)).replace(b"\njob\n", b"\njob\t2\n")
    enqueue(store, NewJob("a", record))
    park(store, "a")
    enqueue(store, NewJob("b", encode(Job("b", Q, "job", b"[[],{}]", clock.now))))
    assert [each.id for each in claimed_by(store, OLD).claims] == ["b"]
    assert [each.id for each in claimed_by(store, NEW).claims] == ["a"]


def test_what_a_newer_version_wrote_is_respected_by_the_scripts_of_an_older_one(store, clock):
    """It never runs the job, but it may be the one that recovers it."""
    controls = Controls(at_most_once=True)
    record = encode(Job("a", Q, "job", b"[[],{}]", clock.now, controls=controls)).replace(b"\njob\n", b"\njob\t2\n")
    (claimed,) = start(store, NewJob("a", record, controls))
    store.recover(Q, worker=claimed.worker)
    assert state_of(store, "a") is State.DEAD
