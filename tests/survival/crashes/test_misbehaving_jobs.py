"""Jobs that kill their process, never end, or fail in ways that cannot be printed; and what becomes of the others."""

from __future__ import annotations

import signal
from time import monotonic

import pytest

from django_jobs.core.values import State
from tests.support.dose import dose
from tests.support.pace import Pace
from tests.support.pools import Site
from tests.support.processes import is_alive, send_signal
from tests.support.waiting import wait_until
from tests.survival.project.kinds import ENDLESS, POISON

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, ci=900, long=900))]


@pytest.mark.accepts("G04", "K02")
def test_poison_dies_after_three_processes_and_takes_nobody_with_it(site: Site) -> None:
    """Each of them shares a process with a hundred others when it first runs."""
    producer = site.producer()
    innocent = 1_000
    poisons = [f"poison-{how}-{n}" for how in POISON for n in range(dose(1, ci=4, long=4))]
    for turn in range(10):
        producer.send("work", innocent // 10, 3, prefix=f"turn{turn}")
        for id in poisons[turn::10]:
            producer.ask("poison", [id], id.split("-")[1])
            producer.answer()
    pool = site.pool(processes=2)
    site.wait_drained(seconds=dose(90, ci=240, long=240))
    assert pool.stop() == 0
    verdict = site.verdict()
    assert len(verdict.ended) == innocent
    assert {id for id, count in verdict.starts.items() if id.startswith("poison")} == set(poisons)
    dead = {info.id: info for info in site.store.page("default", State.DEAD, 0, 100)}
    assert set(dead) == set(poisons), "no innocent job is dead"
    for id in poisons:
        info = site.store.get("default", id)
        assert info is not None
        assert info.crashes == 3
        assert verdict.starts[id] <= 3, "it cost at most three processes"
        assert [attempt.outcome for attempt in info.attempts] == ["worker_lost"] * 3


@pytest.mark.accepts("G04")
@pytest.mark.parametrize("pools", [1, 2])
def test_a_job_that_kills_the_whole_worker_is_buried_and_nobody_beside_it(site: Site, pools: int) -> None:
    """As a container at its memory limit: parent and children are gone at once, and it is started again."""
    site.jobs_settings["LEASE"] = 1
    producer = site.producer()
    producer.send("work", 20, 5, prefix="before")
    producer.ask("kills_worker", ["poison"])
    producer.answer()
    producer.send("work", 20, 5, prefix="after")
    running = [site.pool(processes=2) for _ in range(pools)]
    deaths = 0

    def over() -> bool:
        nonlocal deaths
        for n, pool in enumerate(running):
            if pool.process.poll() is not None:
                deaths += 1
                running[n] = site.pool(processes=2)
        return site.drained()

    wait_until(over, "everything has ended", seconds=60, every=0.1)
    assert deaths == 3
    assert all(pool.stop() == 0 for pool in running)
    assert [info.id for info in site.store.page("default", State.DEAD, 0, 100)] == ["poison"]
    assert site.counts()["succeeded"] == 40


@pytest.mark.accepts("K19", "R24")
@pytest.mark.parametrize("how", ENDLESS)
def test_a_time_limit_ends_everything(site: Site, how: str, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 60  # a job whose lease ends on a crowded machine starts again
    producer = site.producer()
    pool = site.pool()
    producer.send("work", 5, prefix="before")
    site.wait_drained()
    producer.send("endless", 1, how, prefix="endless")
    site.ledger.wait_for(lambda events: any(e.id == "endless-0" for e in events), "it runs")
    began = monotonic()
    producer.send("work", 50, 20, prefix="beside")
    wait_until(lambda: site.state_of("endless-0") == "dead", "it is ended", seconds=10)
    pace.within(began, 1 + 2, "the time limit")
    producer.send("work", 5, prefix="after")
    site.wait_drained()
    assert pool.stop() == 0
    info = site.store.get("default", "endless-0")
    assert info is not None
    assert [attempt.outcome for attempt in info.attempts] == ["timeout"]
    assert info.crashes == 0
    assert site.verdict().duplicates == 0, "no neighbour was touched"
    assert not [pid for pid in pool.seen if is_alive(pid)]


@pytest.mark.accepts("K19")
def test_many_time_limits_leak_nothing(site: Site) -> None:
    site.jobs_settings["LEASE"] = 60  # a job whose lease ends on a crowded machine starts again
    producer = site.producer()
    pool = site.pool()
    count = dose(8, ci=30, long=100)
    producer.send("endless", count, "sleep", prefix="endless")
    wait_until(lambda: site.counts()["dead"] == count, "all are ended", seconds=count * 2 + 20, every=0.2)
    producer.send("work", 20, 5)
    site.wait_drained()
    alone = 4
    maintenance = 1
    assert len(pool.children()) <= 1 + alone + 1 + maintenance
    assert pool.stop() == 0
    assert not [pid for pid in pool.seen if is_alive(pid)]
    assert site.verdict().duplicates == 0


@pytest.mark.accepts("G50", "P03")
def test_a_job_that_lets_no_other_thread_run_for_five_leases_is_not_taken_over(site: Site) -> None:
    site.jobs_settings["LEASE"] = 2
    producer = site.producer()
    pools = [site.pool(), site.pool()]
    producer.send("holds_gil", 1, 10.0)
    site.ledger.wait("end", 1)
    site.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    assert site.verdict().duplicates == 0


@pytest.mark.accepts("G04")
def test_when_the_parent_is_killed_its_children_go_too(site: Site) -> None:
    producer = site.producer()
    pool = site.pool(processes=2)
    producer.send("work", 20, 3_000)
    site.ledger.wait_for(lambda events: len({e.pid for e in events if e.kind == "start"}) == 2, "both children work")
    children = pool.children()
    assert len(children) >= 3
    pool.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in children), "the children are gone", seconds=5)


@pytest.mark.accepts("G04")
def test_a_child_that_is_killed_is_replaced_and_its_jobs_run_at_once(site: Site, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 60  # nothing here may wait for a lease
    producer = site.producer()
    pool = site.pool()
    for turn in range(dose(4, ci=10, long=60)):
        producer.send("work", 4, 300, prefix=f"turn{turn}")
        site.ledger.wait_for(
            lambda events, t=turn: {e.id for e in events if e.kind == "start"} & {f"turn{t}-{n}" for n in range(4)},
            "a job of this turn runs",
        )
        started = {e.pid for e in site.ledger.read() if e.id.startswith(f"turn{turn}-")}
        began = monotonic()
        for pid in started & set(pool.children()):
            send_signal(pid, signal.SIGKILL)
        site.wait_drained(seconds=15)
        pace.within(began, 4, "not after a lease: one after the other, alone")
        wait_until(lambda: len(pool.children()) >= 2, "it is replaced", seconds=8)
    assert pool.stop() == 0
    verdict = site.verdict()
    assert not verdict.lost
    assert not site.counts()["dead"]


@pytest.mark.accepts("G50", "G53")
@pytest.mark.parametrize("kind", ["surrogate", "huge", "unprintable"])
def test_errors_that_cannot_be_printed_are_failures_like_any(site: Site, kind: str) -> None:
    producer = site.producer()
    pool = site.pool()
    producer.send("raises", 1, kind)
    wait_until(lambda: site.state_of("j-0") == "dead", "it failed", seconds=20)
    producer.send("work", 3, prefix="after")
    site.ledger.wait("end", 3)
    site.wait_drained()
    assert pool.stop() == 0
    info = site.store.get("default", "j-0")
    assert info is not None
    assert info.crashes == 0
    (attempt,) = info.attempts
    assert attempt.outcome == "failed"
    assert len(attempt.error) + len(attempt.traceback) < 2 * 16_384 + 200
    assert "\x1b" not in attempt.error
