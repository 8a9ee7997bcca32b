"""Pausing a queue or a job type while two workers run: at once, everywhere, with a reason, and until its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns
from uuid import uuid4

import pytest
from django.test import override_settings

from django_jobs import job, operations
from django_jobs.core.values import State
from django_jobs.stores import use_store
from django_jobs.stores.values.answers import LONGEST_WAIT
from tests.integration.workers import WorkerSite
from tests.support.pace import Pace
from tests.support.pools import Pool
from tests.support.waiting import wait_until

Q = "default"


@job(name="tests.pausing.add")
def add(a: int, b: int) -> int:
    return a + b


@pytest.fixture
def site(redis_server: str, tmp_path: Path) -> Iterator[WorkerSite]:
    """Workers on two queues; this process operates on the same store."""
    queues = {Q: {}, "other": {}}
    made = WorkerSite(tmp_path, redis_server, NAMESPACE=f"p{uuid4().hex[:10]}", QUEUES=queues)
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": queues}):
        use_store(made.store)
        yield made
    made.close()


@pytest.fixture
def fleet(site: WorkerSite) -> Iterator[list[Pool]]:
    """Two `runworkers`, both at work before the test begins; both stop in order after it."""
    pools = [site.pool(threads=2), site.pool(threads=2)]

    def both_run() -> bool:
        for _ in range(4):
            site.put("work", 20)
        parents = {child: pool.pid for pool in pools for child in pool.children()}
        return len({parents.get(event.pid) for event in site.ledger.read() if event.kind == "start"} - {None}) == 2

    wait_until(both_run, "both workers run jobs", seconds=30, every=0.2)
    wait_until(lambda: site.drained(), "the jobs of the start are done")
    yield pools
    assert [pool.stop() for pool in pools] == [0, 0]


def started(site: WorkerSite) -> set[str]:
    return {event.id for event in site.ledger.read() if event.kind == "start"}


@pytest.mark.accepts("G11", "G66", "G83")
def test_a_paused_queue_starts_nothing_anywhere_while_running_jobs_finish_and_other_queues_go_on(
    site: WorkerSite, fleet: list[Pool]
) -> None:
    running = [site.put("work", 500) for _ in range(4)]
    wait_until(lambda: set(running) <= started(site), "they run")
    operations.pause(Q, reason="the provider is down")
    held = [site.put("work") for _ in range(20)]
    alone = site.put("timed", timeout=500)

    for id in running:
        assert site.wait(id).state is State.SUCCEEDED, "running jobs finish"
    beside = [site.put("work", queue="other") for _ in range(20)]
    for id in beside:
        site.wait(id, queue="other")
    assert started(site) & {*held, alone} == set()
    (stats,) = site.store.stats([Q])
    assert stats.paused is not None
    assert stats.paused.reason == "the provider is down"
    assert stats.counts["queued"] == 21

    operations.resume(Q)
    for id in held:
        site.wait(id)
    site.store.cancel(Q, [alone])


def test_a_queue_that_is_resumed_goes_on_at_once(site: WorkerSite, fleet: list[Pool]) -> None:
    """Not at somebody's next look, every LONGEST_WAIT: most of five rounds would wait longer for it."""
    waits = []
    for _ in range(5):
        operations.pause(Q)
        held = site.put("work")
        resumed = site.store.now()
        operations.resume(Q)
        waits.append(site.wait(held).at - resumed)
    assert sorted(waits)[2] < LONGEST_WAIT * 1000 / 4, f"ms: {waits}"


@pytest.mark.timed
@pytest.mark.accepts("G66", "G49")
def test_after_a_pause_in_full_swing_nothing_more_is_claimed(site: WorkerSite, fleet: list[Pool], pace: Pace) -> None:
    """What a worker holds by then still starts: a fraction of a second's work, never more."""
    jobs = {site.put("work", 100) for _ in range(300)}
    wait_until(lambda: len(jobs & started(site)) > 20, "they run", every=0.005)
    operations.pause(Q)
    paused = monotonic_ns()
    (stats,) = site.store.stats([Q])
    wait_until(lambda: site.store.stats([Q])[0].counts["running"] == 0, "what was held has ended")
    (after,) = site.store.stats([Q])
    assert after.counts["queued"] >= stats.counts["queued"] > 0
    late = [event for event in site.ledger.read() if event.kind == "start" and event.at > paused]
    pace.took(max([event.at - paused for event in late], default=0) / 1e9, 1, "what was claimed before")
    assert len(late) < 60
    operations.resume(Q)
    wait_until(lambda: site.store.stats([Q])[0].counts["succeeded"] > after.counts["succeeded"], "they go on")


@pytest.mark.accepts("G11", "G66")
def test_a_paused_type_is_held_back_everywhere_and_the_others_pass(site: WorkerSite, fleet: list[Pool]) -> None:
    operations.pause(Q, name="add", reason="wrong sums")
    held = [site.put("add", 1, n) for n in range(20)]
    for id in [site.put("work") for _ in range(20)]:
        site.wait(id)
    wait_until(lambda: all(site.info(id).state is State.BLOCKED for id in held), "they are blocked")
    assert site.store.stats([Q])[0].paused_types["add"].reason == "wrong sums"

    operations.resume(Q, name="add")
    for n, id in enumerate(held):
        assert site.wait(id).result == str(1 + n).encode()


@pytest.mark.parametrize("name", [None, "add"], ids=["queue", "type"])
def test_a_pause_ends_by_itself_at_its_time(site: WorkerSite, fleet: list[Pool], name: str | None) -> None:
    """Not at somebody's next look, every LONGEST_WAIT: most of five rounds would be later with it."""
    late = []
    for _ in range(5):
        until = site.store.now() + 400
        operations.pause(Q, name=name, reason="maintenance", until=until)
        ends = [site.wait(id).at for id in [site.put("add", 1, n) for n in range(3)]]
        assert min(ends) >= until
        late.append(min(ends) - until)
    assert sorted(late)[2] <= LONGEST_WAIT * 1000 / 8, f"ms: {late}"
    stats = site.store.stats([Q])[0]
    assert (stats.paused, stats.paused_types) == (None, {})
