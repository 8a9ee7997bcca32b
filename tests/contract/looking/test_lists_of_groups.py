"""Lists over groups of failed jobs have exactly their jobs, in order.

The store finds a page of thousands of groups in several calls.  Here it does so for two groups."""

from __future__ import annotations

import random
from itertools import chain

import pytest

from django_jobs.core.values import Attempt, State
from django_jobs.stores.redis import lists
from django_jobs.stores.redis.failures import bars
from django_jobs.stores.values.lists import Bars
from tests.contract.acts import LEASE

QUEUES = ("a", "b", "c")
DIRECTIONS = pytest.mark.parametrize("reverse", [True, False])


@pytest.fixture(autouse=True)
def _two_groups_are_many(monkeypatch):
    monkeypatch.setattr(lists, "OPENED", 1)


def put(store, make_job, queue, id, error, name="mail", tags="", retry=0):
    """Let a job of this queue die, or wait for a retry."""
    store.enqueue(queue, [make_job(id, name=name, tags=tags)])
    (claimed,) = store.claim(queue, "w", 1, lease=LEASE).claims
    attempt = Attempt(1, "failed", 0, 12, "w", "ValueError", error)
    return store.retry(claimed, attempt, retry) if retry else store.bury(claimed, attempt)


def pages(store, state, groups, limit, reverse, queues=QUEUES):
    """The ids of all pages."""
    found, mark = [], None
    while len(found) < 100:  # a list that begins again must not be read for ever
        infos, mark = store.listed(queues, state, limit, mark, groups=groups, reverse=reverse)
        found.append([info.id for info in infos])
        if mark is None:
            break
    return found


def ids_of(store, state, ids, reverse):
    """Those of these ids that a list of all jobs has, in its order."""
    return [info.id for info in store.listed(QUEUES, state, 1000, reverse=reverse)[0] if info.id in ids]


@DIRECTIONS
@pytest.mark.parametrize("state", [State.DEAD, State.RETRY])
def test_each_job_of_the_groups_is_listed_once_and_in_order(store, make_job, clock, state, reverse):
    rng, by_kind, by_tag = random.Random(7), {}, {}
    for n in range(60):
        id, error, name, tag = f"{n:02}", rng.choice(["one", "two", "three"]), rng.choice(["mail", "sms"]), f"t{n % 4}"
        put(store, make_job, rng.choice(QUEUES), id, error, name, tag, retry=10_000_000 if state is State.RETRY else 0)
        by_kind.setdefault((name, f"ValueError: {error}"), set()).add(id)
        by_tag.setdefault(tag, set()).add(id)
        clock.advance(rng.choice([0, 0, 1000]))
    gone = [f"{n:02}" for n in range(0, 60, 7)]
    for queue in QUEUES:
        store.delete(queue, gone)
    groups = store.failure_groups(QUEUES, state)
    for _ in range(8):
        kinds = set(rng.sample(sorted(by_kind), 3))
        chosen = [group for group in groups if group[1:3] in kinds]
        expected = ids_of(store, state, set().union(*(by_kind[kind] for kind in kinds)) - set(gone), reverse)
        for limit in (1, 7):
            found = pages(store, state, chosen, limit, reverse)
            assert list(chain(*found)) == expected
            assert {len(page) for page in found[:-1]} <= {limit}
    for tag, ids in by_tag.items():
        chosen = [group for group in store.failure_tags(QUEUES, state, tag) if group.tag == tag]
        assert list(chain(*pages(store, state, chosen, 4, reverse))) == ids_of(store, state, ids - set(gone), reverse)


@DIRECTIONS
def test_a_page_of_many_groups_reads_few_more_jobs_than_it_has(redis_store, make_job, clock, monkeypatch, reverse):
    monkeypatch.setattr(lists, "OPENED", 1000)
    store, groups, limit = redis_store, 20, 100
    for n in range(limit):
        ids = [f"{n:02}-{group:02}" for group in range(groups)]
        store.enqueue("a", [make_job(id, name=f"type{id[3:]}") for id in ids])
        store.kill("a", ids, "common")
        clock.advance(1000)
    found = store.failure_groups(["a"], State.DEAD)
    assert len(found) == groups
    store.transport.client.config_resetstat()
    assert len(store.listed(["a"], State.DEAD, limit, groups=found, reverse=reverse)[0]) == limit
    stats = store.transport.client.info("commandstats")
    assert stats["cmdstat_zscore"]["calls"] <= limit + groups


@DIRECTIONS
def test_few_jobs_among_many_others_are_found(store, make_job, clock, reverse):
    for n in range(6):
        for queue in QUEUES:
            put(store, make_job, queue, f"{queue}{n}", "rare")
        clock.advance(1000)
        others = [f"common{n}-{i:03}" for i in range(80)]
        store.enqueue("b", [make_job(id) for id in others])
        store.kill("b", others, "common")
        clock.advance(1000)
    groups = [group for group in store.failure_groups(QUEUES, State.DEAD) if group.signature == "ValueError: rare"]
    assert len(groups) == len(QUEUES)
    expected = ids_of(store, State.DEAD, {f"{queue}{n}" for queue in QUEUES for n in range(6)}, reverse)
    assert len(expected) == 18
    assert pages(store, State.DEAD, groups, 10, reverse) == [expected[:10], expected[10:]]
    assert pages(store, State.DEAD, groups, 4, reverse)[:2] == [expected[:4], expected[4:8]]


def test_groups_with_many_jobs_are_counted_in_several_calls(store, make_job, clock, monkeypatch):
    for n in range(24):
        put(store, make_job, QUEUES[n % 3], f"{n:02}", "abcd"[n // 3 % 4] * 4)
        clock.advance(1000)
    groups = [group for group in store.failure_groups(QUEUES, State.DEAD) if group.jobs]
    spans = Bars(clock.now - 12_000, 3_000, 3)
    expected = store.count_bars(State.DEAD, groups, spans)
    assert (len(groups), sum(map(sum, expected))) == (12, 9)
    monkeypatch.setattr(bars, "COUNTED", 5)
    assert store.count_bars(State.DEAD, groups, spans) == expected


def test_jobs_whose_error_is_told_apart_by_its_class_only_are_found(store, make_job, clock):
    for n in range(510):
        put(store, make_job, "a", f"{n:03}", "".join("abcdefghij"[int(digit)] * 3 for digit in f"{n:03}"))
    put(store, make_job, "b", "510", "aaaaaaaaa")
    clock.advance(1000)
    groups = [group for group in store.failure_groups(QUEUES, State.DEAD) if group.jobs]
    last = sorted(groups, key=lambda group: -group.jobs)[:1] + [group for group in groups if group.queue == "b"]
    found = list(chain(*pages(store, State.DEAD, last, 50, True)))
    assert len(found) == sum(group.jobs for group in last)
    assert "510" in found
