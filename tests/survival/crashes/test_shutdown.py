"""Told to stop at any moment: nothing lost, nothing twice, in time, exit status 0."""

from __future__ import annotations

import random
import signal
from time import monotonic

import pytest

from tests.support.checker import repeated_for_no_reason
from tests.support.dose import dose
from tests.support.pace import Pace
from tests.support.pools import Pool, Site
from tests.support.processes import catches, send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, ci=1800, long=1800))]
#: How often a worker is told to stop at a random moment.
STOPS = dose(10, ci=15, long=200)


def ready(pool: Pool) -> None:
    """It listens to signals, and has begun."""
    wait_until(lambda: catches(pool.pid, signal.SIGTERM), "it listens", seconds=20)


@pytest.mark.accepts("R29", "G04")
def test_told_to_stop_at_random_moments(site: Site, pace: Pace) -> None:
    rng = random.Random(3)
    producer = site.producer()
    jobs = 0
    for turn in range(STOPS):
        producer.send("work", 80, 5, prefix=f"turn{turn}")
        jobs += 80
        pool = site.pool("--drain-timeout", "5")
        ready(pool)
        target = site.ledger.count("end") + rng.choice((0, 0, 1, 7, 40))
        wait_until(lambda t=target: site.ledger.count("end") >= t or site.drained(), "a moment", seconds=20)
        began = monotonic()
        for _ in range(rng.choice((1, 1, 1, 5))):
            send_signal(pool.pid, rng.choice((signal.SIGTERM, signal.SIGINT)))
        assert pool.process.wait(60) == 0
        pace.within(began, 5, "the drain timeout")
    last = site.pool()
    site.wait_drained()
    assert last.stop() == 0
    verdict = site.verdict()
    assert len(verdict.ended) == jobs
    assert not site.counts()["dead"]
    # Five signals mean "now": what runs at that moment is ended and runs again; one signal repeats nothing.
    assert verdict.duplicates <= 4 * STOPS


@pytest.mark.accepts("R29", "K02")
def test_one_signal_repeats_nothing_that_ends_in_time(site: Site) -> None:
    site.jobs_settings["LEASE"] = 10
    producer = site.producer()
    rounds = dose(5, ci=7, long=40)
    for turn in range(rounds):
        producer.send("work", 100, 20, prefix=f"turn{turn}")
        pool = site.pool("--drain-timeout", "5")
        site.ledger.wait_for(lambda events, p=pool: {e.pid for e in events} & set(p.children()), "it works")
        assert pool.stop() == 0
    last = site.pool()
    site.wait_drained()
    assert last.stop() == 0
    assert site.verdict().duplicates == 0


@pytest.mark.accepts("R29", "K02")
def test_what_outlasts_the_drain_is_handed_back_when_its_process_is_dead(site: Site, pace: Pace) -> None:
    producer = site.producer()
    first, second = site.pool("--drain-timeout", "1"), None
    gate = site.folder / "gate"
    producer.send("held", 4, str(gate))
    producer.send("held_once", 1, str(gate), prefix="once")
    site.ledger.wait("start", 5)
    second = site.pool()
    children = first.children()
    assert first.stop() == 0
    died = monotonic()
    gate.touch()
    site.ledger.wait("end", 4, seconds=20)
    pace.within(died, 3 + 1, "handed back, not waited for")
    site.wait_drained()
    assert second.stop() == 0
    events = site.ledger.read()
    for id in {event.id for event in events if event.kind == "start"}:
        runs = [event for event in events if event.id == id and event.kind == "start"]
        if id == "once-0":
            assert len(runs) == 1
            continue
        one, two = runs
        assert two.at - one.at > 1_000_000_000, "not before the drain was over"
        info = site.store.get("default", id)
        assert info is not None
        assert info.crashes == 0, "a hand-back is no crash"
    assert site.state_of("once-0") == "dead"
    assert not repeated_for_no_reason(events, dict.fromkeys(children, 0))
    site.verdict()


@pytest.mark.accepts("R29", "K06")
def test_rolling_restarts_lose_and_repeat_nothing(site: Site) -> None:
    site.jobs_settings["LEASE"] = 10
    producer = site.producer()
    rounds, each = dose((5, 150), long=(60, 350))
    pools = [site.pool("--drain-timeout", "4") for _ in range(3)]
    for pool in pools:
        ready(pool)
    for turn in range(rounds):
        producer.send("work", each, 10, prefix=f"turn{turn}")
        site.ledger.wait("end", turn * each + each // 3, seconds=30)
        old = pools.pop(0)
        pools.append(site.pool("--drain-timeout", "4"))
        assert old.stop() == 0
    site.wait_drained(seconds=120)
    assert all(pool.stop() == 0 for pool in pools)
    verdict = site.verdict()
    assert verdict.duplicates == 0
    assert len(verdict.ended) == rounds * each


@pytest.mark.accepts("G04")
def test_hand_backs_without_end_bury_nobody(site: Site) -> None:
    producer = site.producer()
    gate = site.folder / "gate"
    producer.send("held", 1, str(gate))
    for turn in range(dose(4, ci=6, long=10)):
        pool = site.pool("--drain-timeout", "0.1")
        site.ledger.wait_for(lambda events, n=turn: sum(e.kind == "start" for e in events) > n, "it runs", seconds=20)
        assert pool.stop() == 0
    gate.touch()
    last = site.pool()
    site.ledger.wait("end", 1)
    site.wait_drained()
    assert last.stop() == 0
    site.verdict()
    info = site.store.get("default", "j-0")
    assert info is not None
    assert (info.crashes, info.failures, info.state) == (0, 0, "succeeded")
