"""What a store keeps of a job from its first moment to its last, and whom it shows it to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_jobs.core.values import NewJob, Options, State
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.contract.acts import FAILED, Q, claim, complete, counts, enqueue, ids_in, info, start, totals

MakeJob = Callable[..., NewJob]


@pytest.mark.accepts("R09", "P24")
def test_once_enqueue_has_answered_the_job_is_there_whole_and_can_be_seen(store: Store, make_job: MakeJob) -> None:
    new = make_job("a", args=b"[[7],{}]")
    enqueue(store, new)
    assert ids_in(store, State.QUEUED) == ["a"]
    assert info(store, "a").record == new.record
    assert store.backlog([Q]) == {Q: 1}


@pytest.mark.accepts("G48", "R12", "R18")
def test_a_claim_moves_the_job_and_notes_who_and_when_in_one_step(
    store: Store, make_job: MakeJob, clock: Clock
) -> None:
    enqueue(store, make_job("a"), make_job("b"))
    clock.advance(5)
    first, second = [*claim(store, worker="one"), *claim(store, worker="two")]
    held = info(store, "a")
    assert (held.state, held.worker, held.token, held.at) == (State.RUNNING, "one", first.token, clock.now)
    assert second.token > first.token
    assert counts(store) == {"running": 2}


@pytest.mark.accepts("O12", "R02", "P19")
def test_many_claimers_at_once_get_each_job_once(store: Store, make_job: MakeJob) -> None:
    enqueue(store, *[make_job(f"j{n}") for n in range(60)])
    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(lambda n: [c.id for _ in range(10) for c in claim(store, 1, f"w{n}")], range(6)))
    ids = [id for batch in taken for id in batch]
    assert sorted(ids) == sorted(f"j{n}" for n in range(60))


@pytest.mark.accepts("R05", "R08", "P25")
def test_a_finished_job_still_shows_what_it_was_and_how_it_went(store: Store, make_job: MakeJob, clock: Clock) -> None:
    (first,) = start(store, make_job("a", args=b"[[1],{}]", name="shop.sum"))
    store.retry(first, FAILED, 0)
    store.promote(Q)
    (second,) = claim(store)
    complete(store, second, result=b"42", run_ms=9)
    seen = info(store, "a")
    job = decode(seen.id, seen.queue, seen.record)
    assert (seen.state, seen.failures, seen.result, seen.run_ms, seen.at) == ("succeeded", 1, b"42", 9, clock.now)
    assert [(a.outcome, a.error_type, a.error) for a in seen.attempts] == [("failed", "ValueError", "no")]
    assert (job.name, job.args, job.enqueued_at) == ("shop.sum", b"[[1],{}]", clock.now)


@pytest.mark.accepts("R16")
def test_a_job_that_has_used_its_attempts_is_dead_with_their_number(store: Store, make_job: MakeJob) -> None:
    enqueue(store, make_job("a", max_attempts=3))
    for _ in range(2):
        store.promote(Q)
        (held,) = claim(store)
        store.retry(held, FAILED, 0)
    store.promote(Q)
    (held,) = claim(store)
    assert held.attempt == 3 == decode(held.id, Q, held.record).options.max_attempts
    assert store.bury(held, FAILED._replace(attempt=3))
    dead = info(store, "a")
    assert (dead.state, dead.failures, len(dead.attempts)) == (State.DEAD, 3, 3)


@pytest.mark.accepts("P13")
def test_a_long_history_does_not_stand_before_waiting_jobs(store: Store, make_job: MakeJob) -> None:
    complete(store, *start(store, *[make_job(f"old{n}") for n in range(50)]))
    enqueue(store, make_job("new"))
    assert ids_in(store, State.QUEUED) == ["new"]
    assert [held.id for held in claim(store, 100)] == ["new"]


@pytest.mark.accepts("R26")
def test_queues_do_not_see_each_other(make_store: Callable[..., Store], make_job: MakeJob) -> None:
    store = make_store()
    store.enqueue("mail", [make_job("a", queue="mail")])
    enqueue(store, make_job("a"))
    assert [c.queue for c in store.claim("mail", "w", 9, lease=1000).claims] == ["mail"]
    assert info(store, "a").state is State.QUEUED


@pytest.mark.accepts("P09", "P23")
def test_jobs_that_nobody_runs_are_kept(make_store: Callable[..., Store], make_job: MakeJob, clock: Clock) -> None:
    before = make_store()
    enqueue(before, make_job("a"))
    before.close()
    clock.advance(40 * 86_400_000)
    after = make_store()
    after.prune(Q)
    after.reconcile(Q)
    assert [held.id for held in claim(after)] == ["a"]


@pytest.mark.accepts("R28")
def test_each_job_carries_its_own_number_of_attempts(store: Store, make_job: MakeJob) -> None:
    one, many = start(store, make_job("one", max_attempts=1), make_job("many", max_attempts=25))
    assert [decode(c.id, Q, c.record).options for c in (one, many)] == [
        Options(max_attempts=1),
        Options(max_attempts=25),
    ]


@pytest.mark.accepts("R07", "P06")
def test_each_end_has_its_place_and_its_count(store: Store, make_job: MakeJob) -> None:
    good, bad, dropped, again = start(store, *(make_job(id) for id in ("good", "bad", "dropped", "again")))
    complete(store, good)
    store.bury(bad, FAILED)
    store.discard(dropped, FAILED._replace(outcome="discarded"))
    store.retry(again, FAILED, 1000)
    enqueue(store, make_job("waits"))
    assert counts(store) == {"succeeded": 1, "dead": 1, "cancelled": 1, "retry": 1, "queued": 1}
    assert (totals(store)["succeeded"], totals(store)["dead"]) == (1, 1)
