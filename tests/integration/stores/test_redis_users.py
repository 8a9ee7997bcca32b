"""The Redis users of docs/howto/security.md: each can do its task, and nothing beyond."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
import redis

from django_jobs.core.values import Added, Completed, NewJob, State
from django_jobs.exceptions import StoreError, StoreMisconfigured
from django_jobs.stores.redis import Store
from django_jobs.stores.values.lists import Span
from django_jobs.stores.values.options import StoreOptions
from tests.conftest import Clock
from tests.contract.acts import FAILED, Q, claim, complete, done, enqueue, state_of
from tests.docs.pages import ROOT
from tests.support.backends.cluster import running_cluster
from tests.support.backends.servers import running_redis, server_program
from tests.support.fsck import fsck
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis


class Servers(NamedTuple):
    """One server or the nodes of a Cluster, with the users of the document."""

    setting: str
    urls: list[str]

    def address(self, user: str) -> str:
        """The STORE setting for that user."""
        scheme, rest = self.setting.split("://")
        return f"{scheme}://{user}:PASSWORD@{rest}"

    @contextmanager
    def clients(self) -> Iterator[list[redis.Redis]]:
        """A client that may do everything, for each node."""
        with ExitStack() as stack:
            yield [stack.enter_context(redis.Redis.from_url(url)) for url in self.urls]

    def rule(self, user: str, *rules: str) -> None:
        with self.clients() as clients:
            for client in clients:
                client.execute_command("ACL", "SETUSER", user, *rules)


@pytest.fixture(scope="module", params=["one server", "cluster"])
def server(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Servers of these tests' own, with the users of the document."""
    for_all, for_clusters = server_program().rules_of_users(ROOT / "docs" / "howto" / "security.md")
    lines = for_all + (for_clusters if request.param == "cluster" else [])
    with (running_redis if request.param == "one server" else running_cluster)() as setting:
        nodes = setting.partition("://")[2].split(",")
        urls = [setting] if request.param == "one server" else [f"redis://{node}" for node in nodes]
        servers = Servers(setting, urls)
        with servers.clients() as clients:
            for client in clients:
                for line in lines:
                    client.execute_command(*line.split())
        yield servers


@pytest.fixture
def store_of(server: Servers) -> Iterator[Callable[[str], Store]]:
    """The store as that user sees it."""
    made: list[Store] = []

    def make(user: str) -> Store:
        made.append(Store.from_setting(server.address(user), options=StoreOptions(namespace="jobs")))
        return made[-1]

    yield make
    for store in made:
        store.close()
    with server.clients() as clients:
        for client in clients:
            for key in client.scan_iter(match="{jobs*"):
                client.delete(key)


def test_a_producer_enqueues_in_every_way_and_looks(
    store_of: Callable[[str], Store], make_job: Callable[..., NewJob]
) -> None:
    store = store_of("producer")
    now = store.now()
    ways = [
        make_job("now"),
        make_job("later", run_at=now + 3_600_000),
        make_job("unique", unique="ab"),
        make_job("twin", unique="ab", on_conflict="replace"),
        make_job("hourly", unique="cd", unique_mode="period", unique_for=3_600_000),
        make_job("limited", limit_key="k", limit=1),
        make_job("alone", alone=True),
        make_job("fired", schedule_run=("nightly", now)),
    ]
    answers = [store.enqueue(Q, [way], max_length=100)[0] for way in ways]
    assert answers == [Added.ADDED] * 3 + [Added.REPLACED] + [Added.ADDED] * 4
    assert enqueue(store, make_job("now")) != [Added.FULL]
    assert [state_of(store, id) for id in ("now", "later", "limited")] == ["queued", "scheduled", "queued"]


@pytest.mark.parametrize("at_once", [1, 40])
def test_a_producer_adds_many_unique_jobs(
    store_of: Callable[[str], Store], make_job: Callable[..., NewJob], at_once: int
) -> None:
    """It may not remove anything, not even what its own script has just written."""
    store = store_of("producer")
    jobs = [make_job(f"job-{n}", unique=f"{n:064}") for n in range(40)]
    added = [store.enqueue(Q, jobs[first : first + at_once]) for first in range(0, 40, at_once)]
    assert {word for some in added for word in some} == {Added.ADDED}
    assert store.transport.command("HLEN", store.keys.of(Q)["unique"]) == 40


def test_a_producer_that_debounces_needs_one_permission_more(
    server: Servers, store_of: Callable[[str], Store], make_job: Callable[..., NewJob]
) -> None:
    store = store_of("producer")
    pushed = make_job("b", unique="ab", on_conflict="debounce", run_at=store.now() + 60_000)
    enqueue(store, make_job("a", unique="ab"))
    with pytest.raises(StoreError):
        enqueue(store, pushed)
    server.rule("producer", "+zrem")
    try:
        assert enqueue(store, pushed) == [Added.REPLACED]
    finally:
        server.rule("producer", "-zrem")


def test_a_producer_cannot_claim_finish_or_cancel(
    store_of: Callable[[str], Store], make_job: Callable[..., NewJob]
) -> None:
    producer, worker = store_of("producer"), store_of("worker")
    enqueue(producer, make_job("a"))
    with pytest.raises(StoreMisconfigured, match="lacks a permission"):
        claim(producer)
    with pytest.raises(StoreMisconfigured, match="lacks a permission"):
        producer.cancel(Q, ["a"])
    (held,) = claim(worker)
    with pytest.raises(StoreMisconfigured, match="lacks a permission"):
        complete(producer, held)
    assert state_of(worker, "a") is State.RUNNING


@pytest.mark.parametrize("user", ["worker", "producer", "viewer"])
def test_everybody_may_wait(store_of: Callable[[str], Store], make_job: Callable[..., NewJob], user: str) -> None:
    worker, waiter = store_of("worker"), store_of(user)
    enqueue(worker, make_job("a"))
    (held,) = claim(worker)
    end = waiter.end_of(Q, "a")
    if user != "viewer":  # a viewer may not write who waits, and looks instead
        wait_until(lambda: worker.transport.command("HLEN", worker.keys.of(Q)["waiters"]), "the waiter is known")
    complete(worker, held, result=b"42")
    told = end.result(10)
    assert told is not None
    assert told.result == b"42"


def test_a_worker_looks_after_queues_of_every_node(
    server: Servers, store_of: Callable[[str], Store], make_job: Callable[..., NewJob]
) -> None:
    """What reaches several queues, or none: the fleet, a bulk operation, the archive, the doctor."""
    store, queues = store_of("worker"), [f"q{n}" for n in range(6)]
    for queue in queues:
        assert store.enqueue(queue, [make_job(queue, queue=queue)]) == [Added.ADDED]
    assert store.queues() == queues
    assert store.backlog(queues) == dict.fromkeys(queues, 1)
    assert [stats.counts["queued"] for stats in store.stats(queues)] == [1] * 6
    assert store.wait_for_work(queues, 1) in queues
    assert store.publish_worker("one", {"pid": 1}, 60_000) == []
    assert [worker.name for worker in store.workers()] == ["one"]
    store.update_document("bulk", {"a": {"n": 1}})
    assert store.get_document("bulk") == {"a": {"n": 1}}
    assert store.describe()["version"] != "unknown"
    whole = Store.from_setting(server.setting, options=StoreOptions(namespace="jobs"))
    assert [fsck(whole, queue) for queue in queues] == [[]] * 6  # it lists keys, which no user of ours may
    whole.close()
    for queue in queues:
        (held,) = store.claim(queue, "w", 1, lease=30_000).claims
        assert store.extend(queue, ["w"], 30_000) == {"w": []}
        assert store.complete(queue, [Completed(held)]) == []


@pytest.mark.parametrize("server", ["cluster"], indirect=True)
def test_a_user_who_may_not_ask_for_the_slots_is_told_so(server: Servers, store_of: Callable[[str], Store]) -> None:
    server_program().need_rules_for_parts_of_commands()
    """redis-py says of every error there that the server is no node of a Cluster."""
    server.rule("viewer", "-cluster|slots")
    try:
        with pytest.raises(StoreMisconfigured, match=r"lacks a permission.*security\.md"):
            store_of("viewer").now()
    finally:
        server.rule("viewer", "+cluster|slots")


@pytest.mark.parametrize("user", ["worker", "producer", "viewer"])
def test_nobody_touches_the_server_or_sees_the_names_or_keys_of_others(server: Servers, user: str) -> None:
    for command in (
        "SCAN 0", "KEYS *", "RANDOMKEY", "HGETALL {jobs2}:workers", "HGETALL {jobs2:default}:jobs", "GET session:1",
        "EVAL return{redis.call('GET','session:1')} 0", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "SCRIPT FLUSH",
        "CLIENT KILL TYPE normal", "ACL LIST", "SHUTDOWN NOSAVE", "DEBUG SLEEP 0", "FUNCTION LIST",
    ):  # fmt: skip
        assert is_refused(server, user, command), command


#: What tells workers to delete, to stop, to kill or to pause; Redis looks at the keys before it looks at the script.
ORDERS = (
    "RPUSH {jobs}:commands:w stop", "HSET {jobs}:document:bulk a 1", "HSET {jobs}:document:schedules paused:a 1",
    "HSET {jobs:default}:paused p 0", "EVAL return{redis.call('HSET',KEYS[1],'p','0')} 1 {jobs:default}:paused",
    "EVAL return{redis.call('RPUSH','{jobs}:commands:w','stop')} 0", "ZADD {jobs}:seen 1 w", "DEL {jobs:default}:jobs",
    "HDEL {jobs:default}:jobs a", "UNLINK {jobs}:queues",
)  # fmt: skip
REMOVE = (
    "DEL {k}", "UNLINK {k}", "HDEL {k} a", "ZREM {k} a", "LPOP {k}", "SPOP {k}", "EXPIRE {k} 1", "SET {k} a",
    "RENAME {k} {k}", "XTRIM {k} MAXLEN 0", "RESTORE {k} 0 a",
)  # fmt: skip


@pytest.mark.parametrize("user", ["producer", "viewer"])
def test_only_a_worker_removes_and_gives_orders(server: Servers, store_of: Callable[[str], Store], user: str) -> None:
    writes = ("RPUSH {k} stop", "HSET {k} a b", "SADD {k} a", "ZADD {k} 1 a", "EVAL return{{}} 1 {k}")
    for command in REMOVE + (writes if user == "viewer" else ()):
        for key in ("{jobs}:commands:w", "{jobs:default}:paused"):
            # A producer's HDEL and ZREM may be given to it: see the document.
            assert is_refused(server, user, command.format(k=key)), command
    for command in ORDERS:
        assert is_refused(server, user, command), command
    store_of("worker").publish_worker("w", {}, 60_000)
    store = store_of(user)
    for order in (
        lambda: store.pause(Q),
        lambda: store.command_worker("w", "stop"),
        lambda: store.update_document("bulk", {"a": 1}),
    ):
        with pytest.raises(StoreMisconfigured, match="lacks a permission"):
            order()


def is_refused(server: Servers, user: str, command: str) -> bool:
    """Whether the rules of this user refuse the command.  Asks a node that has no slot to ask for, too."""
    with redis.Redis.from_url(server.urls[0], protocol=2) as client:
        client.execute_command("AUTH", user, "PASSWORD")
        try:
            client.execute_command(*command.split())
        except redis.ResponseError as error:
            return bool(
                re.search("(?i)permission|acl|user executing the script|unknown command|not allowed", str(error))
            )
        return False


def test_who_may_not_run_scripts_sees_the_same_latency(redis_store: Store, make_job: Any, clock: Clock) -> None:
    store = redis_store
    store.enqueue(Q, [make_job("old", priority=-5), make_job("limited", limit_key="k", limit=1), make_job("x")])
    seen = []
    for step in (
        lambda: clock.advance(5_000),
        lambda: store.enqueue(Q, [make_job(priority=n) for n in (3, 9, 100)]),
        lambda: store.enqueue(Q, [make_job("due", run_at=clock.now + 100), make_job("alone", alone=True)]),
        lambda: clock.advance(300),
        lambda: store.promote(Q),
        lambda: store.release(Q, store.claim(Q, "w", 5, lease=30_000).claims),
        lambda: clock.advance(200),
        lambda: store.claim(Q, "w", 6, lease=30_000),
        lambda: store.pause(Q),
        lambda: store.resume(Q),
        lambda: clock.advance(50),
    ):
        step()
        store._scripts_refused = False
        by_script = store.stats([Q])[0]
        store._scripts_refused = True
        assert store.stats([Q])[0] == by_script
        seen.append(by_script.latency)
    assert len(set(seen)) > 4, seen


@pytest.mark.parametrize("reverse", [False, True])
def test_who_may_not_run_scripts_sees_the_same_stretch_of_time(
    redis_store: Store, make_job: Any, clock: Clock, reverse: bool
) -> None:
    store, began, queues = redis_store, clock.now, ["a", "b", "c"]
    for n in range(24):
        queue = queues[n % 3]
        store.enqueue(queue, [make_job(f"{n:02}", keep_result=60_000 if n % 4 == 3 else None)])
        (claimed,) = store.claim(queue, "w", 1, lease=30_000).claims
        if n % 2:
            store.complete(queue, [done(claimed)])
        else:
            store.bury(claimed, FAILED)
        clock.advance(1)
    span, groups = Span(began + 5, began + 17), store.failure_groups(queues, State.DEAD)
    for state, chosen, number in [(State.DEAD, None, 6), (State.DEAD, groups, 6), (State.SUCCEEDED, None, 3)]:
        for refused in (False, True):
            store._scripts_refused = refused
            found, mark = [], None
            while True:
                infos, mark = store.listed(queues, state, 2, mark, groups=chosen, reverse=reverse, span=span)
                found += [info.at - began for info in infos]
                if mark is None:
                    break
            assert found == sorted(found, reverse=reverse)
            assert len(found) == store.count_within(queues, state, span, chosen) == number
