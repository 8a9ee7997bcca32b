"""Workers come and go while there is work, and nobody has to be told."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import pytest

from tests.integration.workers import WorkerSite, site
from tests.support.waiting import wait_until

__all__ = ["site"]


def who(site: WorkerSite, number: int = 8) -> set[bytes | None]:
    """The processes that run these jobs."""
    return {site.wait(id).result for id in [site.put("who") for _ in range(number)]}


@pytest.mark.accepts("K31", "G55")
def test_a_worker_that_is_added_takes_part_and_one_that_leaves_is_not_missed(site: WorkerSite) -> None:
    first = site.pool("--name", "first")
    (alone,) = who(site)
    second = site.pool("--name", "second")
    wait_until(lambda: len(site.store.workers()) == 2, "both are known")
    wait_until(lambda: who(site) - {alone}, "the second runs jobs, too")

    assert first.stop() == 0
    assert alone not in who(site)
    assert [worker.name for worker in site.store.workers()] == ["second"]
    assert second.stop() == 0


@pytest.mark.timed
@pytest.mark.accepts("R01")
def test_to_enqueue_takes_milliseconds(site: WorkerSite) -> None:
    site.put("work")
    rounds = []
    for _ in range(5):
        took = []
        for _ in range(100):
            began = perf_counter()
            site.put("work")
            took.append(perf_counter() - began)
        rounds.append(median(took))
    assert min(rounds) < 0.005, "seconds"
