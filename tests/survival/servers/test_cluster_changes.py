"""A Cluster changes under load: a replica takes over from a killed primary, and a slot moves to another node."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, monotonic_ns

import pytest
import redis

from django_jobs.stores.redis import Store
from tests.support.backends.cluster import running_cluster
from tests.support.checker import judge
from tests.support.dose import dose
from tests.support.ledger import Event
from tests.support.pace import Pace
from tests.support.pools import Site
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis]

NAMES = [f"q{n}" for n in range(12)]
#: Seconds; longer than an election on a crowded machine, so that no worker loses its leases meanwhile.
LEASE = 20
#: How often calls are told to try again before a slot that is half moved is moved completely.
HALF_MOVED = 100


class Changing:
    """A cluster with a replica of each node, and workers for a queue that is harmed and for one that is not."""

    def __init__(self, setting: str, folder: Path) -> None:
        self.store = Store.from_setting(setting)
        self.client = self.store.transport.client
        self.harmed = NAMES[0]
        self.healthy = next(name for name in NAMES if self.node_of(name) != self.node_of(self.harmed))
        queues = {self.harmed: {}, self.healthy: {}, "default": {}}
        self.site = Site(folder, setting, LEASE=LEASE, QUEUES=queues)
        self.producers = {name: self.site.producer() for name in (self.harmed, self.healthy)}
        self.ids: dict[str, list[str]] = {self.harmed: [], self.healthy: []}

    def node_of(self, queue: str) -> str:
        return str(self.client.get_node_from_key(self.key(queue)).name)

    def key(self, queue: str) -> str:
        """A key of the queue, or of a place of ids: all of them are in one slot."""
        return next(iter(self.store.keys.of(queue).values()))

    def direct(self, name: str) -> redis.Redis:
        host, _, port = name.rpartition(":")
        return redis.Redis(host, int(port), protocol=2)

    def send(self, prefix: str, count: int, ms: int) -> None:
        """Both queues get that many jobs; `answers` waits until they have them."""
        for queue, producer in self.producers.items():
            ids = [f"{queue}-{prefix}-{n}" for n in range(count)]
            self.ids[queue] += ids
            producer.ask("work", ids, ms, queue=queue)

    def answers(self) -> dict[str, dict[str, list[object]]]:
        return {queue: producer.answer()["errors"] for queue, producer in self.producers.items()}

    def state_of(self, id: str) -> str | None:
        return self.site.state_of(id, id.partition("-")[0])

    def wait_drained(self) -> None:
        for queue in self.producers:
            self.site.wait_drained(seconds=LEASE + 60, queue=queue)

    def close(self) -> None:
        self.site.close()
        self.store.close()


@contextmanager
def changing(tmp_path: Path, *options: str, replicas: bool) -> Iterator[Changing]:
    with running_cluster(*options, replicas=replicas) as setting:
        made = Changing(setting, tmp_path)
        yield made
        made.close()


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Changing]:
    """A replica takes over from a node that is silent for two seconds."""
    options = ("--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0")
    with changing(tmp_path, *options, "--cluster-replica-validity-factor", "0", replicas=True) as made:
        yield made


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[Changing]:
    """No replica takes over on a crowded machine, where a node may be silent for two seconds: it would lose claims."""
    with changing(tmp_path, replicas=False) as made:
        yield made


@pytest.mark.parametrize("turn", range(dose(1, long=20)))
@pytest.mark.accepts("G22")
def test_workers_follow_a_replica_that_takes_over(replicated: Changing, pace: Pace, turn: int) -> None:
    site, count = replicated.site, 300
    pools = [site.pool(), site.pool()]
    replicated.send("safe", count, 20)
    assert not any(replicated.answers().values())
    lost = replicated.node_of(replicated.harmed)
    places = {id: replicated.store.keys.identity(id) for id in (f"{replicated.healthy}-load-{n}" for n in range(count))}
    elsewhere = {id for id, place in places.items() if replicated.node_of(place) != lost}
    with replicated.direct(lost) as node:
        pid = node.info("server")["process_id"]
        (replica,) = [f"{each['ip']}:{each['port']}" for each in (node.info("replication")["slave0"],)]
        site.ledger.wait("end", count // 4)
        known = monotonic_ns()
        begun = {event.id for event in site.ledger.read() if event.kind == "end"}
        assert node.wait(1, 5_000) == 1, "the replica has every job that was accepted, and what had begun before"
        replicated.send("load", count, 5)
        site.ledger.wait("end", count // 2)
        send_signal(pid, signal.SIGKILL)
    with replicated.direct(replica) as node:
        wait_until(lambda: serves(node), "the replica has been elected", seconds=60)
    elected = monotonic()
    wait_until(
        lambda: any(
            event.kind == "start" and event.id.startswith(replicated.harmed) and event.at > elected * 1e9
            for event in site.ledger.read()
        ),
        "a job of that queue starts",
        seconds=30,
    )
    pace.within(elected, 2, "a job of the queue starts on the new primary")
    errors = replicated.answers()
    # The node had a third of the reservations of ids, too.
    assert elsewhere.isdisjoint(errors[replicated.healthy])
    assert {name for of_queue in errors.values() for name, _ in of_queue.values()} <= {"StoreUnavailable"}
    replicated.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    verdict = judge(site.ledger.read(), replicated.state_of)
    print(f"\n{verdict}")
    assert not verdict.unexpected
    # What the replica had not received yet may be gone: jobs accepted, and attempts begun, since it was asked.
    assert all(id.startswith(f"{replicated.harmed}-load") for id in verdict.lost), verdict.lost
    firsts: dict[str, int] = {}
    for event in site.ledger.read():
        if event.kind == "start":
            firsts.setdefault(event.id, event.at)
    twice = {id for id, starts in verdict.starts.items() if starts > 1}
    assert not {id for id in twice if id in begun or id.startswith(replicated.healthy) or firsts[id] < known}


def serves(node: redis.Redis) -> bool:
    try:
        info = node.execute_command("CLUSTER", "INFO")
        text = info if isinstance(info, dict) else dict(line.split(":") for line in bytes(info).decode().split())
        return text["cluster_state"] == "ok" and node.info("replication")["role"] == "master"
    except redis.RedisError:
        return False


@pytest.mark.parametrize("turn", range(dose(1, long=20)))
def test_a_slot_that_moves_under_load_disturbs_no_job(lasting: Changing, turn: int) -> None:
    """As `redis-cli --cluster reshard` moves it, some keys at a time."""
    site, count = lasting.site, 300
    pools = [site.pool(), site.pool()]
    lasting.send("load", count, 5)
    # Of each: one producer may have begun long before the other, and the slot of a queue without jobs has no keys.
    site.ledger.wait_for(
        lambda events: all(ended(events, queue) >= count // 8 for queue in lasting.producers), "both are under load"
    )
    slot = lasting.client.keyslot(lasting.key(lasting.harmed))
    move(lasting, slot, lasting.node_of(lasting.harmed), lasting.node_of(lasting.healthy))
    lasting.send("after", 20, 1)
    errors = [lasting.answers(), lasting.answers()]
    told = "".join(pool.text() for pool in pools)
    assert "TTL exhausted" not in told, told  # what redis-py says when it no longer repeats the call
    assert not any(any(each.values()) for each in errors), errors
    lasting.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    verdict = judge(site.ledger.read(), lasting.state_of)
    assert verdict.is_sound, verdict
    assert verdict.duplicates == 0, site.repeats()
    assert len(verdict.ended) == 2 * (count + 20)
    counts = [site.counts(queue) for queue in lasting.producers]
    assert [(each["dead"], each["retry"]) for each in counts] == [(0, 0)] * 2


def ended(events: Sequence[Event], queue: str) -> int:
    return sum(event.kind == "end" and event.id.startswith(f"{queue}-") for event in events)


def tried_again(node: redis.Redis) -> int:
    told = node.info("errorstats").get("errorstat_TRYAGAIN", {})
    return int(told.get("count", 0))


def move(changing: Changing, slot: int, source: str, target: str) -> None:
    primaries = {node.name for node in changing.client.get_primaries()}
    with changing.direct(source) as giver, changing.direct(target) as taker:
        names = [bytes(node.execute_command("CLUSTER", "MYID")).decode() for node in (giver, taker)]
        host, _, port = target.rpartition(":")
        taker.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
        giver.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
        (first,) = giver.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1)
        giver.execute_command("MIGRATE", host, port, "", 0, 5_000, "KEYS", first)
        # Neither node can serve the queue now; redis-py alone repeats a call for less than half a second.
        wait_until(lambda: tried_again(giver) + tried_again(taker) >= HALF_MOVED, "calls are told to try again")
        while keys := giver.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            giver.execute_command("MIGRATE", host, port, "", 0, 5_000, "KEYS", *keys)
        taker.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[1])
        giver.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[1])
    for name in primaries - {source, target}:
        with changing.direct(name) as node:
            node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[1])
