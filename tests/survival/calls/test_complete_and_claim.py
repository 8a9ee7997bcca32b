"""To end a job and claim the next by one script has the effects of the two scripts, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from django_jobs.core.values import Claimed, Completion, Controls, Done, Job, Lane, NewJob
from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts, transport
from tests.conftest import Clock
from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.faults.dumps import dump

pytestmark = pytest.mark.redis

LEASE = 60_000
ONCE = Controls(alone=True, at_most_once=True)


def new(id: str, controls: Controls = ONCE, **options: Any) -> NewJob:
    return NewJob(id, encode(Job(id, "q", "shop.pay", b"[[],{}]", 1, controls=controls)), controls, **options)


@dataclass
class Scene:
    """A worker of one job at a time that has run one, and what it meets when it goes on."""

    store: Store
    clock: Clock
    client: redis.Redis
    held: Any = None
    result: bytes = b"[7]"
    following: str = "q"
    options: dict[str, Any] = field(default_factory=dict)

    def add(self, *ids: str, queue: str = "q", **options: Any) -> None:
        self.store.enqueue(queue, [new(id, **options) for id in ids])

    def key(self, name: str, queue: str = "q") -> str:
        return self.store.keys.of(queue)[name]

    def go_on(self) -> tuple[Completion, Claimed]:
        controls = decode(self.held.id, "q", self.held.record).controls
        done = Done(self.held, self.result, 3, "shop.pay", controls, 4)
        completion = Completion("q", [done])
        given: dict[str, Any] = {"lane": Lane.ALONE, "lease": LEASE, "knows": "these"} | self.options
        return completion, self.store.claim(self.following, "w", 5, completion=completion, **given)


Change = Callable[[Scene], object]

#: What one script does.
SIMPLE: dict[str, Change] = {
    "one more waits": lambda scene: scene.add("b"),
    "many more wait": lambda scene: scene.add("b", "c", "d"),
    "of different priorities": lambda scene: (scene.add("b"), scene.add("c", controls=_with(priority=9))),
    "it returned None": lambda scene: (scene.add("b"), setattr(scene, "result", b"")),
    "in another queue": lambda scene: (scene.add("b", queue="r"), setattr(scene, "following", "r")),
    "in another queue, and more in its own": lambda scene: (
        scene.add("b", queue="r"), scene.add("c"), scene.store.enqueue("q", [new("d", Controls())]),
        setattr(scene, "following", "r"),
    ),
    "one is due later": lambda scene: scene.add("b", "c") or scene.add("d", run_at=scene.clock.now + 900_000),
    "one is due soon": lambda scene: scene.add("b") or scene.add("d", run_at=scene.clock.now + 900),
    "another one failed": lambda scene: scene.add("b") or scene.client.hset(scene.key("tries"), "z", "01:0:0"),
    "suspects are left to others": lambda scene: (
        scene.add("b"), scene.client.zadd(scene.key("alone"), {"s": -5}), scene.options.update(lane=Lane.CLEAR),
    ),
    "a key of counts is broken": lambda scene: scene.add("b") or scene.client.set(scene.key("totals"), "?"),
    "the number is broken": lambda scene: scene.add("b") or scene.client.set(scene.key("seq"), "?"),
}  # fmt: skip


def _with(**more: Any) -> Controls:
    return Controls(alone=True, at_most_once=True, **more)


#: What it leaves to the two scripts.
OTHERS: dict[str, Change] = {
    "nothing waits": lambda scene: None,
    "the next may run twice": lambda scene: scene.add("b", controls=Controls(alone=True)),
    "the next has a limit": lambda scene: scene.add("b", controls=_with(limit_key="k", limit=1)),
    "the next is unique": lambda scene: scene.add("b", controls=_with(unique="a" * 64, unique_mode="queued")),
    "the next is too late": lambda scene: scene.add("b", controls=_with(expires_at=scene.clock.now)),
    "the next is due": lambda scene: scene.add("b", run_at=scene.clock.now + 5) or scene.clock.advance(5),
    "one of another type is due": lambda scene: (
        scene.add("b"), scene.add("c", controls=Controls(), run_at=scene.clock.now + 5), scene.clock.advance(5),
    ),
    "the next failed before": lambda scene: scene.add("b") or scene.client.hset(scene.key("tries"), "b", "01:0:0"),
    "the next is a suspect": lambda scene: (
        scene.add("b"), scene.client.zadd(scene.key("alone"), {"b": -5}),
        scene.client.hset(scene.key("tries"), "b", "00:01:0"),
    ),
    "the next was handed back": lambda scene: (
        scene.add("b"), scene.store.release("q", scene.store.claim("q", "v", 1, lane=Lane.ALONE, lease=LEASE).claims),
    ),
    "the next is no record": lambda scene: scene.add("b", "c") or scene.client.hdel(scene.key("jobs"), "b"),
    "the queue is paused": lambda scene: scene.add("b") or scene.store.pause("q"),
    "a job type is paused": lambda scene: scene.add("b") or scene.store.pause("q", name="shop.pay"),
    "the pause is over": lambda scene: (
        scene.store.pause("q", until=scene.clock.now + 5), scene.add("b"), scene.clock.advance(9),
    ),
    "it was killed": lambda scene: scene.add("b") or scene.store.kill("q", ["a"], "by hand"),
    "it is waited for": lambda scene: scene.add("b") or scene.store.watch_ends("q", ["a"]),
    "it noted its progress": lambda scene: scene.add("b") or scene.store.checkin(scene.held, b"{}"),
    "the history is too full": lambda scene: scene.add("b") or scene.client.zadd(
        scene.key("succeeded"), {f"old-{n}": n for n in range(1_020)}
    ),
    "the queue has a limit": lambda scene: scene.add("b") or scene.options.update(max_running=2),
    "the claim is bounded": lambda scene: scene.add("b") or scene.options.update(up_to=1),
    "some do not know a name": lambda scene: (
        scene.add("b"), scene.client.hset(scene.key("unknown"), "other\0shop.odd", "1"),
    ),
    "somebody takes any name": lambda scene: scene.add("b") or scene.options.update(names=["shop.pay"]),
    "jobs of the shared lane": lambda scene: scene.add("b") or scene.options.update(lane=Lane.SHARED),
    "it holds more": lambda scene: (
        scene.add("b", "c"), scene.store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE),
    ),
    "it holds one there": lambda scene: (
        scene.add("b", "c", queue="r"), scene.store.claim("r", "w", 1, lane=Lane.ALONE, lease=LEASE),
        setattr(scene, "following", "r"),
    ),
    **{
        f"{name} is of another type": lambda scene, name=name: (
            scene.add("b"), scene.client.delete(scene.key(name)), scene.client.setbit(scene.key(name), 1, 1),
        )
        for name in ("leases", "succeeded", "claims", "alone", "scheduled", "tries", "answers", "holdings")
    },
}  # fmt: skip


@pytest.fixture
def both(make_redis_store: Callable[..., Store], clock: Clock) -> Iterator[Callable[[Change], list[Scene]]]:
    """Make the same scene twice: for one script, and for two."""
    clients: list[redis.Redis] = []

    def make(change: Change) -> list[Scene]:
        scenes = []
        start = clock.now
        for name in ("one", "two"):
            clock.now = start
            store = make_redis_store(namespace=f"{name}-{id(clients)}")
            clients.append(redis.Redis(connection_pool=store.transport.client.connection_pool))
            scene = Scene(store, clock, clients[-1])
            scene.add("a")
            (scene.held,) = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE).claims
            clock.advance(2)
            change(scene)
            scenes.append(scene)
        return scenes

    yield make
    for client in clients:
        if keys := list(client.scan_iter(match=f"{{*-{id(clients)}*", count=1000)):
            client.delete(*keys)


def _looks(scene: Scene) -> dict[bytes, Any]:
    """All keys, as they would be in any namespace; the names of channels are random."""
    namespace = scene.store.options.namespace
    found = {}
    for key, value in dump(scene.client, f"{{{namespace}*").items():
        short = key.replace(namespace.encode(), b"")
        if short.endswith(b":answers") and isinstance(value, dict):
            value = sorted(text.partition(b":")[2] for text in value.values() if not text.endswith(b":a"))
        if short.endswith(b":ends"):
            value = [entry for _, entry in value]
        found[short] = value
    return found


def _gone_on(scene: Scene) -> Any:
    try:
        completion, claimed = scene.go_on()
    except StoreError as error:
        return type(error)
    return completion.stale, claimed


@pytest.mark.accepts("R18", "K06")
@pytest.mark.parametrize("name", [*SIMPLE, *OTHERS])
def test_all_is_as_after_the_two_scripts(
    both: Callable[[Change], list[Scene]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = both((SIMPLE | OTHERS)[name])
    done: list[Any] = []
    in_one = Store._in_one

    def noting(self: Store, *args: Any) -> Any:
        done.append(in_one(self, *args))
        return done[-1]

    monkeypatch.setattr(Store, "_in_one", noting)
    answer = _gone_on(one)
    monkeypatch.setattr(Store, "_may_be_one", lambda *args: False)
    assert answer == _gone_on(two)
    assert _looks(one) == _looks(two)
    assert any(done) == (name in SIMPLE)


def _ready(store: Store, *ids: str) -> Any:
    """These jobs are enqueued; the first one is claimed, and both scripts are known to the server."""
    store.enqueue("q", [new(id) for id in ids])
    for name in ("complete", "claim", "complete_and_claim"):
        store.transport.client.script_load(scripts.load(name).source)
    (held,) = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE).claims
    return held


def _done(held: Any, result: bytes = b"1") -> Completion:
    return Completion("q", [Done(held, result, 3, "shop.pay", decode(held.id, "q", held.record).controls)])


def _go_on(store: Store, completion: Completion) -> list[str]:
    claimed = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE, completion=completion)
    return [claim.id for claim in claimed.claims]


@pytest.mark.parametrize("result", [b"", b"1"])
def test_the_history_has_little_more_than_it_should_and_is_cut_in_the_end(
    make_redis_store: Callable[..., Store], clock: Clock, monkeypatch: pytest.MonkeyPatch, result: bytes
) -> None:
    """A job with a result stays for a minute in any case: then each 20th claim looks for something to cut."""
    store, calls = make_redis_store(history=100), list[str]()
    run, together = store.transport.run, store.transport.run_together
    monkeypatch.setattr(store.transport, "run", lambda *call: calls.append(call[0].name) or run(*call))
    monkeypatch.setattr(store.transport, "run_together", lambda given: calls.append("both") or together(given))
    held = _ready(store, *(f"job-{n:03}" for n in range(200)))
    sizes = []
    while True:
        completion = _done(held, result)
        claims = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE, completion=completion).claims
        sizes.append(store.stats(["q"])[0].counts["succeeded"])
        if not claims:
            break
        (held,) = claims
    if result:
        clock.advance(60_001)
        held = _ready(store, "last")
        assert store.complete("q", _done(held).done) == []
        sizes.append(store.stats(["q"])[0].counts["succeeded"])
    else:
        assert max(sizes) == 120
    assert calls.count("both") <= 7
    assert sizes[-1] == 100


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
    held = _ready(store, "a", "b", "c")
    monkeypatch.setattr(transport, "LAST_TRY", 0.0)
    completion, sha = _done(held), scripts.load("complete_and_claim").sha
    if lost == "the answer":
        proxy.lose_replies(1, containing=sha)
    else:
        proxy.lose_requests(1, containing=sha)
    with pytest.raises(StoreUnavailable):
        _go_on(store, completion)
    assert completion.stale is None
    proxy.heal()
    assert store.complete("q", completion.done) == []
    assert [claim.id for claim in store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE).claims] == ["b"]
    counts = store.stats(["q"])[0].counts
    assert (counts["succeeded"], counts["running"], counts["queued"]) == (1, 1, 1)


@pytest.mark.accepts("K06")
def test_a_copy_that_comes_later_changes_nothing(quiet_server: RedisServer) -> None:
    with quiet_server.client() as client:
        client.flushall()
        store = Store.from_setting(quiet_server.url)
        held = _ready(store, "a", "b", "c", "d")
        sent, run = list[Any](), store.transport.run

        def keeping(script: Any, *rest: Any) -> Any:
            if script.name == "complete_and_claim":
                sent.append((script, *rest))
            return run(script, *rest)

        store.transport.run = keeping  # type: ignore[method-assign]
        for following in ("b", "c"):
            claimed = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE, completion=_done(held)).claims
            (held,) = claimed
            assert held.id == following
            before = dump(client)
            for copy in sent:
                assert isinstance(run(*copy), int)
            assert dump(client) == before
        assert len(sent) == 2
        store.close()


@pytest.mark.accepts("K06")
@pytest.mark.parametrize("answered", ["the claim", "a later call of the sender"])
def test_a_request_that_comes_late_changes_nothing(quiet_server: RedisServer, answered: str) -> None:
    """Although the job that it ends is still held."""
    with quiet_server.client() as client:
        client.flushall()
        store = Store.from_setting(quiet_server.url)
        held = _ready(store, "a", "b", "c")
        sent, run = list[Any](), store.transport.run

        def delayed(*call: Any) -> Any:
            sent.append(call)
            raise StoreUnavailable

        store.transport.run = delayed  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            _go_on(store, _done(held))
        store.transport.run = run  # type: ignore[method-assign]
        ((script, _, args),) = sent
        assert script.name == "complete_and_claim"
        if answered == "the claim":
            assert [claim.id for claim in store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE).claims] == ["b"]
            client.hset(store.keys.of("q")["holdings"], "w", f"\n{held.token}=1\n")  # nothing relies on it
        else:
            client.hset(store.keys.of("q")["answers"], args[1], f"{int(args[2]) + 1}:1:")
        before = dump(client)
        assert isinstance(run(*sent[0]), int)
        assert dump(client) == before
        store.close()


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
            completion = Completion("q", [Done(held, b"1")])
            claimed = store.claim("q", "w", 1, lease=LEASE, max_running=1, completion=completion).claims
            assert [claim.id for claim in claimed] == [f"{forgotten}-1"]
            store.complete("q", [Done(claim) for claim in claimed])
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


def test_it_takes_few_commands(quiet_server: RedisServer) -> None:
    """Their time is the time of a job that runs at most once: the two scripts have 57."""
    with quiet_server.client() as client:
        client.flushall()
        store = Store.from_setting(quiet_server.url)
        held = _ready(store, "a", "b", "c")
        (held,) = store.claim("q", "w", 1, lane=Lane.ALONE, lease=LEASE, completion=_done(held)).claims
        completion = _done(held)
        client.config_resetstat()
        assert _go_on(store, completion) == ["c"]
        made = {name: each["calls"] for name, each in client.info("commandstats").items()}
        store.close()
    assert made.pop("cmdstat_evalsha") == 1
    made.pop("cmdstat_config|resetstat", None)
    made.pop("cmdstat_config", None)
    assert sum(made.values()) <= 29
