"""Limits while somebody forges holders of them, and ends attempts that have ended: never more run, none is stuck."""

from __future__ import annotations

import random

import pytest

from django_jobs.core.values import Attempt, Claim, Completed
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from tests.support.checker import most_at_once
from tests.support.dose import dose
from tests.support.faults.fault_injector import FaultInjector
from tests.support.ledger import Event
from tests.support.pools import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=1800))]

ACTS = dose(300, long=10_000)
Q = "default"
#: limit key as it stands in `slots` → how many may run, and the letters that ids of its jobs begin with.
LIMITS = {
    "single": (1, "single-"),
    "five": (5, "five-"),
    'keyed:"a"': (2, "a-"),
    'keyed:"b"': (2, "b-"),
    "again": (3, "again-"),
}
LATE = Attempt(1, "failed", 0, error="late")


class Forger:
    """Puts holders where there are none, and ends again what has ended; knows the store and the ledger only."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.rng = site, random.Random(seed)
        self.client, self.slots = site.store.transport.client, site.store.keys.of(Q)["slots"]
        self.forged = self.refused = self.accepted = 0
        #: How many lines of the ledger these know: the ends, the last of each job, and that of each that runs again.
        self.seen = 0
        self.ended: list[Event] = []
        self.last_end: dict[str, Event] = {}
        self.runs_again: dict[str, Event] = {}

    def forge_a_holder(self) -> None:
        """A job that is gone, or has ended, or still waits: the slots of those that run stay as they are."""
        key, (_, letters) = self.rng.choice(list(LIMITS.items()))
        run = set(self.client.hkeys(self.site.store.keys.of(Q)["claims"]))
        id = self.rng.choice((f"gone-{self.forged}", f"{letters}{self.rng.randrange(ACTS)}"))
        if id.encode() not in run:
            self.client.zadd(self.slots, {f"{key}\0{id}": 0})
            self.forged += 1

    def end_again(self) -> None:
        """In a random way, with the token of an attempt whose function has returned; if possible of a job that runs
        again by now."""
        events = self.site.ledger.read()
        for event in events[self.seen :]:
            if event.kind == "end":
                self.ended.append(event)
                self.runs_again.pop(event.id, None)
                self.last_end[event.id] = event
            elif event.kind == "start" and event.id in self.last_end:
                self.runs_again[event.id] = self.last_end[event.id]
        self.seen = len(events)
        if self.ended:
            event = self.rng.choice([*self.runs_again.values()] or self.ended[-40:])
            if self.rng.choice(ENDS)(self.site.store, self.claim_of(event)):
                self.accepted += 1
            else:
                self.refused += 1

    def claim_of(self, event: Event) -> Claim:
        """What the worker held that ran this attempt."""
        info = self.site.store.get(Q, event.id)
        assert info is not None
        return Claim(event.id, Q, event.token, info.record)


def _complete(store: Store, claim: Claim) -> bool:
    return not store.complete(Q, [Completed(claim, b"1", controls=decode(claim.id, Q, claim.record).controls)])


#: Each returns whether the store took it.
ENDS = (
    *(_complete,) * 5,
    lambda store, claim: store.retry(claim, LATE, 10) is not None,
    lambda store, claim: store.snooze(claim, 10),
    lambda store, claim: store.bury(claim, LATE),
    lambda store, claim: store.discard(claim, LATE),
    lambda store, claim: not store.release(Q, [claim]),
)


@pytest.mark.accepts("G40", "G50", "K02", "R17")
def test_forged_holders_and_double_ends_neither_break_a_limit_nor_block_it(site: Site) -> None:
    producer, forger = site.producer(), Forger(site, seed=36)
    each = ACTS // 5
    for name, args in (("single", [8]), ("five", [30]), ("again", [25])):
        producer.ask(name, [f"{name}-{n}" for n in range(each)], *args)
    for key in "ab":
        producer.ask("keyed", [f"{key}-{n}" for n in range(each)], key, 15)
    pools = [site.pool(threads=5), site.pool(threads=5)]
    site.ledger.wait("end", 10)
    with FaultInjector(lambda: site.store.reconcile(Q), 0.05):
        for act in range(ACTS):
            # The acts last as long as the work.
            done = act * 9 // 10
            wait_until(lambda d=done: site.ledger.count("end") >= d, f"{done} have ended", every=0.005)
            forger.rng.choice((forger.forge_a_holder, forger.end_again))()
        assert not any(producer.answer()["errors"] for _ in range(5))
        site.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    events = site.ledger.read()
    for limit, letters in LIMITS.values():
        most = most_at_once([event for event in events if event.id.startswith(letters)], {})
        assert min(limit, 2) <= most <= limit, f"{letters}: {most} ran at once"
    client, names = site.store.transport.client, site.store.keys.of(Q)
    wait_until(lambda: not any(site.store.reconcile(Q).values()), "holders forged last are swept")
    assert (client.zcard(names["slots"]), client.zcard(names["blocked"])) == (0, 0), "every slot is free at the end"
    assert len(site.verdict().acked) == 5 * each
    assert forger.forged > ACTS // 4
    assert forger.refused > ACTS // 4 > forger.accepted
