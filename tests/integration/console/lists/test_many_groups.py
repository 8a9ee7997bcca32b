"""What pages cost if jobs of 20 types failed with 7 errors in each of 500 queues: 70,000 groups.

Times are processor time of the two processes, compared with that of reading all groups on the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import redis
from django.test import Client

from bench.monitor import sent_here
from django_jobs import browse
from django_jobs.core.values import Job, NewJob, Options, State
from django_jobs.serialization.record import encode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import shop_jobs
from tests.support.pace import TWENTY_MS

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

QUEUES, TYPES, ERRORS = 500, 20, 7
#: Commands of one page.
MOST = 30
#: Names of queues are as they sort: the first and the last one, and those between.
NAMES = [f"tenant-{n:03}" for n in range(QUEUES)]


def reason(n: int) -> str:
    return f"the bank of {'abcdefg'[n]} is down"


@pytest.fixture
def many_groups(redis_store: Store, clock: Callable[[], int]) -> Iterator[Store]:
    """One queue is filled by the store's methods, and the others are copies of its keys."""
    store, (first, *others) = redis_store, NAMES
    for n in range(ERRORS):
        jobs = [
            Job(f"d{n}-{i:02}", first, f"shop.type{i:02}", b"[[],{}]", store.now(), Options(tags=f"all c-{i:02}"))
            for i in range(TYPES)
        ]
        store.enqueue(first, [NewJob(job.id, encode(job), job.controls) for job in jobs])
        store.kill(first, [job.id for job in jobs], reason(n))
        clock.advance(1000)
    client = store.transport.client
    keys = {key: dump for key, name in store.keys.of(first).items() if (dump := client.dump(name))}
    with client.pipeline(transaction=False) as pipe:
        for queue in others:
            for key, dump in keys.items():
                pipe.restore(store.keys.of(queue)[key], 0, dump)
            pipe.sadd(store.keys.fleet("queues"), queue)
        pipe.execute()
    use_store(store)
    with shop_jobs():
        browse.publish_snapshot()
        yield store


class Cost(NamedTuple):
    """What a call costs: commands, bytes that the server returns, ms of processor time here and there."""

    commands: int
    size: int
    here: float
    there: float


def cost(store: Store, call: Callable[[], object], times: int = 3) -> Cost:
    """Return the least that this call costs in so many times."""
    client, found = store.transport.client, []
    for _ in range(times):
        before, began = client.info(), time.process_time()
        with sent_here() as sent:
            call()
        here, after = time.process_time() - began, client.info()
        size = after["total_net_output_bytes"] - before["total_net_output_bytes"] - 8_000
        there = sum(after[key] - before[key] for key in ("used_cpu_user", "used_cpu_sys"))
        found.append(Cost(len(sent.commands), size, here * 1000, there * 1000))
    return Cost(*map(min, zip(*found, strict=True)))


def looks_at_ranges(client: redis.Redis) -> int:
    """How often the server has looked for the jobs of a group."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{verb}", {"calls": 0})["calls"] for verb in ("zrangebylex", "zrevrangebylex"))


def test_what_is_wanted_of_70_000_groups_is_read_without_the_others(many_groups: Store) -> None:
    store = many_groups
    everything = cost(store, lambda: store.failure_groups(NAMES, State.DEAD))
    groups = store.failure_groups(NAMES, State.DEAD)
    assert (len(groups), sum(group.jobs for group in groups)) == (70_000, 70_000)
    kinds = store.failure_kinds(NAMES)[State.DEAD]
    of_type = [kind for kind in kinds if kind.name == "shop.type07"]
    assert len(of_type) == ERRORS
    assert len(store.failure_groups(NAMES, State.DEAD, of_type)) == QUEUES * ERRORS
    sums = store.failure_sums(NAMES, State.DEAD)
    assert {(each.groups, each.jobs) for each in sums} == {(QUEUES, QUEUES)}
    assert len(sums) == TYPES * ERRORS
    for call, size, there in (
        (lambda: store.failure_groups(NAMES, State.DEAD, of_type), 0.1, 0.4),
        (lambda: store.failure_kinds(NAMES), 0.05, 1.0),
        (lambda: store.failure_sums(NAMES, State.DEAD), 0.1, 4.0),
    ):
        some = cost(store, call)
        assert some.size < size * everything.size, (some, everything)
        assert some.here < 0.5 * everything.here, (some, everything)
        assert some.there < there * everything.there, (some, everything)


@pytest.mark.timed
def test_a_call_takes_20_ms_of_the_servers_time_at_most_on_average(many_groups: Store) -> None:
    """All calls of one kind look at about as many jobs, so their mean is what another client waits at most."""
    store = many_groups
    groups = store.failure_groups(NAMES, State.DEAD)
    for call in (
        lambda: store.failure_groups(NAMES, State.DEAD),
        lambda: store.failure_kinds(NAMES),
        lambda: store.failure_sums(NAMES, State.DEAD),
        lambda: store.listed(NAMES, State.DEAD, 50, groups=groups, reverse=True),
        lambda: store.listed(NAMES, State.DEAD, 50, groups=groups),
        lambda: store.listed(NAMES, State.DEAD, 50),
    ):
        # Processor time varies by half with what else the processor does: both are taken at the same moment.
        found: list[tuple[Cost, Cost]] = []
        while not found or found[-1][0].there / found[-1][0].commands > found[-1][1].there:
            assert len(found) < 5, found
            measure = cost(store, lambda: store.transport.client.eval(TWENTY_MS, 0), times=1)
            found.append((cost(store, call, times=1), measure))


@pytest.mark.timed
def test_pages_over_70_000_groups_cost_30_commands_at_most(many_groups: Store, root: Client) -> None:
    everything = cost(many_groups, lambda: many_groups.failure_groups(NAMES, State.DEAD))
    usual = cost(many_groups, lambda: root.get(f"{BASE}jobs/dead/?queue=tenant-100"))
    key = browse.error_key(f"killed: {reason(0)}")
    for page, number in (
        ("jobs/dead/", 70_000),
        ("jobs/dead/?group=1", 70_000),
        ("jobs/dead/?name=shop.type07", 3_500),
        ("jobs/dead/?group=1&name=shop.type07", 3_500),
        (f"jobs/dead/?error={key}", 10_000),
        (f"jobs/dead/?name=shop.type07&error={key}", 500),
        ("types/shop.type07/", 3_500),
        ("jobs/dead/?group=1&queue=tenant-100", 140),
        ("jobs/dead/?group=tag", 70_000),
        ("jobs/dead/?tag=c-07", 3_500),
        ("jobs/dead/?tag=all", 70_000),
    ):
        pages: list[str] = []
        of_page = cost(many_groups, lambda page=page, pages=pages: pages.append(root.get(BASE + page).text), times=1)
        assert f"{number:,}" in pages[0], page
        assert of_page.commands <= MOST, page
        if of_page.here >= 1.25 * (usual.here + everything.here):  # once may be noise
            of_page = cost(many_groups, lambda page=page: root.get(BASE + page), times=2)
        assert of_page.here < 1.25 * (usual.here + everything.here), (page, of_page, usual, everything)


def test_a_queue_that_has_nothing_for_the_page_is_passed_over_with_one_look(many_groups: Store) -> None:
    """The page has the jobs of six queues: no group of the other 494 is opened."""
    store, client = many_groups, many_groups.transport.client
    for reverse in (True, False):
        error = f"killed: {reason(ERRORS - 1 if reverse else 0)}"
        kinds = [kind for kind in store.failure_kinds(NAMES)[State.DEAD] if kind.signature == error]
        groups = store.failure_groups(NAMES, State.DEAD, kinds)
        assert len(groups) == 10_000
        client.config_resetstat()
        found, _ = store.listed(NAMES, State.DEAD, 110, groups=groups, reverse=reverse)
        ends = NAMES[::-1] if reverse else NAMES
        assert [info.queue for info in found] == [end for end in ends[:6] for _ in range(20)][:110]
        assert looks_at_ranges(client) <= 250
