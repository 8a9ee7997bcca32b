"""The tags of a job go with it through every change, on each kind of store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import JobContext, chain, current_job, get_job, job, operations
from django_jobs.core.values import Attempt, Claim, State
from django_jobs.enqueueing import request
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.exceptions import InvalidArguments
from django_jobs.execution.executor import Executor
from django_jobs.logs import JobContextFilter
from django_jobs.operations import copying
from django_jobs.schedules.scheduler import Periodic
from django_jobs.serialization.record import decode, tags_of
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.enqueueing import SETTINGS

SEEN: list[Any] = []
FAILED = Attempt(1, "failed", 0, 12, "w", "ValueError", "no")


@job(name="tests.tagged", tags=("billing",), unique_on=["number"], takes_context=True)
def tagged(ctx: JobContext, number: int = 0, note: str = "") -> None:
    running = current_job()
    assert running is not None
    record = logging.makeLogRecord({})
    JobContextFilter().filter(record)
    SEEN.append((ctx.tags, running.tags, record.job_tags))  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _in_use(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(request, "now_ms", clock)
    SEEN.clear()
    with override_settings(DJANGO_JOBS=SETTINGS):
        use_store(store)
        yield
        use_store(None)


def claim(store: Store) -> Claim:
    (one,) = store.claim("default", "w1", 1, lease=30_000).claims
    return one


def tags(store: Store, id: str) -> tuple[str, ...]:
    info = store.get("default", id)
    assert info is not None
    return tags_of(info.record)


BOTH = ("billing", "customer:42")


def test_they_stay_through_retry_hand_back_death_and_a_new_start(store: Store, clock: Clock) -> None:
    id = tagged.using(tags=("customer:42",)).enqueue(7).id
    store.release("default", [claim(store)])
    assert tags(store, id) == BOTH
    store.retry(claim(store), FAILED, 1000)
    assert (store.get("default", id).state, tags(store, id)) == (State.RETRY, BOTH)  # type: ignore[union-attr]
    clock.advance(1000)
    store.bury(claim(store), FAILED)
    assert (store.get("default", id).state, tags(store, id)) == (State.DEAD, BOTH)  # type: ignore[union-attr]
    store.revive("default", [id])
    held = claim(store)
    assert tags_of(held.record) == BOTH
    Executor().run(held, store)
    assert SEEN == [(BOTH, BOTH, "billing customer:42")]
    assert get_job(id).tags == BOTH


def test_they_stay_if_the_arguments_change(store: Store) -> None:
    id = tagged.using(tags=("customer:42",)).enqueue(7).id
    operations.edit("default", id, [8], {})
    assert decode(id, "default", claim(store).record).args == b"[[8],{}]"
    assert tags(store, id) == BOTH


def test_a_waiting_job_that_gets_other_arguments_keeps_its_own_tags(store: Store) -> None:
    first = tagged.using(tags=("customer:42",)).enqueue_unique_by_key("k", 1)
    assert first is not None
    assert tagged.using(tags=("customer:43",)).enqueue_unique_by_key("k", 2) is None
    assert tags(store, first.id) == BOTH


def test_every_way_of_enqueueing_has_them(store: Store) -> None:
    assert tags(store, tagged.enqueue_in(60, 1).id) == ("billing",)
    assert tags(store, tagged.using(job_id="mine", tags=("a",)).enqueue(1).id) == ("billing", "a")
    assert [tags(store, each.id) for each in tagged.using(tags=("a",)).enqueue_many([(1,), (2,)])] == [
        ("billing", "a"),
        ("billing", "a"),
    ]
    assert tags(store, enqueue_by_name("tests.tagged", [1], tags=["x"]).id) == ("billing", "x")
    with pytest.raises(InvalidArguments, match="'x y' cannot be used"):
        enqueue_by_name("tests.tagged", [1], tags=["x y"])


def test_the_steps_of_a_workflow_have_those_of_their_calls(store: Store) -> None:
    chain(tagged.s(1), tagged.using(tags=("last",)).s(2)).enqueue()
    first = claim(store)
    assert tags_of(first.record) == ("billing",)
    Executor().run(first, store)
    assert tags_of(claim(store).record) == ("billing", "last")


@pytest.mark.django_db
def test_jobs_of_a_schedule_have_those_of_their_type(store: Store, clock: Clock) -> None:
    entry = {"nightly": {"job": "tests.tagged", "cron": "* * * * *"}}
    with override_settings(DJANGO_JOBS=SETTINGS | {"SCHEDULES": entry}):
        use_store(store)
        scheduler = Periodic(lambda: 0.0)
        scheduler.tick()
        clock.advance(120_000)
        scheduler.tick()
    assert tags_of(claim(store).record) == ("billing",)


def test_a_job_like_another_has_its_tags(store: Store) -> None:
    id = tagged.using(tags=("customer:42",)).enqueue(7).id
    old = decode(id, "default", store.get("default", id).record)  # type: ignore[union-attr]
    new = copying.copy_request(old, [[8], {}], queue="default", priority=0, form=copying.new_form())
    assert copying.as_stored(new).tags == BOTH


def test_the_line_of_a_job_that_ended_has_them(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    tagged.using(tags=("customer:42",)).enqueue(7)
    with caplog.at_level(logging.INFO, "django_jobs.worker"):
        Executor().run(claim(store), store)
    assert [each.job_tags for each in caplog.records if hasattr(each, "job_tags")] == ["billing customer:42"]  # type: ignore[attr-defined]
