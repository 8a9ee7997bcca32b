"""Jobs for next month, and a Redis that is restarted every other day until then."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Attempt, Completed, Controls, Job, NewJob
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import RedisServer
from tests.support.dose import dose
from tests.support.fsck import fsck
from tests.survival.conftest import Clock

pytestmark = [pytest.mark.survival, pytest.mark.redis]

Q = "default"
DAY = 86_400_000
RESTARTS = dose(6, long=20)
FAILED = Attempt(1, "failed", 0, error="no")


def open_store(server: RedisServer, clock: Clock) -> Store:
    return Store.from_setting(server.url, options=StoreOptions(clock=clock, history=1_000, history_ttl=90 * DAY))


@pytest.mark.accepts("G07", "G56", "P03")
def test_a_job_for_next_month_runs_once_at_its_time_through_restarts(server: RedisServer, virtual: Clock) -> None:
    """Repairs, trimming and recovery go on all the time and leave them alone; a retry of today keeps its day, too."""
    store, begin = open_store(server, virtual), virtual.now
    due = {f"day-{day}": begin + day * DAY for day in range(1, 31)}
    new = [NewJob(id, encode(Job(id, Q, "work", b"[[],{}]", begin)), run_at=at) for id, at in due.items()]
    store.enqueue(Q, [new[n * 7 % 30] for n in range(30)])
    failing = Controls(unique="ab" * 32, unique_mode="running")
    store.enqueue(Q, [NewJob("again", encode(Job("again", Q, "work", b"[[],{}]", begin, controls=failing)), failing)])
    (claim,) = store.claim(Q, "w", 9, lease=1_000).claims
    store.retry(claim, FAILED, round(29.5 * DAY))
    due["again"] = begin + round(29.5 * DAY)
    ran: list[tuple[str, int]] = []
    for turn in range(RESTARTS):
        store.close()
        server.kill() if turn % 2 else server.shutdown()
        server.start()
        store = open_store(server, virtual)
        end = begin + (turn + 1) * 31 * DAY // RESTARTS
        for moment in sorted(at + ms for at in due.values() for ms in (-1, 0) if virtual.now < at + ms <= end):
            virtual.now = moment
            claims = store.claim(Q, "w", 9, lease=1_000).claims
            done = [Completed(claim, controls=decode(claim.id, Q, claim.record).controls) for claim in claims]
            assert not store.complete(Q, done)
            ran += [(claim.id, moment) for claim in claims]
        virtual.now = end
        for upkeep in (store.prune, store.reconcile, store.recover):
            upkeep(Q)
    assert sorted(ran) == sorted(due.items()), "each once, at its time and not before"
    assert fsck(store, Q) == []
    store.close()
