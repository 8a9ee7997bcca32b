"""Told to stop at any moment: nothing lost, nothing twice, in time, exit status 0."""

from __future__ import annotations

import random
import signal
from time import monotonic

import pytest

from tests.support.dose import dose
from tests.support.pace import Pace
from tests.support.pools import Pool, Site
from tests.support.processes import catches, send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=1800))]
#: How often a worker is told to stop at a random moment.
STOPS = dose(4, long=200)


def ready(pool: Pool) -> None:
    """It listens to signals, and has begun."""
    # Only the worker's own handlers catch it: SIGTERM is noted earlier, while the worker starts.
    wait_until(lambda: catches(pool.pid, signal.SIGQUIT), "it listens", seconds=20)


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


@pytest.mark.accepts("R29", "K06")
def test_rolling_restarts_lose_and_repeat_nothing(site: Site) -> None:
    site.jobs_settings["LEASE"] = 10
    producer = site.producer()
    rounds, each = dose((3, 150), long=(60, 350))
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
    assert verdict.duplicates == 0, site.repeats()
    assert len(verdict.ended) == rounds * each
