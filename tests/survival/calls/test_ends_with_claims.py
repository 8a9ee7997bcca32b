"""An end that goes to the store with the next claim: two calls, each with its own number, in one round trip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_jobs.core.values import Completed, Completion, Controls, Job, Lane, NewJob
from django_jobs.exceptions import StoreUnavailable
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts, transport
from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer

pytestmark = pytest.mark.redis

LEASE = 60_000
ONCE = Controls(alone=True, at_most_once=True)


def new(id: str, controls: Controls = ONCE, **options: Any) -> NewJob:
    return NewJob(id, encode(Job(id, "q", "shop.pay", b"[[],{}]", 1, controls=controls)), controls, **options)


def _ready(store: Store, *ids: str) -> Any:
    """These jobs are enqueued; the first one is claimed, and both scripts are known to the server."""
    store.enqueue("q", [new(id) for id in ids])
    for name in ("complete", "claim"):
        store.transport.client.script_load(scripts.load(name).source)
    (held,) = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE).claims
    return held


def _done(held: Any) -> Completion:
    return Completion("q", [Completed(held, b"1", 3, "shop.pay", decode(held.id, "q", held.record).controls)])


def _go_on(store: Store, completion: Completion) -> list[str]:
    claimed = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE, completion=completion)
    return [claim.id for claim in claimed.claims]


@pytest.fixture
def far(quiet_server: RedisServer) -> Iterator[tuple[Store, Proxy]]:
    with quiet_server.client() as client:
        client.flushall()
    proxy = Proxy(quiet_server.port)
    store = Store.from_setting(f"redis://127.0.0.1:{proxy.port}/0")
    yield store, proxy
    store.close()
    proxy.close()


@pytest.mark.accepts("K06", "G04")
@pytest.mark.parametrize("lost", ["the answer", "the request"])
def test_both_get_their_first_answers_when_each_is_made_again(
    far: tuple[Store, Proxy], lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, proxy = far
    held = _ready(store, "first", "a", "b", "c")
    # Once, so that the connection names the scripts by their hashes: then each call is one small request.
    (held,) = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE, completion=_done(held)).claims
    monkeypatch.setattr(transport, "LAST_TRY", 0.0)
    completion, name = _done(held), b"shop.pay"
    if lost == "the answer":
        proxy.lose_replies(1, containing=name)
    else:
        proxy.lose_requests(1, containing=name)
    with pytest.raises(StoreUnavailable):
        _go_on(store, completion)
    assert completion.stale is None
    proxy.heal()
    assert store.complete("q", completion.done) == []
    assert [claim.id for claim in store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE).claims] == ["b"]
    counts = store.stats(["q"])[0].counts
    assert (counts["succeeded"], counts["running"], counts["queued"]) == (2, 1, 1)


def test_a_server_that_forgot_its_scripts_completes_before_it_gives_the_next(quiet_server: RedisServer) -> None:
    with quiet_server.client() as client:
        client.flushall()
        for forgotten in ("complete", "claim"):
            client.script_flush()
            store = Store.from_setting(quiet_server.url)
            store.enqueue("q", [new(f"{forgotten}-{n}", Controls()) for n in range(2)])
            (held,) = store.claim("q", "w", 1, lease=LEASE).claims
            client.script_flush()
            client.script_load(scripts.load("claim" if forgotten == "complete" else "complete").source)
            completion = Completion("q", [Completed(held, b"1")])
            claimed = store.claim("q", "w", 1, lease=LEASE, max_running=1, completion=completion).claims
            assert [claim.id for claim in claimed] == [f"{forgotten}-1"]
            store.complete("q", [Completed(claim) for claim in claimed])
            store.close()


def test_a_full_server_ends_one_and_gives_the_next(quiet_server: RedisServer) -> None:
    with quiet_server.client() as client:
        client.flushall()
        store = Store.from_setting(quiet_server.url)
        held = _ready(store, "a", "b")
        client.config_set("maxmemory", 1)
        try:
            assert _go_on(store, _done(held)) == ["b"]
        finally:
            client.config_set("maxmemory", 0)
        assert store.stats(["q"])[0].counts["succeeded"] == 1
        store.close()
