"""What pages cost does not grow with the number of jobs: commands that are sent to Redis, and which."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.test import Client
from redis.client import Monitor

from bench.monitor import Sent, sent_here
from django_jobs import browse
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Job, NewJob, Options, State
from django_jobs.operations.diagnosis.failing import failing_types
from django_jobs.serialization.record import encode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, send_receipt, shop_jobs, worker_info

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

QUEUES = [f"tenant-{n}" for n in range(6)]
#: Jobs of each queue.  Of fewer than the first, groups are read and not counted.
FEW, MANY = 200, 17_000
#: What scripts and pages call to read; the rest of a page is none of these, and is counted as one.
READS = re.compile(rb"(?i)h(get|mget|getall|keys|vals|len|exists|scan)|z.*range.*|z.*count|zm?score|zcard|[sz]scan|"
                   rb"smembers|m?get|exists|lrange|llen|keys|scan")  # fmt: skip
ARGUMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
MOST = 30


@pytest.fixture
def sent() -> Iterator[Sent]:
    with sent_here() as noted:
        yield noted


def texts(sent: Sent) -> list[tuple[str, str]]:
    """The name of each command, and its first argument: a key, or the hash of a script."""
    return [(verb.decode().upper(), rest[0].decode(errors="replace") if rest else "") for verb, *rest in sent.commands]


@pytest.mark.parametrize("queues", [19, 40])
def test_pages_over_many_queues_cost_30_commands_at_most(
    queues: int, make_redis_store: Callable[..., Store], root: Client, sent: Sent
) -> None:
    from django_jobs.browse import publish_snapshot

    store = make_redis_store()
    use_store(store)
    with shop_jobs():
        filler = Filler(store)
        for i in range(queues):
            for state in (State.SUCCEEDED, State.DEAD, State.RETRY, State.SCHEDULED, State.RUNNING, State.QUEUED):
                filler.make(state, queue=f"tenant-{i:02}")
        store.publish_worker("web-1:4711", worker_info(), 60_000)
        assert publish_snapshot() is (queues > 20)
        paths = ["", "?period=day", "queues/", "queues/tenant-07/", "workers/", "schedules/", "bulk/", "history/"]
        paths += [f"jobs/{state}/" for state in State]
        paths += ["jobs/dead/?q=timed", "jobs/dead/?group=1", "jobs/queued/?q=01J000000001", "search/?q=timed"]
        paths += ["types/shop.send_receipt/", "types/shop.send_receipt/?queue=tenant-07"]
        for page in paths:
            sent.clear()
            assert root.get(BASE + page).status_code == 200, page
            assert 0 < len(sent.commands) <= MOST, (page, Counter(texts(sent)).most_common(12))


@pytest.mark.parametrize("queues", [1, 7])
@pytest.mark.parametrize("state", [State.RETRY, State.DEAD])
def test_the_overview_tells_of_20_failing_types_with_30_commands_at_most(
    queues: int, state: State, make_redis_store: Callable[..., Store], root: Client, sent: Sent
) -> None:
    """An outage: every type fails, each with an error of its own."""
    store = make_redis_store()
    use_store(store)
    names = [f"shop.call_{bank}" for bank in "abcdefghijklmnopqrst"]
    filler = Filler(store)
    try:
        for n, name in enumerate(names):
            registry.register(JobDefinition(send_receipt, name=name))
            for _ in range(10):
                filler.make(state, f"bank {name[-1]} is down", name=name, queue=f"tenant-{n % queues}")
        root.get(BASE)  # connects, which takes commands of its own
        sent.clear()
        root.get(BASE)
        assert len(sent.commands) <= MOST, Counter(texts(sent)).most_common(12)
        found, _ = failing_types(browse.job_counts(), store.now())
    finally:
        for name in names:
            registry.unregister(name)
    assert {each.name: each.error for each in found} == {
        name: f"TimeoutError: bank {name[-1]} is down" for name in names
    }


def test_every_command_of_a_page_is_counted_whoever_packs_it(redis_store: Store, root: Client, sent: Sent) -> None:
    """Our script calls are packed without redis-py, so a count of what redis-py packs would miss most of a page."""
    use_store(redis_store)
    server = redis_store.transport.client
    with shop_jobs(), server.monitor() as monitor:
        filler = Filler(redis_store)
        for i in range(3):
            filler.make(State.DEAD, queue=f"tenant-{i}")
        for page in ("", "jobs/dead/", "jobs/dead/?group=1", "jobs/dead/?name=shop.send_receipt", "queues/"):
            server.echo("begins")
            sent.clear()
            assert root.get(BASE + page).status_code == 200
            counted = [verb for verb, _ in texts(sent)]
            server.echo("ends")
            received = seen_by(monitor)
            assert counted == received[received.index("ECHO begins") + 1 : -1], page
            assert "EVALSHA" in counted


def seen_by(monitor: Monitor) -> list[str]:
    """What clients have sent until one says that this is the end."""
    received: list[str] = []
    while not received or received[-1] != "ECHO ends":
        seen = monitor.next_command()
        if seen["client_type"] != "lua":
            text = seen["command"]
            received.append(text if text.upper().startswith("ECHO") else text.partition(" ")[0].upper())
    return received


def fill_queues(store: Store, number: int) -> None:
    """So many dead and scheduled jobs in each queue: one is filled by the store's methods, the others are copies."""
    first, *others = QUEUES
    now, made = store.now(), 0
    while made < number:
        some = range(made, min(made + 250, number))
        jobs = [Job(f"d{i:05}", first, "shop.send_receipt", b"[[7],{}]", now, Options(tags="vip")) for i in some]
        store.enqueue(first, [NewJob(job.id, encode(job), job.controls) for job in jobs])
        store.kill(first, [job.id for job in jobs], "the bank is down")
        later = [job._replace(id=job.id.replace("d", "s")) for job in jobs]
        store.enqueue(first, [NewJob(job.id, encode(job), job.controls, now + 3_600_000) for job in later])
        made += len(jobs)
    client = store.transport.client
    for key, name in store.keys.of(first).items():
        if dump := client.dump(name):
            for queue in others:
                client.restore(store.keys.of(queue)[key], 0, dump)
    client.sadd(store.keys.fleet("queues"), *others)


def work(store: Store, call: Callable[[], Any]) -> int:
    """How much the server does for this: the commands of clients and scripts, and the elements that they read."""
    client = store.transport.client
    with client.monitor() as monitor:
        call()
        client.echo("the end")
        lines = []
        while b"the end" not in (line := monitor.connection.read_response(disable_decoding=True)):
            lines.append(line)
    commands = [[unescaped(each) for each in ARGUMENT.findall(line.partition(b"]")[2])] for line in lines]
    assert len(commands) > 3
    return sum(1 + (size_of(client.execute_command(*each)) if READS.fullmatch(each[0]) else 0) for each in commands)


def unescaped(text: bytes) -> bytes:
    return text.decode("unicode_escape").encode("latin-1")


def size_of(reply: Any) -> int:
    return sum(map(size_of, reply)) if isinstance(reply, list | tuple) else len(reply) if hasattr(reply, "keys") else 1


def test_the_work_of_a_page_does_not_grow_with_the_rows(make_redis_store: Callable[..., Store], root: Client) -> None:
    key = browse.error_key("killed: the bank is down")
    pages = [
        "",
        "jobs/dead/",
        "jobs/dead/?queue=tenant-1",
        "jobs/dead/?name=shop.send_receipt",
        f"jobs/dead/?error={key}",
    ]
    pages += ["jobs/dead/?group=1", "jobs/dead/?group=tag", "jobs/dead/?tag=vip", "jobs/dead/?order=asc"]
    pages += ["jobs/dead/?from=2020-01-01", "jobs/dead/?q=name:shop.send_receipt", "jobs/dead/?q=id:d00100"]
    pages += ["types/shop.send_receipt/", "errors/", "job/tenant-1/d00100/", "?period=day", "queues/", "store/"]
    pages += ["queues/?sort=dead&order=desc", "queues/tenant-1/", "jobs/dead/?until=2100-01-01&name=shop.send_receipt"]
    pages += ["jobs/scheduled/", "jobs/scheduled/?from=2020-01-01&until=2100-01-01"]
    found: dict[int, list[int]] = {}
    with shop_jobs():
        for number in (FEW, MANY):
            use_store(store := make_redis_store(dead=10**7))
            store.transport.client.flushall()
            fill_queues(store, number)
            lasts = [f"jobs/{state}/?queue=tenant-1&p={number // 50}" for state in ("dead", "scheduled")]
            addresses = [BASE + page for page in [*pages, *lasts]]
            assert {root.get(each).status_code for each in addresses} == {200}
            found[number] = [work(store, partial(root.get, each)) for each in addresses]
    assert found[MANY] == found[FEW]
