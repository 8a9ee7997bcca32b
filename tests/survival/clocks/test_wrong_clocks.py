"""Machines whose clocks are wrong by an hour, in both directions: times and leases are those of the store."""

from __future__ import annotations

from collections import Counter
from itertools import count
from time import monotonic

import pytest

from django_jobs.core.values import Job, NewJob, State
from django_jobs.serialization.record import decode, encode
from tests.support.ledger import Writer
from tests.support.pace import Pace
from tests.support.pools import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis]


@pytest.mark.timed
@pytest.mark.accepts("R33", "G76", "G57")
def test_workers_with_wrong_clocks_agree_on_leases_and_start_jobs_at_their_time(site: Site, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 2
    ahead, behind = (site.pool(extra={"SURVIVAL_CLOCK": hour}) for hour in ("3600", "-3600"))
    producer = site.producer()
    rounds = count()

    def both_work() -> bool:
        producer.send("work", 10, 10, prefix=f"round-{next(rounds)}")
        site.wait_drained()
        worked = {event.pid for event in site.ledger.read() if event.kind == "start"}
        return all(worked & set(pool.children()) for pool in (ahead, behind))

    wait_until(both_work, "both have begun to work: what follows measures their clocks, not their start")
    flaky = producer.send("flaky", 10, 1, prefix="flaky")
    producer.send("work", 4, 2_500, prefix="long")
    now = site.store.now()
    due = {f"later-{n}": now + 1_000 + n * 100 for n in range(10)}
    for id, at in due.items():
        Writer(site.ledger.path).write("attempt", id)
        site.store.enqueue("default", [NewJob(id, encode(Job(id, "default", "work", b"[[],{}]", now)), run_at=at)])
    site.wait_drained()
    starts = Counter(e.id for e in site.ledger.read() if e.kind == "start") - Counter(flaky)
    assert set(starts.values()) == {1}, "nobody took a living worker's jobs"
    late = {id: info.at - at for id, at in due.items() if (info := site.store.get("default", id)) is not None}
    assert late.keys() == due.keys()
    assert min(late.values()) >= 0
    pace.took(sorted(late.values())[5] / 1000, 0.1, f"ms: {late}")

    lost = producer.send("work", 8, 1_500, prefix="lost")
    site.ledger.wait_for(
        lambda events: any(e.id.startswith("lost") and e.pid in ahead.children() for e in events), "it runs some"
    )
    began = monotonic()
    ahead.kill_all()
    site.wait_drained()
    took = monotonic() - began
    again = Counter(e.id for e in site.ledger.read() if e.kind == "start" and e.id in lost and e.pid not in ahead.seen)
    assert set(again.values()) <= {1}, "nobody took the living worker's jobs"
    # What the dead machine held, begun or not.  How much that is depends on who claimed first.
    suspects = [id for id in lost if (info := site.store.get("default", id)) is not None and info.crashes]
    pace.took(took, 2 + 5 + len(suspects) * 1.5, f"a lease, the search, and {len(suspects)} jobs, one at a time")
    assert behind.stop() == 0
    assert site.verdict().ended >= due.keys()


def test_jobs_of_producers_with_wrong_clocks_are_as_old_as_they_are(site: Site) -> None:
    producers = [site.producer(SURVIVAL_CLOCK=hour) for hour in ("3600", "-3600")]
    began, now = monotonic(), site.store.now()
    for at, producer in enumerate(producers):
        producer.send("work", 10, 1, prefix=f"p{at}")
    infos = [info for info in site.store.page("default", State.QUEUED, 0, 50) if info is not None]
    assert len(infos) == 20
    taken = [decode(info.id, info.queue, info.record).enqueued_at for info in infos]
    latency = site.store.stats(["default"])[0].latency
    elapsed = (monotonic() - began) * 1000 + 1
    assert 0 <= latency <= elapsed
    assert all(now <= at <= now + elapsed for at in taken)
