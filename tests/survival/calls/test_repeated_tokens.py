"""A store that forgot its last second (a failover) counts from an earlier number: a token comes a second time."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.core.values import Attempt, Claim, Completed, Job, NewJob, State
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from tests.survival.conftest import Clock

pytestmark = pytest.mark.redis

Q = "q"
FAILED = Attempt(1, "failed", 0, error="no")


def claim(store: Store, worker: str) -> Claim:
    return store.claim(Q, worker, 1, lease=30_000).claims[0]


@pytest.fixture
def claims(law_store: Store, virtual: Clock) -> tuple[Claim, Claim]:
    """Of the old worker, and of the new one after the failover; they have the same token."""
    store, client = law_store, law_store.transport.client
    client.flushall()
    store.enqueue(Q, [NewJob("a", encode(Job("a", Q, "shop.work", b"[[],{}]", 1)))])
    replica = {key: client.dump(key) for key in client.keys("*")}
    old = claim(store, "old")
    client.flushall()
    for key, value in replica.items():
        client.restore(key, 0, value)
    virtual.now += 900
    new = claim(store, "new")
    assert (old.id, old.token) == (new.id, new.token)
    return old, new


ENDS: dict[str, Any] = {
    "complete": lambda store, claim: store.complete(Q, [Completed(claim)]) == [],
    "retry": lambda store, claim: store.retry(claim, FAILED, 10) is not None,
    "snooze": lambda store, claim: store.snooze(claim, 10) is not None,
    "bury": lambda store, claim: store.bury(claim, FAILED),
    "discard": lambda store, claim: store.discard(claim, FAILED),
    "release": lambda store, claim: store.release(Q, [claim]) == [],
    "begin": lambda store, claim: store.begin(claim),
    "checkin": lambda store, claim: store.checkin(claim, b"{}"),
    "transfer": lambda store, claim: store.transfer(claim, "remote:a", 10_000),
}


@pytest.mark.accepts("R33")
@pytest.mark.parametrize("verb", ENDS)
def test_only_the_worker_that_has_the_job_now_can_end_it(
    law_store: Store, claims: tuple[Claim, Claim], verb: str
) -> None:
    old, new = claims
    assert not ENDS[verb](law_store, old)
    found = law_store.get(Q, "a")
    assert found is not None
    assert (found.state, found.worker) == (State.RUNNING, "new")
    assert ENDS[verb](law_store, new)


def test_a_claim_that_is_made_again_later_can_be_ended(law_store: Store, virtual: Clock) -> None:
    """The answer to the second sending has the time of the first."""
    law_store.transport.client.flushall()
    law_store.enqueue(Q, [NewJob("a", encode(Job("a", Q, "shop.work", b"[[],{}]", 1)))])
    transport = law_store.transport
    calls = []

    class Again:
        def __getattr__(self, name: str) -> Any:
            return getattr(transport, name)

        def run(self, *call: Any) -> Any:
            calls.append(call)
            transport.run(*call)
            virtual.now += 500
            return transport.run(*call)

    law_store.transport = Again()  # type: ignore[assignment]
    again = claim(law_store, "w")
    law_store.transport = transport
    assert [script.name for script, *_ in calls] == ["claim", "claim"]  # in the short form, and in full
    assert law_store.complete(Q, [Completed(again)]) == []
