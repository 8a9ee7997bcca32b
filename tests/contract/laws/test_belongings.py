"""Whatever happens to jobs, nothing is kept of one that is gone."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from django_jobs.core.values import Added, Ended, Lane, State
from tests.contract.acts import FAILED, LEASE, LOST, Q, claim, complete, done, enqueue, info, start
from tests.support.fsck import Snapshot, fsck

IDS = ["j0", "j1"]
#: how often each is met: what leads on is met more often than what ends everything
VERBS = [
    *("enqueue", "claim", "complete", "revive") * 3,
    *("once", "retry", "snooze", "park", "refile", "bury", "discard", "release", "checkin"),
    *("recover", "release_worker", "cancel", "kill", "delete", "reschedule", "edit", "time", "prune", "reconcile"),
]
HISTORIES = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from(IDS)), min_size=60, max_size=150)


def left_behind(store):
    """Entries of jobs that are gone, by the raw keys."""
    return [text for text in fsck(store, Q) if "has an entry of" in text or "which has no record" in text]


class Walk:
    """Random acts on few ids, with a history so short that jobs are trimmed all the time."""

    def __init__(self, store, make_job, clock):
        self.store, self.make_job, self.clock = store, make_job, clock
        self.claims = []

    def step(self, verb, id):
        store = self.store
        held = next((c for c in reversed(self.claims) if c.id == id), None)
        match verb:
            case "enqueue":
                limited = {"limit_key": "k", "limit": 1} if id == "j0" else {}
                enqueue(store, self.make_job(id, unique="ab" * 32 if id == "j1" else None, **limited))
            case "once":
                enqueue(store, self.make_job(id, at_most_once=id == "j0", expires_at=0, expires_in=700))
            case "claim":
                for lane in Lane:
                    self.claims += claim(store, 3, lane=lane)
            case "time":
                self.clock.advance(400)
            case "recover" | "release_worker":
                (store.recover if verb == "recover" else store.release_worker)(Q, worker="w")
            case "prune" | "reconcile":
                getattr(store, verb)(Q)
            case "cancel" | "revive" | "delete":
                getattr(store, verb)(Q, [id])
            case "kill":
                store.kill(Q, [id], "by hand")
            case "reschedule":
                store.reschedule(Q, [id], self.clock.now + 300)
            case "edit":
                if (found := store.get(Q, id)) is not None:
                    record = self.make_job(id, args=b"[[2],{}]").record
                    if b"expires_at" in found.record:  # which an edit keeps
                        record = found.record.replace(b"[[],{}]", b"[[2],{}]")
                    store.edit(Q, id, record, was=found.record)
            case _ if held is None:
                pass
            case "complete":
                store.complete(Q, [done(held, result=b"1")])
            case "retry" | "snooze":
                getattr(store, verb)(held, *([FAILED] if verb == "retry" else []), 300)
            case "park":
                store.park(held, "digest")
            case "bury":
                store.bury(held, FAILED if id != "j1" else LOST)
            case "discard":
                store.discard(held, FAILED)
            case "refile":
                store.settle(Q, [Ended(held, "refile", record=held.record)])
            case "release":
                store.release(Q, [held])
            case "checkin":
                store.checkin(held, b"{}")


def test_no_history_leaves_anything_behind(make_store, make_job, clock):
    store = make_store(history=0, dead=1)

    @settings(max_examples=20, phases=[Phase.reuse, Phase.generate])  # shrinking takes minutes
    @given(HISTORIES)
    def walk(history):
        store.recover(Q, worker="w")
        store.release_worker(Q, "w")
        store.delete(Q, IDS)
        one = Walk(store, make_job, clock)
        for verb, id in history:
            one.step(verb, id)
            assert left_behind(store) == [], (verb, id)
            assert list(Snapshot(store, Q).expiries()) == [], (verb, id)

    walk()


def test_the_log_of_a_job_that_was_revived_goes_when_it_is_trimmed(make_store, make_job):
    """Its counts went with the revival, its log stayed."""
    store = make_store(history=0)
    (claimed,) = start(store, make_job("a"))
    store.bury(claimed, FAILED)
    store.revive(Q, ["a"])
    complete(store, *claim(store))
    assert store.get(Q, "a") is None
    assert left_behind(store) == []
    assert enqueue(store, make_job("a", args=b"[[2],{}]")) in ([Added.ADDED], [Added.EXISTS])
    found = store.get(Q, "a")
    assert found is None or found.attempts == ()


@pytest.mark.redis
def test_what_an_earlier_version_left_behind_is_told_and_dropped_step_by_step(redis_store, make_job):
    names = redis_store.keys.of(Q)
    enqueue(redis_store, make_job("kept"))
    (claimed,) = claim(redis_store)
    redis_store.retry(claimed, FAILED, 1000)
    for key, n in itertools.product(("tries", "attempts", "results", "checkins", "stops"), range(700)):
        redis_store.transport.command("HSET", names[key], f"gone-{n}", "x")
    assert len(redis_store.faults(Q).found["entry_without_job"]) == 700
    counts = [redis_store.reconcile(Q)["entry_without_job"] for _ in range(30)]
    assert sum(counts) == 5 * 700
    assert max(counts) < 5 * 700
    assert left_behind(redis_store) == []
    assert (info(redis_store, "kept").failures, len(info(redis_store, "kept").attempts)) == (1, 1)
    assert info(redis_store, "kept").state is State.RETRY
    assert redis_store.extend(Q, ["w"], LEASE) == {"w": []}
