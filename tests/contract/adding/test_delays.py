"""Delays and expiry: by the store's clock; and what expires is what has never begun."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, State
from django_jobs.serialization.record import decode, waited_ms
from tests.contract.acts import FAILED, LEASE, Q, claim, claim_alone, complete, enqueue, info, start, state_of

PERIOD = 1000

#: how a job that has begun comes to wait again → what does it
COMES_BACK = {
    "retried": lambda store, claimed: store.retry(claimed, FAILED, 0),
    "snoozed": lambda store, claimed: store.snooze(claimed, 0),
    "recovered": lambda store, claimed: store.recover(Q, worker="w"),
    "handed back when its process was ended": lambda store, claimed: store.release_worker(Q, "w"),
    "dead and revived": lambda store, claimed: (store.bury(claimed, FAILED), store.revive(Q, ["a"])),
    "discarded and revived": lambda store, claimed: (store.discard(claimed, FAILED), store.revive(Q, ["a"])),
    "killed and revived": lambda store, claimed: (
        store.kill(Q, ["a"], "by hand"),
        store.revive(Q, ["a"]),
        complete(store, claimed),
    ),
    "snoozed, then parked": lambda store, claimed: (
        store.snooze(claimed, 0),
        *[store.park(again, "old") for again in claim(store)],
        *[store.release(Q, [again]) for again in claim(store, knows="new")],
    ),
}


@pytest.mark.parametrize("ahead", [-3_600_000, 0, 3_600_000], ids=["behind", "right", "ahead"])
class TestAProducerWhoseClockIsWrong:
    def test_delays_its_jobs_by_the_stores_clock(self, store, make_job, clock, ahead):
        enqueue(store, make_job("a", enqueued_at=clock.now + ahead, run_in=60_000))
        assert (state_of(store, "a"), info(store, "a").at) == (State.SCHEDULED, clock.now + 60_000)

    def test_lets_them_expire_by_the_stores_clock(self, store, make_job, clock, ahead):
        jobs = [
            make_job(id, enqueued_at=clock.now + ahead, expires_at=0, expires_in=PERIOD, **more)
            for id, more in {"a": {}, "b": {}, "c": {"run_in": 500}, "d": {"run_at": clock.now + 500}}.items()
        ]
        enqueue(store, *jobs)
        clock.advance(PERIOD - 1)
        assert [claimed.id for claimed in claim(store)] == ["a"]
        clock.advance(1)
        assert [one.id for one in store.claim(Q, "w", 1, lease=LEASE).expired] == ["b"]
        clock.advance(500)
        store.claim(Q, "w", 1, lease=LEASE)
        assert {state_of(store, "c"), state_of(store, "d")} <= {State.EXPIRED, State.RUNNING}

    def test_has_the_time_of_expiry_in_the_record(self, store, make_job, clock, ahead):
        enqueue(store, make_job("a", enqueued_at=clock.now + ahead, expires_at=0, expires_in=PERIOD, run_in=500))
        assert decode("a", Q, info(store, "a").record).controls.expires_at == clock.now + 500 + PERIOD


def test_the_store_puts_its_time_where_the_record_says_none(store, make_job, clock):
    jobs = [
        make_job("plain", enqueued_at=0),
        make_job("with controls", enqueued_at=0, priority=3, expires_at=0, expires_in=PERIOD),
        make_job("0", name="0", enqueued_at=0, args=b'[["\\n0\\n"],{}]'),
        make_job("later", enqueued_at=0, run_in=500),
        make_job("from elsewhere", enqueued_at=7),
    ]
    alone = [job for job in jobs if job.id in ("plain", "0")]
    assert enqueue(store, *alone) == [Added.ADDED] * 2, "these two go by the short way"
    enqueue(store, *jobs)
    clock.advance(100)
    assert enqueue(store, *alone) == [Added.ADDED] * 2, "sent again"
    assert enqueue(store, *jobs) == [Added.ADDED] * 5, "sent again"
    found = {job.id: decode(job.id, Q, info(store, job.id).record) for job in jobs}
    assert {id: job.enqueued_at for id, job in found.items()} == dict.fromkeys(found, clock.now - 100) | {
        "from elsewhere": 7
    }
    assert (found["0"].name, found["0"].args) == ("0", b'[["\\n0\\n"],{}]')
    assert enqueue(store, make_job("plain", enqueued_at=0, args=b"[[2],{}]")) == [Added.EXISTS]


def test_a_call_that_is_sent_again_later_changes_no_time(store, make_job, clock):
    job = make_job("a", run_in=500, expires_at=0, expires_in=PERIOD)
    assert enqueue(store, job) == [Added.ADDED]
    before = info(store, "a")
    clock.advance(100)
    assert enqueue(store, job) == [Added.ADDED]
    assert info(store, "a") == before
    assert enqueue(store, make_job("a", args=b"[[2],{}]", expires_at=0, expires_in=PERIOD)) == [Added.EXISTS]


@pytest.mark.parametrize("how", COMES_BACK)
def test_what_has_begun_does_not_expire(store, make_job, clock, how):
    (claimed,) = start(store, make_job("a", expires_at=0, expires_in=PERIOD))
    clock.advance(PERIOD)
    COMES_BACK[how](store, claimed)
    clock.advance(PERIOD)
    (again,) = claim(store, worker="other") + claim_alone(store, worker="other")
    assert again.id == "a"


def test_an_expired_job_says_since_when_it_could_run(store, make_job, clock):
    enqueue(store, make_job("later", run_in=500, expires_at=0, expires_in=PERIOD))
    enqueue(store, make_job("now", expires_at=clock.now + 500))
    clock.advance(500)
    store.promote(Q)
    due = clock.now
    clock.advance(PERIOD)
    (now, later) = sorted(store.claim(Q, "w", 2, lease=LEASE).expired, reverse=True)
    assert waited_ms(now.record, now.since, clock.now) == 500 + PERIOD
    assert (later.id, later.since) == ("later", due)
    enqueue(store, make_job("paused", expires_at=clock.now + 1))
    store.pause(Q, until=clock.now + 700)
    clock.advance(700)
    opened = clock.now
    clock.advance(300)
    (paused,) = store.claim(Q, "w", 1, lease=LEASE).expired
    assert paused.since == opened


@pytest.mark.parametrize("ends", ["by itself", "by a person"])
def test_an_expired_job_waits_from_the_end_of_a_pause_or_from_its_own_time_if_that_is_later(
    store, make_job, clock, ends
):
    enqueue(store, make_job("before", expires_at=clock.now + 1))
    enqueue(store, make_job("due before", run_in=100, expires_at=0, expires_in=1))
    enqueue(store, make_job("due after", run_in=900, expires_at=0, expires_in=1))
    store.pause(Q, until=clock.now + 700 if ends == "by itself" else 0)
    clock.advance(700)
    if ends == "by a person":
        store.resume(Q)
    clock.advance(300)
    enqueue(store, make_job("after", expires_at=clock.now + 1))
    clock.advance(10)
    expired = store.claim(Q, "w", 5, lease=LEASE).expired
    waits = {one.id: waited_ms(one.record, one.since, clock.now) for one in expired}
    assert waits == {"before": 310, "due before": 310, "due after": 110, "after": 10}


def test_what_a_person_runs_now_does_not_expire(store, make_job, clock):
    enqueue(store, make_job("a", expires_at=0, expires_in=PERIOD))
    clock.advance(PERIOD)
    assert [one.id for one in store.claim(Q, "w", 1, lease=LEASE).expired] == ["a"]
    store.revive(Q, ["a"])
    assert [claimed.id for claimed in claim(store)] == ["a"]


@pytest.mark.parametrize(
    "put_off",
    [
        lambda store, claimed: store.release(Q, [claimed]),
        lambda store, claimed: store.park(claimed, "old"),
    ],
    ids=["handed back", "parked"],
)
def test_what_was_claimed_and_not_begun_expires(store, make_job, clock, put_off):
    (claimed,) = start(store, make_job("a", expires_at=0, expires_in=PERIOD))
    put_off(store, claimed)
    clock.advance(PERIOD)
    assert [one.id for one in store.claim(Q, "w", 1, lease=LEASE, knows="new").expired] == ["a"]


class TestAnEqualJobThatReplacesTheArguments:
    KEY = {"unique": "ab" * 32, "unique_mode": "running"}

    @pytest.mark.parametrize("policy", ["replace", "debounce"])
    @pytest.mark.parametrize("waits", ["queued", "scheduled", "blocked", "retry"])
    def test_brings_its_limit(self, store, make_job, clock, policy, waits):
        start(store, make_job("busy", limit_key="new", limit=1))
        if waits == "blocked":
            start(store, make_job("other", limit_key="old", limit=1))
        enqueue(
            store, make_job("a", limit_key="old", limit=1, run_in=100 if waits == "scheduled" else None, **self.KEY)
        )
        for claimed in claim(store) if waits in {"blocked", "retry"} else ():
            store.retry(claimed, FAILED, 100)
        assert state_of(store, "a") == waits
        new = make_job("b", args=b"[[2],{}]", limit_key="new", limit=1, on_conflict=policy, **self.KEY)
        assert enqueue(store, new) == [Added.REPLACED]
        clock.advance(200)
        assert claim(store) == []
        assert state_of(store, "a") is State.BLOCKED
        store.kill(Q, ["busy"], "by hand")
        store.release_worker(Q, "w")
        assert "a" in [claimed.id for claimed in claim(store, 2)]
        assert decode("a", Q, info(store, "a").record).args == b"[[2],{}]"

    @pytest.mark.parametrize(("policy", "run_in", "expires"), [("debounce", 700, 1700), ("replace", 700, 1000)])
    def test_moves_start_and_expiry_together_or_not_at_all(self, store, make_job, clock, policy, run_in, expires):
        start_at = clock.now
        enqueue(store, make_job("a", expires_at=0, expires_in=PERIOD, **self.KEY))
        enqueue(store, make_job("b", expires_at=0, expires_in=PERIOD, run_in=run_in, on_conflict=policy, **self.KEY))
        assert decode("a", Q, info(store, "a").record).controls.expires_at == start_at + expires
        clock.advance(expires - 1)
        assert [claimed.id for claimed in claim(store)] == ["a"]

    def test_leaves_the_rest_of_the_controls_and_what_they_hold(self, store, make_job):
        key = 'a "quoted\\" key, {"expires_at":5}\n'
        enqueue(store, make_job("a", priority=5, alone=True, keep_result=7, limit_key="k", limit=3, **self.KEY))
        enqueue(store, make_job("b", priority=1, limit_key=key, limit=4, on_conflict="replace", **self.KEY))
        controls = decode("a", Q, info(store, "a").record).controls
        assert (controls.priority, controls.alone, controls.keep_result) == (5, True, 7)
        assert (controls.limit_key, controls.limit, controls.unique) == (key, 4, "ab" * 32)
        enqueue(store, make_job("c", on_conflict="replace", **self.KEY))
        assert decode("a", Q, info(store, "a").record).controls.limit_key is None
        assert [claimed.id for claimed in claim_alone(store)] == ["a"]
