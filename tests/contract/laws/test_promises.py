"""Promises of the sources that take several verbs to show."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from django_jobs.core.values import Added, State
from tests.contract.acts import FAILED, LEASE, Q, claim, complete, counts, enqueue, totals


@pytest.mark.accepts("R19")
def test_totals_of_what_happened_and_the_depth_of_each_place_can_be_read(store, make_job):
    enqueue(store, *[make_job(str(n)) for n in range(6)])
    done, failed, buried, lost = claim(store, 4)
    complete(store, done)
    store.retry(failed, FAILED, 60_000)
    store.bury(buried, FAILED)
    store.recover(Q, worker=lost.worker)
    seen = totals(store)
    assert (seen["enqueued"], seen["succeeded"], seen["failed"], seen["dead"], seen["recovered"]) == (6, 1, 2, 1, 1)
    assert counts(store) == {State.QUEUED: 3, State.RETRY: 1, State.SUCCEEDED: 1, State.DEAD: 1}


@pytest.mark.redis
@pytest.mark.accepts("R14")
def test_completing_checks_moves_keeps_the_result_and_trims_in_one_call(make_redis_store, make_job, clock):
    store = make_redis_store(history=1)
    enqueue(store, *[make_job(id) for id in ("old", "lost", "new")])
    old, lost, new = claim(store, 3)
    complete(store, old, result=b"1")
    store.release(Q, [lost])
    clock.advance(120_000)
    before = _scripts_called(store)
    assert complete(store, lost, new, result=b"42") == ["lost"]
    assert _scripts_called(store) == before + 1
    assert counts(store) == {State.QUEUED: 1, State.SUCCEEDED: 1}
    assert store.get(Q, "new").result == b"42"


def _scripts_called(store):
    seen = store.transport.client.info("commandstats")
    return sum(seen.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha", "fcall"))


@pytest.mark.accepts("O04")
def test_in_a_bounded_queue_nobody_waits_longer_than_its_length_takes(store, make_job, clock):
    """Ten jobs of a second each, and one worker: whoever is let in is begun within ten seconds."""
    came: dict[str, int] = {}
    waited: list[int] = []
    refused = 0
    for n in range(400):
        if store.enqueue(Q, [make_job(str(n))], max_length=10) == [Added.ADDED]:
            came[str(n)] = clock.now
        else:
            refused += 1
        if n % 10 == 9:  # a second has passed: the worker is free for the next one
            (held,) = claim(store)
            waited.append(clock.now - came[held.id])
            complete(store, held)
        clock.advance(100)
    assert refused > 300
    assert max(waited) <= 10 * 1000


@pytest.mark.accepts("G57")
def test_many_that_promote_at_once_move_each_due_job_once(make_store, make_job, clock):
    stores = [make_store()]
    stores[0].enqueue(Q, [make_job(f"{n:03}", run_at=clock.now + 1000) for n in range(300)])
    clock.advance(1000)

    def work(number):
        found = []
        for _ in range(60):
            stores[0].promote(Q, 7)
            found += [held.id for held in stores[0].claim(Q, f"w{number}", 5, lease=LEASE).claims]
        return found

    with ThreadPoolExecutor(4) as threads:
        found = [id for ids in threads.map(work, range(4)) for id in ids]
    assert sorted(found) == [f"{n:03}" for n in range(300)]
    assert counts(stores[0]) == {State.RUNNING: 300}
