"""Workers killed at random moments by the dozen (by the hundred with DOSE=long)."""

from __future__ import annotations

from time import monotonic

import pytest

from tests.support.backends.redis_process import RedisServer
from tests.support.checker import most_at_once, repeated_for_no_reason
from tests.support.dose import dose
from tests.support.faults.chaos import Chaos
from tests.support.fsck import fsck
from tests.support.ledger import Event
from tests.support.pools import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=3600))]

JOBS = dose(2_000, long=100_000)
KILLS = dose(12, long=300)
#: … and this often redis-server itself.
SERVER_KILLS = dose(2, long=20)


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event.name == name]


@pytest.mark.accepts("G04", "G51", "G60", "R03", "R04", "K02", "P03")
def test_whatever_is_killed_nothing_is_lost_and_only_the_killed_repeat(site: Site, server: RedisServer) -> None:
    began = monotonic()
    site.jobs_settings["LEASE"] = dose(4, long=10)
    producer = site.producer()
    for n in range(JOBS // 1000):
        producer.ask("work", [f"work-{n}-{i}" for i in range(800)], 8)
        producer.ask("once", [f"once-{n}-{i}" for i in range(100)], 8)
        producer.ask("single", [f"single-{n}-{i}" for i in range(50)], 2)
        producer.ask("five", [f"five-{n}-{i}" for i in range(50)], 10)
    chaos = Chaos(site, seed=11)
    ended = restarts = 0
    while chaos.total < KILLS:
        # The kills are spread over the work: one each time that a share of the jobs has ended.
        ended = max(ended, site.ledger.count("end"))
        target = min(JOBS * 9 // 10, (chaos.total + 1) * JOBS * 9 // 10 // KILLS)
        wait_until(lambda t=target: site.ledger.count("end") >= t, f"{target} jobs have ended", seconds=60, every=0.05)
        if chaos.strike() and chaos.total % 10 == 0:
            assert fsck(site.store, "default") == [], "sound at any moment"
        if chaos.total // (KILLS // SERVER_KILLS) > restarts:
            restarts += 1
            server.kill()
            server.start()
    answers = [producer.answer(seconds=900) for _ in range(JOBS // 1000 * 4)]
    assert {name for answer in answers for name, _ in answer["errors"].values()} <= {"StoreUnavailable"}
    site.wait_drained(seconds=dose(90, long=600))
    chaos.end()
    verdict = site.verdict()
    events = site.ledger.read()
    print(f"\n{JOBS} jobs, kills {chaos.kills} and {restarts} of redis-server, {monotonic() - began:.0f} s: {verdict}")
    print(f"begun and not settled at the kills: {chaos.in_flight}")
    print(f"states at the end: {site.counts()}")
    assert not repeated_for_no_reason(events, site.deaths)
    assert verdict.duplicates <= chaos.in_flight
    assert max(verdict.starts[id] for id in verdict.starts if id.startswith("once")) == 1
    assert most_at_once(named(events, "single"), site.deaths) == 1
    assert most_at_once(named(events, "five"), site.deaths) <= 5
    client, names = site.store.transport.client, site.store.keys.of("default")
    assert (client.zcard(names["slots"]), client.zcard(names["blocked"])) == (0, 0), "every slot is free at the end"
