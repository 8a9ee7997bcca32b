"""Jobs that kill their process, never end, or fail in ways that cannot be printed; and what becomes of the others."""

from __future__ import annotations

from time import monotonic

import pytest

from django_jobs.core.values import State
from tests.support.dose import dose
from tests.support.pace import Pace
from tests.support.pools import Site
from tests.support.processes import is_alive
from tests.support.waiting import wait_until
from tests.survival.project.kinds import ENDLESS, POISON

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=900))]


@pytest.mark.accepts("G04", "K02")
def test_poison_dies_after_three_processes_and_takes_nobody_with_it(site: Site) -> None:
    """Each of them shares a process with a hundred others when it first runs."""
    producer = site.producer()
    innocent = 1_000
    poisons = [f"poison-{how}-{n}" for how in POISON for n in range(dose(1, long=4))]
    for turn in range(10):
        producer.send("work", innocent // 10, 3, prefix=f"turn{turn}")
        for id in poisons[turn::10]:
            producer.ask("poison", [id], id.split("-")[1])
            producer.answer()
    pool = site.pool(processes=2)
    site.wait_drained(seconds=dose(90, long=240))
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


@pytest.mark.accepts("K19", "R24")
def test_a_time_limit_ends_everything(site: Site, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 60  # a job whose lease ends on a crowded machine starts again
    producer = site.producer()
    pool = site.pool()
    producer.send("work", 5, prefix="before")
    site.wait_drained()
    for how in ENDLESS:
        id = f"endless-{how}-0"
        producer.send("endless", 1, how, prefix=f"endless-{how}")
        site.ledger.wait_for(lambda events, id=id: any(e.id == id for e in events), f"{id} runs")
        began = monotonic()
        producer.send("work", 50, 20, prefix=f"beside-{how}")
        wait_until(lambda id=id: site.state_of(id) == "dead", f"{id} is ended", seconds=10)
        pace.within(began, 1 + 2, f"the time limit of {id}")
        info = site.store.get("default", id)
        assert info is not None
        assert [attempt.outcome for attempt in info.attempts] == ["timeout"]
        assert "time limit of" in info.attempts[0].error
        assert (info.failures, info.crashes) == (1, 0)
    producer.send("work", 5, prefix="after")
    site.wait_drained()
    shared, alone, spare, maintenance = 1, 4, 1, 1
    assert len(pool.children()) <= shared + alone + spare + maintenance
    assert pool.stop() == 0
    assert site.verdict().duplicates == 0, "no neighbour was touched"
    assert not [pid for pid in pool.seen if is_alive(pid)]


@pytest.mark.accepts("G50", "P03", "R24", "R33")
def test_a_job_that_lets_no_other_thread_run_for_five_leases_is_not_taken_over(site: Site) -> None:
    site.jobs_settings["LEASE"] = 1
    producer = site.producer()
    pools = [site.pool(), site.pool()]
    producer.send("holds_gil", 1, 5.0)
    site.ledger.wait("end", 1)
    site.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    assert site.verdict().duplicates == 0, site.repeats()
