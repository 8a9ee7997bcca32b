"""Without faults: many jobs over many threads and queues, each starts exactly once."""

from __future__ import annotations

from collections import Counter

import pytest

from django_jobs.core.values import Added, Job, NewJob
from django_jobs.serialization.record import encode
from tests.support.dose import dose
from tests.support.fsck import fsck
from tests.support.pools import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(600)]

JOBS = dose(10_000, long=100_000)
QUEUES = ["default", "mail", "slow"]


@pytest.mark.accepts("G02", "G48", "O12", "O15", "R02")
def test_each_of_many_jobs_starts_exactly_once(site: Site) -> None:
    site.jobs_settings["QUEUES"] = {queue: {} for queue in QUEUES}
    site.jobs_settings["LEASE"] = 30
    ids = [f"job-{n}" for n in range(JOBS)]
    for start in range(0, JOBS, 1000):
        queue = QUEUES[start // 1000 % 3]
        new = [NewJob(id, encode(Job(id, queue, "work", b"[[],{}]", 1))) for id in ids[start : start + 1000]]
        assert site.store.enqueue(queue, new) == [Added.ADDED] * len(new)
    pool = site.pool(processes=4, threads=4)
    wait_until(lambda: site.ledger.count("end") >= JOBS, f"{JOBS} jobs have ended", seconds=300, every=0.2)
    assert pool.stop() == 0
    starts = Counter(event.id for event in site.ledger.read() if event.kind == "start")
    assert len(starts) == JOBS
    assert set(starts.values()) == {1}
    for stats in site.store.stats(QUEUES):
        assert (stats.counts["queued"], stats.counts["running"], stats.counts["dead"]) == (0, 0, 0)
        assert fsck(site.store, stats.queue) == []
