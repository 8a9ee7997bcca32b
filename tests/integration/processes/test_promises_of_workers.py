"""What workers promise: awake at once, no claim after a stop, and no job that settles itself."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs import JobContext
from django_jobs.conf import QueueSettings
from django_jobs.core.context import RunningJob
from django_jobs.core.values import Lane
from django_jobs.stores.redis import Store
from django_jobs.stores.values.answers import LONGEST_WAIT
from django_jobs.worker.child.fetcher import Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from tests.integration.workers import WorkerSite, site

__all__ = ["site"]


@pytest.mark.accepts("G73")
def test_an_idle_worker_starts_new_work_at_once(site: WorkerSite) -> None:
    """Its own look round, every LONGEST_WAIT, would make one of five this late at least."""
    site.pool()
    site.wait(site.put("work"))
    waits = []
    for _ in range(5):
        sent = site.store.now()
        waits.append(site.wait(site.put("work")).at - sent)
    assert sorted(waits)[2] < LONGEST_WAIT * 1000 / 4, f"ms from enqueue to end: {waits}"


@pytest.mark.accepts("O11")
def test_between_work_and_a_stop_the_stop_wins(redis_store: Store, make_job: Any) -> None:
    redis_store.enqueue("default", [make_job(str(n)) for n in range(3)])
    gate = Gate()
    fetcher = Fetcher(
        redis_store, "w", [QueueSettings("default")],
        lane=Lane.SHARED, lease=30_000, strict=False, gate=gate, clock=StoreClock(), size=lambda queue: 1,
    )  # fmt: skip
    fetched = fetcher.fetch()
    assert fetched is not None
    assert len(fetched[1].claims) == 1

    gate.drain()
    assert fetcher.fetch() is None
    assert redis_store.backlog(["default"]) == {"default": 2}


@pytest.mark.accepts("P07")
def test_a_job_is_given_no_way_to_settle_itself() -> None:
    """It returns or raises; it may say how far it is.  Its token is a number, which opens nothing without the store."""
    offered = {name for cls in (JobContext, RunningJob) for name in dir(cls) if not name.startswith("_")}
    assert {name for name in offered if callable(getattr(RunningJob, name, None))} == {"checkin", "flush_checkin"}
    assert not offered & {"complete", "retry", "bury", "discard", "state", "store"}
