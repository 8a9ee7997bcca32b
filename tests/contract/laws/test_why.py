"""Whatever has happened to a queue, a waiting job has an answer to "why does it not start?", and the answer is true."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from django_jobs.browse.counts import job_counts
from django_jobs.browse.reasons import SENTENCES, reason_of
from django_jobs.browse.why import facts_of, why
from django_jobs.core.values import WAITING, Lane, State
from django_jobs.serialization.record import name_of
from django_jobs.stores import use_store
from tests.contract.invariants import IDS, Q
from tests.contract.machine import DIGESTS, LEASE, StoreMachine, run_on_redis
from tests.support.console_data import worker_info
from tests.support.dose import dose

SETTINGS = settings(
    max_examples=dose(40, quick=10, ci=100, long=1500),
    stateful_step_count=dose(50, long=100),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class WhyMachine(StoreMachine):
    """The machine of the contract; after each call, every waiting job is asked about."""

    def __init__(self) -> None:
        super().__init__()
        use_store(self.store)
        self._publish("new", [Q], "running")

    @rule(
        knows=st.sampled_from(DIGESTS),
        queues=st.sampled_from([[Q], [Q], ["other"]]),
        state=st.sampled_from(["running", "running", "quiet"]),
    )
    def publish(self, knows, queues, state):
        self._publish(knows, queues, state)

    def _publish(self, knows, queues, state):
        self.store.publish_worker("web-1:1", worker_info(knows=knows, queues=queues, state=state), 10**9)
        self.serving = knows if queues == [Q] and state == "running" else ""

    @invariant()
    def has_a_true_answer_for_every_job(self):
        for id in IDS:
            info = self.store.get(Q, id)
            if info is not None:
                found, reason = why(info)
                assert reason.text(str)
                if found.state in WAITING:
                    self.check(found, reason)

    def check(self, info, reason):
        """Compares the answer with the model, and with what the store says elsewhere."""
        entry, cause = self.model.jobs[info.id], reason.cause
        stats = self.store.stats([Q])[0]
        model = self.model.jobs.values()
        used = sum(bool(e.controls.limit_key) and e.state is State.RUNNING for e in model) + sum(
            bool(self.model.jobs[id].controls.limit_key) for id in self.model.endings
        )
        lane = [
            each
            for each in self.store.page(Q, State.QUEUED, 0, 100)
            if self.store.standing(Q, each.id).lane == self.store.standing(Q, info.id).lane
        ]
        ids = [each.id for each in lane]
        knowing = self.serving != ""
        met = [each for each in self.store.parked(Q) if info.parked_at and each.name == name_of(info.record)]
        unknown = any(self.serving in each.unknown_to for each in met)
        facts = {
            "scheduled": info.state is State.SCHEDULED and info.at > self.now,
            "retry": info.state is State.RETRY and info.at > self.now,
            "queue_paused": stats.paused is not None,
            "type_paused": stats.paused is None and name_of(info.record) in stats.paused_types,
            "stop_not_ended": info.state is State.BLOCKED and info.id in self.model.endings,
            "limit": bool(entry.controls.limit_key) and used == 1,
            "limit_turn": bool(entry.controls.limit_key) and used == 0 and info.state is State.BLOCKED,
            "no_worker_takes_queue": self.serving == "",
            "workers_quiet": self.serving == "",
            "unknown_name": unknown,
            "let_in": info.state is State.BLOCKED and bool(info.parked_at) and knowing and not unknown,
            "due": info.state in {State.SCHEDULED, State.RETRY} and info.at <= self.now and knowing,
            "suspect": info.id in ids and knowing,
            "higher_priority": info.id in ids and ids.index(info.id) == reason.values.get("ahead") and knowing,
            "behind": info.id in ids and ids.index(info.id) == reason.values.get("ahead") and knowing,
            "next": ids[:1] == [info.id] and knowing,
        }
        assert cause in SENTENCES
        assert facts[cause], (cause, info)

    @rule(id=st.sampled_from(IDS))
    def the_next_job_is_the_next(self, id):
        """A job that is said to be the next is the one that a worker gets, if it is not too late to start it."""
        info = self.store.get(Q, id)
        if info is None or info.state is not State.QUEUED:
            return
        facts = facts_of(info, job_counts())
        if reason_of(facts).cause != "next" or info.parked_at:
            return
        late = facts.controls.expires_at is not None and facts.controls.expires_at <= self.now
        # What is due is put into the lane by the claim, and may come before it.
        due = any(e.state in {State.SCHEDULED, State.RETRY, State.BLOCKED} for e in self.model.jobs.values())
        if late or due:
            return
        lane = Lane.SHARED if facts.standing.lane == "shared" else Lane.CLEAR
        (claimed,) = self.store.claim(Q, "w1", 1, lane=lane, lease=LEASE).claims
        assert claimed.id == id
        self.model.move(id, State.RUNNING, token=claimed.token, worker="w1")
        self.model.leases["w1"] = self.now + LEASE
        self.claims.append(claimed)


def test_every_job_has_a_true_answer(redis_server):
    run_on_redis(WhyMachine, SETTINGS, redis_server)
