"""Limits and unique locks while processes die, and while the store holds leftovers of an earlier disaster."""

from __future__ import annotations

from time import monotonic

import pytest

from django_jobs.serialization.record import decode
from tests.support.checker import most_at_once
from tests.support.dose import dose
from tests.support.faults.chaos import Chaos
from tests.support.pace import Pace
from tests.support.pools import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, ci=1800, long=1800))]

JOBS = dose(600, ci=4_000, long=20_000)
KILLS = dose(8, ci=12, long=60)


@pytest.mark.accepts("G60", "R03", "K02", "K29", "G38")
@pytest.mark.parametrize(("name", "limit"), [("single", 1), ("five", 5)])
def test_never_more_than_the_limit_run_and_none_is_stuck(site: Site, name: str, limit: int) -> None:
    site.jobs_settings["LEASE"] = 4  # the living keep theirs, also on a slow machine
    producer = site.producer()
    for n in range(JOBS // 200):
        producer.ask(name, [f"{name}-{n}-{i}" for i in range(200)], 2)
    chaos = Chaos(site, seed=limit, width=2, processes=2, threads=2)
    while chaos.total < KILLS:
        target = JOBS * 8 // 10 * (chaos.total + 1) // KILLS
        wait_until(lambda t=target: site.ledger.count("end") >= t, f"{target} ended", seconds=120, every=0.05)
        chaos.strike()
    assert not any(producer.answer(seconds=300)["errors"] for _ in range(JOBS // 200))
    site.wait_drained(seconds=dose(90, ci=900, long=900))
    chaos.end()
    verdict = site.verdict()
    assert len(verdict.ended) == JOBS
    assert verdict.duplicates <= chaos.in_flight
    assert most_at_once(site.ledger.read(), site.deaths) <= limit
    client, names = site.store.transport.client, site.store.keys.of("default")
    assert client.zcard(names["slots"]) == 0, "every slot is free at the end"
    assert client.zcard(names["blocked"]) == 0


@pytest.mark.accepts("R17")
def test_stale_holders_of_a_limit_are_swept(site: Site) -> None:
    client, names = site.store.transport.client, site.store.keys.of("default")
    producer = site.producer()
    producer.send("single", 1, prefix="warm")
    first = site.pool()
    site.wait_drained()
    info = site.store.get("default", "warm-0")
    assert info is not None
    key = decode(info.id, "default", info.record).controls.limit_key
    client.zadd(names["slots"], {f"{key}\0gone-{n}": 0 for n in range(dose(1_000, ci=10_000, long=10_000))})
    producer.send("single", 20, 5)
    while site.store.reconcile("default")["slot_without_claim"]:
        continue
    site.ledger.wait("end", 21, seconds=30)
    site.wait_drained()
    assert first.stop() == 0
    assert most_at_once(site.ledger.read(), {}) == 1
    site.verdict()


@pytest.mark.accepts("K02", "R04", "G75")
def test_a_unique_key_is_free_again_soon_after_its_holder_was_killed(site: Site, pace: Pace) -> None:
    producer = site.producer()
    for turn in range(dose(3, ci=5, long=20)):
        pool = site.pool()
        ids = [f"turn{turn}-{n}" for n in range(50)]
        gate = site.folder / f"gate-{turn}"
        producer.ask("held_unique", ids, str(gate))
        producer.answer()
        site.ledger.wait("start", turn * 2 + 1)
        began = monotonic()
        pool.kill_all()
        gate.touch()
        rescuer = site.pool()
        site.wait_drained()
        pace.within(began, 2 + 5, "a lease and the search")
        producer.send("held_unique", 1, str(gate), prefix=f"again{turn}")
        site.ledger.wait_for(
            lambda events, t=turn: any(e.id == f"again{t}-0" and e.kind == "end" for e in events), "the key is free"
        )
        site.wait_drained()
        assert rescuer.stop() == 0
        ran = {e.id for e in site.ledger.read() if e.kind == "end" and e.id in ids}
        assert len(ran) == 1, "one job per key and generation"
    client, names = site.store.transport.client, site.store.keys.of("default")
    assert client.hlen(names["unique"]) == 0
