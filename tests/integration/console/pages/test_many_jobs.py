"""What pages cost does not grow with the number of jobs: commands that are sent to Redis, and which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from django.test import Client
from redis.client import Monitor

from bench.monitor import Sent, sent_here
from django_jobs.core.values import Job, NewJob, Options, State
from django_jobs.serialization.record import encode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, shop_jobs, worker_info

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

EACH = 10_000
MOST = 30
#: Reads whose cost grows with the number of jobs; scripts and the small hashes are not among them.
WALKS = {"KEYS", "SCAN", "ZSCAN", "SMEMBERS", "HGETALL", "HKEYS", "HVALS", "LRANGE", "SORT", "ZRANGEBYSCORE"}
SMALL = (
    "queues",
    "paused",
    "totals",
    "minutes",
    "fired",
    "timed",
    "workers",
    "seen",
    "document:snapshot",
    "document:bulk",
    "document:searches",
)


@pytest.fixture
def sent() -> Iterator[Sent]:
    with sent_here() as noted:
        yield noted


def texts(sent: Sent) -> list[tuple[str, str]]:
    """The name of each command, and its first argument: a key, or the hash of a script."""
    return [(verb.decode().upper(), rest[0].decode(errors="replace") if rest else "") for verb, *rest in sent.commands]


def fill(store: Store, queue: str, number: int, state: State) -> None:
    """`number` jobs in `state`, a thousand at a time."""
    now = store.now()
    for start in range(0, number, 1000):
        jobs = [
            Job(f"{state[0]}{i:05}", queue, "shop.send_receipt", b"[[7],{}]", now, Options())
            for i in range(start, start + 1000)
        ]
        later = now + 3_600_000 if state is State.SCHEDULED else 0
        store.enqueue(queue, [NewJob(job.id, encode(job), job.controls, later) for job in jobs])
        if state is State.DEAD:
            for i in range(0, 1000, 250):
                store.kill(queue, [job.id for job in jobs[i : i + 250]], "the bank is down")


def test_pages_over_20_000_jobs_cost_as_many_commands_as_over_none(
    make_redis_store: Callable[..., Store], root: Client, sent: Sent
) -> None:
    store = make_redis_store()
    use_store(store)
    last = EACH // 50
    pages = ["", "?period=day", "queues/", "queues/default/", "jobs/dead/", "jobs/scheduled/"]
    pages += [f"jobs/dead/?p={last}", f"jobs/scheduled/?p={last}", f"jobs/dead/?queue=default&p={last // 2}"]
    pages += ["jobs/dead/?group=1", "jobs/dead/?q=nothing", "jobs/dead/?q=d00007", "job/default/d00007/"]
    pages += ["search/?q=nothing", "search/?q=d00007", "types/shop.send_receipt/"]
    pages += ["jobs/dead/?from=2020-01-01&order=asc", "jobs/dead/?until=2100-01-01&name=shop.send_receipt"]
    pages += ["jobs/scheduled/?from=2020-01-01&until=2100-01-01", "queues/?sort=dead&order=desc", "store/"]
    with shop_jobs():
        fill(store, "default", EACH, State.DEAD)
        fill(store, "default", EACH, State.SCHEDULED)
        root.get(f"{BASE}jobs/dead/")  # connects, which takes commands of its own
        cost: Counter[str] = Counter()
        for page in pages:
            sent.clear()
            response = root.get(BASE + page)
            assert response.status_code == 200, page
            cost[page] = len(sent.commands)
            walks = [(verb, key) for verb, key in texts(sent) if verb in WALKS and not key.endswith(SMALL)]
            assert walks == [], page
        # A search for text looks into all jobs of its state, or of both, a thousand at a time.
        for page in pages:
            looked_into = 0 if "?q=" not in page else 2 * EACH if page.startswith("search/") else EACH
            assert cost[page] <= MOST + 2 * looked_into // 1000, cost
        assert cost[f"jobs/dead/?p={last}"] == cost["jobs/dead/"]
        assert "d00000" in root.get(f"{BASE}jobs/dead/?p={last}").text
        assert f"s{EACH - 1:05}" in root.get(f"{BASE}jobs/scheduled/?p={last}").text


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
