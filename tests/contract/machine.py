"""Random calls on a store and on a plain model of it; after each the store must look as the model says."""

from __future__ import annotations

import uuid

import redis
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from django_jobs.core.values import (
    FINISHED,
    WAITING,
    Added,
    Attempt,
    Claim,
    Controls,
    Done,
    Ended,
    Job,
    Killed,
    Lane,
    NewJob,
    State,
)
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.contract.invariants import IDS, CheckedMachine, Q
from tests.contract.modelled import Entry, Model

LEASE = 1000
KEY = "ab" * 32
WORKERS = ["w1", "w2"]
DIGESTS = ["old", "new"]
FAILED = Attempt(1, "failed", 0)
MAX_CRASHES = 3


class StoreMachine(CheckedMachine):
    """Calls on a store and on the model."""

    #: makes a store for its options: run_on_redis sets it.
    make = None

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_800_000_000_000
        self.store = self.make(StoreOptions(clock=lambda: self.now, max_crashes=MAX_CRASHES))
        self.model = Model()
        #: every claim that was ever given, the lost ones too.
        self.claims: list[Claim] = []
        self.paused = False

    def teardown(self) -> None:
        self.store.close()

    # -- in ----------------------------------------------------------------------

    @rule(
        id=st.sampled_from(IDS),
        args=st.sampled_from([b"[[1],{}]", b"[[2],{}]"]),
        key=st.sampled_from([KEY, None]),
        mode=st.sampled_from(["queued", "running"]),
        limited=st.booleans(),
        alone=st.sampled_from([False, False, True]),
        once=st.sampled_from([False, False, False, True]),
        priority=st.integers(-1, 1),
        expires=st.sampled_from([None, None, None, None, 500, 3000]),
        delay=st.sampled_from([0, 0, 0, 700]),
    )
    def enqueue(self, id, args, key, mode, limited, alone, once, priority, expires, delay):
        controls = Controls(
            priority=priority, alone=alone, at_most_once=once, unique=key, unique_mode=mode,
            expires_at=expires and self.now + expires, limit_key="k" if limited else None, limit=1 if limited else 0,
        )  # fmt: skip
        name = "limited" if limited else "plain"
        record = encode(Job(id, Q, name, args, 1, controls=controls))
        run_at = self.now + delay if delay else 0
        (answer,) = self.store.enqueue(Q, [NewJob(id, record, controls, run_at)])
        known = self.model.jobs.get(id)
        if known:
            assert answer == (Added.ADDED if known.record == record else Added.EXISTS)
        elif key and key in self.model.locks:
            assert answer == Added.DUPLICATE
        else:
            assert answer == Added.ADDED
            state = State.SCHEDULED if delay else State.QUEUED
            self.model.jobs[id] = Entry(record, controls, name, state, run_at)
            if key:
                self.model.locks[key] = id

    # -- run ---------------------------------------------------------------------

    @rule(
        worker=st.sampled_from(WORKERS),
        lane=st.sampled_from([Lane.SHARED, *Lane]),
        limit=st.integers(1, 4),
        knows=st.sampled_from(["", *DIGESTS]),
    )
    def claim(self, worker, lane, limit, knows):
        answer = self.store.claim(Q, worker, limit, lane=lane, lease=LEASE, knows=knows)
        if self.paused:
            assert not answer.claims
            assert not answer.expired
            return
        self._promote()
        for id, record, _ in answer.expired:
            entry = self.model.jobs[id]
            assert entry.record == record
            assert entry.state in {State.QUEUED, State.BLOCKED}
            assert entry.controls.expires_at <= self.now
            assert not entry.begun
            self.model.move(id, State.EXPIRED)
        for claimed in answer.claims:
            entry = self.model.jobs[claimed.id]
            assert entry.state in {State.QUEUED, State.BLOCKED}
            assert entry.record == claimed.record
            assert (entry.failures, entry.crashes) == (claimed.failures, claimed.crashes)
            assert entry.begun or entry.controls.expires_at is None or entry.controls.expires_at > self.now
            assert all(claimed.token > earlier.token for earlier in self.claims)
            assert claimed.suspect == entry.suspect
            assert claimed.has_to_wait == (entry.suspect and entry.crashes == MAX_CRASHES - 1)
            waits = claimed.has_to_wait
            self.model.move(claimed.id, State.RUNNING, token=claimed.token, worker=worker, waits=waits)
        if answer.claims:
            self.model.leases[worker] = self.now + LEASE
            self.claims += answer.claims
        self._see_blocked()

    @rule(data=st.data(), verb=st.sampled_from(["complete", "retry", "snooze", "bury", "discard", "release", "park"]))
    def settle(self, data, verb):
        if not self.claims:
            return
        # Mostly a claim that is held, or nothing would ever end.
        held_now = [c for c in self.claims if c.token == getattr(self.model.jobs.get(c.id), "token", None)]
        stale_too = data.draw(st.integers(0, 3)) == 0 or not held_now
        claimed = data.draw(st.sampled_from(self.claims if stale_too else held_now))
        entry = self.model.jobs.get(claimed.id)
        held = entry is not None and entry.state is State.RUNNING and entry.token == claimed.token
        stopped = held and entry.stop
        calls = {
            "complete": lambda: (
                not self.store.complete(
                    Q, [Done(claimed, name=entry.name, controls=entry.controls) if entry else Done(claimed)]
                )
            ),
            "retry": lambda: self.store.retry(claimed, FAILED, 300) is not None,
            "snooze": lambda: self.store.snooze(claimed, 300) is not None,
            "bury": lambda: self.store.bury(claimed, FAILED),
            "discard": lambda: self.store.discard(claimed, FAILED),
            "release": lambda: not self.store.release(Q, [claimed]),
            "park": lambda: self.store.park(claimed, data.draw(st.sampled_from(DIGESTS))) is not None,
        }
        assert calls[verb]() == held
        if not held:
            self._end_killed(lambda id, worker, token: (id, token) == (claimed.id, claimed.token))
            return
        failures = entry.failures + (verb in {"retry", "bury"})
        state = {
            "complete": State.SUCCEEDED, "retry": State.RETRY, "snooze": State.SCHEDULED,
            "bury": State.DEAD, "discard": State.CANCELLED, "release": State.QUEUED, "park": State.BLOCKED,
        }[verb]  # fmt: skip
        if stopped and verb in {"retry", "snooze", "release", "park"}:
            state = State.CANCELLED
        begun = entry.begun or verb not in {"release", "park"}
        self.model.move(claimed.id, state, failures=failures, due=self.now + 300, begun=begun)
        self._see_blocked()

    @rule(data=st.data())
    def settle_many(self, data):
        """A batch of ends of all kinds, held or not, each of another job."""
        held = [c for c in self.claims if c.token == getattr(self.model.jobs.get(c.id), "token", None)]
        some = [each for each in (held, held, self.claims) if each]
        by_id = {c.id: c for each in some for c in data.draw(st.lists(st.sampled_from(each), max_size=2))}
        verbs = [data.draw(st.sampled_from(["retry", "snooze", "park", "bury", "discard"])) for _ in by_id]
        expected, stale = [], []
        # The last comes first: each parked job goes before those that were parked before it.
        for claimed, verb in reversed(list(zip(by_id.values(), verbs, strict=True))):
            entry = self.model.jobs.get(claimed.id)
            if entry is None or entry.state is not State.RUNNING or entry.token != claimed.token:
                expected.append(None)
                stale.append(claimed)
                continue
            state = {
                "retry": State.RETRY, "snooze": State.SCHEDULED, "park": State.BLOCKED, "bury": State.DEAD,
                "discard": State.CANCELLED,
            }[verb]  # fmt: skip
            if entry.stop and verb in {"retry", "snooze", "park"}:
                state = State.CANCELLED
            expected.append(state)
            failures, begun = entry.failures + (verb in {"retry", "bury"}), entry.begun or verb != "park"
            self.model.move(claimed.id, state, failures=failures, due=self.now + 300, begun=begun)
        ended = [
            Ended(claimed, verb, FAILED if verb in {"retry", "bury", "discard"} else None, 300, "old")
            for claimed, verb in zip(by_id.values(), verbs, strict=True)
        ]
        assert self.store.settle(Q, ended) == expected[::-1]
        gone = {(claimed.id, claimed.token) for claimed in stale}
        self._end_killed(lambda id, worker, token: (id, token) in gone)
        self._see_blocked()

    @rule(data=st.data())
    def begin(self, data):
        if self.claims:
            claimed = data.draw(st.sampled_from(self.claims))
            entry = self.model.jobs.get(claimed.id)
            held = entry is not None and entry.token == claimed.token
            assert self.store.begin(claimed) == held
            if held:
                entry.waits = False

    @rule(worker=st.sampled_from(WORKERS))
    def extend(self, worker):
        answer = self.store.extend(Q, [worker], LEASE)
        mine = {id for id, entry in self.model.jobs.items() if entry.worker == worker}
        if mine:
            assert worker in answer
            asked = {id for id in mine if self.model.jobs[id].stop}
            assert asked <= set(answer[worker])
        told = {(id, id.token) for id in answer.get(worker, ()) if isinstance(id, Killed)}
        killed = {(id, token) for id, (holder, token) in self.model.endings.items() if holder == worker}
        assert told == killed if worker in answer else not killed
        if worker in answer:
            self.model.leases[worker] = self.now + LEASE
        self._see_blocked()

    @rule(worker=st.sampled_from([None, *WORKERS]))
    def recover(self, worker):
        for found in self.store.recover(Q, worker=worker):
            entry = self.model.jobs[found.id]
            assert entry.state is State.RUNNING
            assert found.worker == entry.worker == (worker or entry.worker)
            assert worker or self.model.leases[entry.worker] <= self.now
            spared = entry.waits or (not worker and not entry.suspect and entry.crashes == MAX_CRASHES - 1)
            entry.crashes += entry.controls.at_most_once or not spared
            entry.begun = True
            entry.suspect = entry.suspect or not worker
            if entry.controls.at_most_once or entry.crashes >= MAX_CRASHES:
                expected = State.DEAD
            else:
                expected = State.CANCELLED if entry.stop else State.QUEUED
            assert (found.state, found.crashes) == (expected, entry.crashes)
            self.model.move(found.id, expected)
        for id, entry in self.model.jobs.items():
            lost = entry.state is State.RUNNING and (
                entry.worker == worker if worker else self.model.leases[entry.worker] <= self.now
            )
            assert not lost, f"{id} was not recovered"
        self._end_killed(lambda id, holder, token: holder == worker)
        self._see_blocked()

    # -- people and time -----------------------------------------------------------

    @rule(id=st.sampled_from(IDS), verb=st.sampled_from(["cancel", "delete", "kill", "revive", "reschedule"]))
    def operate(self, id, verb):
        entry = self.model.jobs.get(id)
        state = entry.state if entry else None
        if verb == "cancel":
            answer = self.store.cancel(Q, [id])
            after = State.CANCELLED if state in WAITING else state
            assert answer == ({id: after} if entry else {})
            if state in WAITING:
                self.model.move(id, State.CANCELLED)
            elif state is State.RUNNING:
                entry.stop = True
        elif verb == "delete":
            moves = entry is not None and state is not State.RUNNING and id not in self.model.endings
            assert self.store.delete(Q, [id]) == ([id] if moves else [])
            if moves:
                self.model.forget(id)
        elif verb == "kill":
            moves = state in WAITING or state is State.RUNNING
            assert self.store.kill(Q, [id], "by hand") == ([id] if moves else [])
            if moves:
                if state is State.RUNNING and self.model.leases[entry.worker] > self.now:
                    self.model.endings[id] = entry.worker, entry.token
                self.model.move(id, State.DEAD)
        elif verb == "revive":
            moves = entry is not None and state not in {State.QUEUED, State.RUNNING, State.SUCCEEDED}
            assert self.store.revive(Q, [id]) == ([id] if moves else [])
            if moves:
                fresh = {"begun": True} | ({"failures": 0, "crashes": 0, "suspect": False} if state in FINISHED else {})
                self.model.move(id, State.BLOCKED if id in self.model.endings else State.QUEUED, **fresh)
                if entry.controls.unique:
                    self.model.locks.setdefault(entry.controls.unique, id)
        else:
            moves = state in WAITING
            assert self.store.reschedule(Q, [id], self.now + 400) == ([id] if moves else [])
            if moves:
                self.model.move(id, State.RETRY if state is State.RETRY else State.SCHEDULED, due=self.now + 400)
        self._see_blocked()

    @rule(ms=st.sampled_from([100, 400, 1000]))
    def pass_time(self, ms):
        self.now += ms
        # A store notices when it looks: a lease that has ended cannot be renewed but by a claim.
        if any(self.model.leases[worker] <= self.now for worker, _ in self.model.endings.values()):
            self.store.extend(Q, ["nobody"], LEASE)
            self._end_killed(lambda id, worker, token: self.model.leases[worker] <= self.now)
            self._see_blocked()

    @rule()
    def promote(self):
        due = [e for e in self.model.jobs.values() if e.state in {State.SCHEDULED, State.RETRY} and e.due <= self.now]
        assert self.store.promote(Q) == len(due)
        self._promote()
        self._see_blocked()

    @rule(close=st.sampled_from([False, False, True]))
    def pause_or_resume(self, close):
        self.paused = close
        if self.paused:
            self.store.pause(Q)
        else:
            self.store.resume(Q)

    @rule()
    def reconcile(self):
        found = self.store.reconcile(Q)
        found.pop("lease_without_claim")
        # One that was let in and not claimed yet holds no slot: the next is let in early, and waits again at its claim.
        if any(e.state is State.RUNNING and e.controls.limit_key for e in self.model.jobs.values()):
            assert not found["waiter_without_limit"]
        del found["waiter_without_limit"]
        assert set(found.values()) == {0}, found
        self._see_blocked()


def run_on_redis(machine, settings, url):
    """Run this machine on the Redis of that address, each example in a namespace of its own, and clear them away."""
    namespaces = []

    class Machine(machine):
        @staticmethod
        def make(options):
            namespaces.append(f"m{uuid.uuid4().hex[:12]}")
            options = StoreOptions(clock=options.clock, max_crashes=options.max_crashes, namespace=namespaces[-1])
            return Store.from_setting(url, options=options)

    try:
        run_state_machine_as_test(Machine, settings=settings)
    finally:
        with redis.Redis.from_url(url) as client:
            # One look at all keys, whatever the number of examples.
            ours = tuple(f"{{{namespace}".encode() for namespace in namespaces)
            keys = [key for key in client.scan_iter(match="{m*", count=1000) if key.startswith(ours)]
            for start in range(0, len(keys), 1000):
                client.delete(*keys[start : start + 1000])
