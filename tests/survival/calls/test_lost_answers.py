"""Answers that are lost at the worst moment: to a claim for good, to an enqueue until the job has come and gone."""

from __future__ import annotations

import pytest
from redis import exceptions as driver

from django_jobs.core.values import PLAIN, Added, Completed, Completion, Controls, Job, NewJob
from django_jobs.exceptions import StoreUnavailable
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.scripts import Script
from django_jobs.stores.redis.connection.transport import Call, Transport
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import RedisServer


class Deaf:
    """Runs the script and never hears the answer, for the first `calls` of it."""

    def __init__(self, inner: object, calls: int) -> None:
        self.inner, self.calls = inner, calls

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def run(self, script: Script, keys: list[str], args: tuple[object, ...]) -> object:
        reply = self.inner.run(script, keys, args)
        if script.name == "claim" and self.calls:
            self.calls -= 1
            raise StoreUnavailable
        return reply


@pytest.mark.redis
@pytest.mark.accepts("G04", "K06")
def test_the_next_claim_of_the_worker_gets_the_jobs_of_the_one_that_was_never_answered(law_store: Store) -> None:
    ids = ["one", "two", "three"]
    law_store.enqueue("q", [NewJob(id, encode(Job(id, "q", "shop.work", b"[[],{}]", 1))) for id in ids])
    law_store.transport = Deaf(law_store.transport, calls=3)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            law_store.claim("q", "worker", 2, lease=5_000)
    assert [claim.id for claim in law_store.claim("q", "worker", 2, lease=5_000).claims] == ["one", "two"]
    assert [claim.id for claim in law_store.claim("q", "worker", 2, lease=5_000).claims] == ["three"]
    assert law_store.claim("q", "worker", 2, lease=5_000).claims == []


class Slow:
    """The answer to enqueue is lost, and by the time it is sent again the job has run and left the history."""

    def __init__(self, inner: object, worker: Store) -> None:
        self.inner, self.store = inner, worker
        self.sent = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def run(self, script: Script, keys: list[str], args: tuple[object, ...]) -> object:
        reply = self.inner.run(script, keys, args)
        if script.name.startswith("enqueue"):
            self.sent += 1
            (claim,) = self.store.claim("q", "worker", 1, lease=5_000).claims
            assert not self.store.complete("q", [Completed(claim)])
            assert self.store.get("q", claim.id) is None
            reply = self.inner.run(script, keys, args)
        return reply


@pytest.mark.redis
@pytest.mark.accepts("K06", "K02")
@pytest.mark.parametrize("controls", [PLAIN, Controls(priority=3)])
def test_an_enqueue_that_is_sent_again_after_its_job_has_run_adds_no_second(
    quiet_server: RedisServer, controls: Controls
) -> None:
    with quiet_server.client() as client:
        client.flushall()
    store = Store.from_setting(quiet_server.url, options=StoreOptions(history=0))
    worker = Store.from_setting(quiet_server.url, options=StoreOptions(history=0))
    store.transport = slow = Slow(store.transport, worker)
    new = NewJob("one", encode(Job("one", "q", "shop.work", b"[[],{}]", 1, controls=controls)), controls)
    assert store.enqueue("q", [new]) == [Added.ADDED]
    assert slow.sent == 1
    assert worker.claim("q", "worker", 1, lease=5_000).claims == []
    store.close()
    worker.close()


@pytest.mark.redis
@pytest.mark.accepts("K06")
def test_calls_that_are_sent_together_again_are_all_marked(
    quiet_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server then knows that an earlier request may still arrive, and keeps the number of a call without effect."""
    with quiet_server.client() as client:
        client.flushall()
    store, sent = Store.from_setting(quiet_server.url), list[list[object]]()
    together = Transport._together

    def lossy(self: Transport, calls: list[Call]) -> list[object]:
        sent.append([args[2] for _, _, args in calls])
        if len(sent) < 3:
            raise driver.ConnectionError("lost")
        return together(self, calls)

    monkeypatch.setattr(Transport, "_together", lossy)
    store.enqueue("q", [NewJob("a", encode(Job("a", "q", "shop.work", b"[[],{}]", 1)))])
    claims = store.claim("q", "worker", 1, lease=5_000).claims
    completion = Completion("q", [Completed(claim) for claim in claims])
    store.claim("q", "worker", 1, lease=5_000, completion=completion)
    assert completion.stale == []
    assert [[str(number).endswith("+") for number in numbers] for numbers in sent] == [[False] * 2, *[[True] * 2] * 2]
    store.close()
