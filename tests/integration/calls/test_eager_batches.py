"""EAGER answers like workers do: batches, workflows, and the jobs in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_jobs import Batch, Fail, Retry, Snooze, chain, current_batch, job
from django_jobs.exceptions import BatchClosed, DuplicateJob, InvalidWorkflow
from django_jobs.signals import job_expired

pytestmark = pytest.mark.django_db(transaction=True)
#: A store that nobody can reach: eager jobs need none.
EAGER: dict[str, Any] = {"STORE": "redis://nowhere.invalid:1/0", "EAGER": True}
ran: list[str] = []


@job(name="eager.note", max_attempts=3)
def note(what: str) -> str:
    ran.append(what)
    match what:
        case "fails":
            raise ValueError(what)
        case "retries":
            raise Retry(in_=0)
        case "snoozes":
            raise Snooze(in_=3600)
        case "dies":
            raise Fail(what)
        case "adds":
            with current_batch():
                note.enqueue("added")
        case "nests":
            run("inner")
        case "enqueues":
            note.enqueue("outside")
    return what


@job(name="eager.tell")
def tell(end: dict[str, Any]) -> None:
    ran.append(end["state"])


@pytest.fixture(autouse=True)
def _eager() -> Any:
    ran.clear()
    with override_settings(DJANGO_JOBS=EAGER):
        yield


def batch() -> Batch:
    callbacks = {name: note.s(name) for name in ("on_success", "on_complete", "on_dead")}
    return Batch("all", **callbacks)


def run(*names: str) -> Batch:
    with batch() as made:
        for name in names:
            note.enqueue(name)
    return made


def test_callbacks_of_a_batch_run_after_its_jobs() -> None:
    made = run("one", "two")
    assert ran[:2] == ["one", "two"]
    assert sorted(ran[2:]) == ["on_complete", "on_success"]
    assert (made.handle.state, made.handle.counts["succeeded"]) == ("succeeded", 2)
    assert [step.state for step in made.handle.steps] == ["succeeded"] * 2
    made.handle.wait(1)


def test_in_a_transaction_all_of_them_run_after_the_commit() -> None:
    with transaction.atomic():
        made = run("one", "two")
        assert ran == []
    assert (ran[:2], made.handle.state) == (["one", "two"], "succeeded")
    assert sorted(ran[2:]) == ["on_complete", "on_success"]


def test_of_a_transaction_that_is_rolled_back_nothing_runs() -> None:
    with transaction.atomic():
        run("one")
        transaction.set_rollback(True)
    assert ran == []


@pytest.mark.parametrize("how", ["fails", "retries", "snoozes"])
def test_a_batch_is_not_complete_while_a_job_of_it_waits_for_its_next_attempt(how: str) -> None:
    made = run("one", how)
    assert (ran, made.handle.state) == (["one", how], "running")


def test_the_first_dead_job_of_a_batch_is_told_at_once() -> None:
    made = run("one", "dies", "two")
    assert ran == ["one", "dies", "on_dead", "two", "on_complete"]
    assert made.handle.state == "stopped"


def test_a_job_adds_others_to_its_batch() -> None:
    made = run("adds", "one")
    assert ran[:3] == ["adds", "added", "one"]
    assert made.handle.counts["succeeded"] == 3


def test_what_a_job_enqueues_does_not_join_its_batch_by_itself() -> None:
    made = run("enqueues")
    assert ran[:2] == ["enqueues", "outside"]
    assert made.handle.counts["succeeded"] == 1


def test_a_batch_in_a_batch_is_refused_and_one_in_a_job_of_it_is_not() -> None:
    with batch() as outer:
        note.enqueue("nests")
        with pytest.raises(InvalidWorkflow):
            run("one")
    assert ran[:2] == ["nests", "inner"]
    assert outer.handle.counts["succeeded"] == 1


def test_a_batch_that_has_ended_takes_no_more_jobs() -> None:
    made = run("one")
    with pytest.raises(BatchClosed), made:
        note.enqueue("late")
    assert "late" not in ran


def test_equal_jobs_of_a_batch_are_one_job() -> None:
    unique = note.using(unique="success")
    with batch() as made:
        first, second = unique.enqueue("fails"), unique.enqueue("fails")
        with pytest.raises(DuplicateJob):
            unique.using(on_conflict="raise").enqueue("fails")
    assert (ran, first.state, second.state, second.id) == (["fails"], "retry", "duplicate", first.id)
    assert made.handle.counts["live"] == 1


def test_a_batch_is_open_after_its_block_has_raised_and_can_be_finished() -> None:
    made = batch()
    with pytest.raises(KeyError), made:
        {}[note.enqueue("one").id]
    assert (ran, made.handle.state) == (["one"], "running")
    with made:
        note.enqueue("two")
    assert made.handle.counts["succeeded"] == 2
    assert "on_success" in ran


def test_with_propagation_the_call_raises_and_the_batch_stays_open() -> None:
    with override_settings(DJANGO_JOBS={**EAGER, "EAGER_PROPAGATES": True}):
        made = batch()
        with pytest.raises(ValueError, match="fails"), made:
            note.enqueue("fails")
        assert made.handle.state == "running"


def test_a_workflow_in_a_transaction_runs_at_its_commit() -> None:
    with transaction.atomic():
        handle = chain(note.s("one"), note.s("two")).enqueue()
        assert (handle.state, ran) == ("deferred", [])
    assert (handle.state, ran, handle.wait(1)) == ("succeeded", ["one", "two"], "two")


def test_a_batch_of_async_code_runs_there_too() -> None:
    async def code() -> str:
        async with batch() as made:
            await note.aenqueue("one")
        return (await made.handle.ainfo()).state

    assert async_to_sync(code)() == "succeeded"
    assert sorted(ran) == ["on_complete", "on_success", "one"]


def test_a_job_that_has_expired_is_told_to_its_receivers_and_to_its_batch() -> None:
    late, told = note.using(expires_at=timezone.now() - timedelta(seconds=1)), list[str]()

    def hear(sender: Any, job_id: str, **_: Any) -> None:
        told.append(job_id)

    job_expired.connect(hear)
    try:
        alone = late.using(on_end=tell).enqueue("late")
        with batch() as made:
            member = late.enqueue("late")
    finally:
        job_expired.disconnect(hear)
    assert (alone.state, member.state, told) == ("expired", "expired", [alone.id, member.id])
    assert (made.handle.state, ran) == ("stopped", ["expired", "on_complete"])


def test_a_job_that_could_start_only_when_it_has_expired_does_not_run() -> None:
    now = timezone.now()
    soon = note.using(expires_at=now + timedelta(hours=1))
    alone = soon.using(on_end=tell).enqueue_in(7200, "late")
    with batch() as made:
        late, *rest = soon.enqueue_in(7200, "late"), soon.enqueue_in(1800, "first"), soon.enqueue("second")
    chained = chain(note.s("third"), soon.using(run_at=now + timedelta(hours=2)).s("late")).enqueue()
    assert (alone.state, late.state, made.handle.state) == ("expired", "expired", "stopped")
    assert [each.state for each in rest] == ["succeeded"] * 2
    assert [step.state for step in chained.steps] == ["succeeded", "expired"]
    assert ran == ["expired", "first", "second", "on_complete", "third"]
