"""Machines whose clocks are wrong by an hour, in both directions: times and leases are those of the store."""

from __future__ import annotations

from time import monotonic

import pytest

from django_jobs.core.values import Job, NewJob, State
from django_jobs.serialization.record import decode, encode
from tests.support.ledger import Writer
from tests.support.pace import Pace
from tests.support.pools import Site

pytestmark = [pytest.mark.survival, pytest.mark.redis]


@pytest.mark.timed
@pytest.mark.accepts("R33", "G76", "G57")
def test_workers_with_wrong_clocks_agree_on_leases_and_start_jobs_at_their_time(site: Site, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 2
    ahead, behind = (site.pool(extra={"SURVIVAL_CLOCK": hour}) for hour in ("3600", "-3600"))
    producer = site.producer()
    producer.send("work", 40, 10)
    producer.send("flaky", 10, 1, prefix="flaky")
    producer.send("work", 4, 2_500, prefix="long")
    now = site.store.now()
    due = {f"later-{n}": now + 1_000 + n * 100 for n in range(10)}
    for id, at in due.items():
        Writer(site.ledger.path).write("attempt", id)
        site.store.enqueue("default", [NewJob(id, encode(Job(id, "default", "work", b"[[],{}]", now)), run_at=at)])
    site.wait_drained()
    assert not site.unexplained(), "nobody took a living worker's jobs"
    late = {id: info.at - at for id, at in due.items() if (info := site.store.get("default", id)) is not None}
    assert late.keys() == due.keys()
    assert min(late.values()) >= 0
    pace.took(sorted(late.values())[5] / 1000, 0.1, f"ms: {late}")

    producer.send("work", 8, 1_500, prefix="lost")
    site.ledger.wait_for(
        lambda events: any(e.id.startswith("lost") and e.pid in ahead.children() for e in events), "it runs some"
    )
    began = monotonic()
    ahead.kill_all()
    site.wait_drained()
    pace.within(began, 2 + 5 + 2 * 1.5, "a lease, the search, and two rounds of jobs")
    assert behind.stop() == 0
    assert site.verdict().ended >= due.keys()


def test_jobs_of_producers_with_wrong_clocks_are_as_old_as_they_are(site: Site, pace: Pace) -> None:
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
