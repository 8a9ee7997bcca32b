"""With OUTBOX, what is enqueued inside atomic() is part of the transaction, and reaches the store in any case."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_jobs import (
    PREVIOUS,
    Batch,
    BatchClosed,
    DuplicateJob,
    JobFailed,
    JobHandle,
    JobNotFound,
    QueueFull,
    StoreUnavailable,
    Workflow,
    WorkflowHandle,
    WorkflowNotFound,
    aget_job,
    aget_workflow,
    chain,
    get_job,
    get_workflow,
    group,
    job,
)
from django_jobs.core.values import Claim
from django_jobs.enqueueing import commits
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import follow_all
from django_jobs.operations import relay
from django_jobs.outbox import backlog, rows
from django_jobs.signals import job_enqueued
from django_jobs.stores import get_store, use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import end_calls, engine
from tests.contract.acts import done
from tests.integration.sample_jobs import receipt, short, strict, unique
from tests.integration.ways_in import WAYS_IN, enqueue

SETTINGS: dict[str, Any] = {
    "STORE": "memory",
    "QUEUES": {"default": {}, "small": {"MAX_LENGTH": 1}, "patient": {"MAX_LENGTH": 1, "ON_FULL": "block"}},
    "OUTBOX": True,
}

pytestmark = pytest.mark.django_db(transaction=True)


#: A queue with room for ten.
TEN = {**SETTINGS, "QUEUES": {"default": {}, "ten": {"MAX_LENGTH": 10}}}
#: What the job for each end was told.
TOLD: list[dict[str, Any]] = []


@job(name="tests.outbox.told")
def told(end: dict[str, Any]) -> None:
    TOLD.append(end)


@job(name="tests.outbox.ends", on_end=told)
def ends(number: int) -> None: ...


@job(name="tests.outbox.replacing", unique="queued", unique_on=["account_id"], on_conflict="replace")
def replacing(account_id: int, note: str) -> None: ...


@job(name="tests.outbox.debouncing", unique="queued", unique_on=["account_id"], on_conflict="debounce")
def debouncing(account_id: int, note: str) -> None: ...


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(relay, "SPARE", 0.0)
    commits._away_until.clear()
    with override_settings(DJANGO_JOBS=SETTINGS):
        yield
    use_store(None)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A context in which every call to the store fails as when nobody listens there."""

    @contextmanager
    def is_away() -> Iterator[list[str]]:
        asked: list[str] = []

        def refuse(*args: Any, **kwargs: Any) -> Any:
            asked.append("call")
            raise StoreUnavailable("Nobody listens.")

        with monkeypatch.context() as patch:
            for name in ("enqueue", "enqueue_ahead", "join_batch", "add_workflow"):
                patch.setattr(Store, name, refuse)
            yield asked
        commits._away_until.clear()

    return is_away


def kept() -> list[str]:
    return list(rows("default").values_list("key", flat=True))


def stored(handle: JobHandle) -> bool:
    return get_store().get(handle.queue, handle.id) is not None


def counted(queue: str = "default") -> int:
    return sum(get_store().stats([queue])[0].counts.values())


def claim(queue: str, limit: int = 1) -> list[Claim]:
    return list(get_store().claim(queue, "me", limit, lease=30_000).claims)


def run(queue: str) -> None:
    get_store().complete(queue, [done(each) for each in claim(queue)])


def test_a_row_may_be_of_a_queue_that_a_pattern_covers(away: Any) -> None:
    with override_settings(DJANGO_JOBS={**SETTINGS, "QUEUES": {"default": {}, "tenant-*": {}}}):
        with away(), transaction.atomic():
            handle = receipt.using(queue="tenant-7").enqueue(7)
        assert "tenant-7" not in get_store().queues()
        assert relay.relay() == 1
        assert (stored(handle), counted("tenant-7"), get_store().queues()) == (True, 1, ["tenant-7"])


def test_each_end_of_a_job_from_the_outbox_has_one_job_and_one_that_never_came_has_none(away: Any) -> None:
    """Its row is sent twice, as if the first process had died before it deleted the row."""
    TOLD.clear()
    with away(), transaction.atomic():
        comes, never_comes = [ends.using(meta={"n": n}).enqueue(n) for n in range(2)]
    assert never_comes.cancel()
    left = list(rows("default"))
    for _ in range(2):
        assert relay.relay() == 1
        for _ in range(3):
            for held in claim("default", 10):
                Executor(close_connections=False).run(held, get_store())
            for queue in get_store().unread(["default"]):
                end_calls.follow(get_store(), queue)
        rows("default").bulk_create(left)
    assert [(end["id"], end["state"], end["args"], end["meta"]) for end in TOLD] == [
        (comes.id, "succeeded", [0], {"n": 0})
    ]


@pytest.mark.parametrize("way_in", WAYS_IN)
class TestEveryWayIn:
    def test_writes_a_row_and_removes_it_when_the_store_has_the_job(self, way_in: str) -> None:
        with transaction.atomic():
            handle = enqueue(way_in)
            assert (handle.state, kept()) == ("deferred", [handle.id])
            assert not stored(handle)
        assert handle.state in ("queued", "scheduled")
        assert (stored(handle), kept(), counted()) == (True, [], 1)

    def test_leaves_nothing_after_a_rollback_of_all_or_of_the_savepoint(self, way_in: str) -> None:
        with transaction.atomic():
            enqueue(way_in)
            transaction.set_rollback(True)
        with transaction.atomic(), transaction.atomic():
            enqueue(way_in)
            transaction.set_rollback(True)
        assert relay.relay() == 0
        assert (kept(), counted()) == ([], 0)

    def test_is_sent_later_under_its_id_when_the_store_is_away(self, way_in: str, away: Any) -> None:
        with away(), transaction.atomic():
            handle = enqueue(way_in)
        assert (handle.state, kept()) == ("deferred", [handle.id])
        assert handle.refresh().state == "deferred"
        assert relay.relay() == 1
        assert (stored(handle), kept(), counted()) == (True, [], 1)
        assert handle.refresh().state in ("queued", "scheduled")

    def test_is_never_sent_once_it_was_cancelled(self, way_in: str, away: Any) -> None:
        with transaction.atomic():
            assert enqueue(way_in).cancel()
        with away(), transaction.atomic():
            handle = enqueue(way_in)
        assert handle.cancel()
        assert (handle.state, relay.relay(), kept(), counted()) == ("cancelled", 0, [], 0)


def test_what_was_sent_and_not_removed_is_not_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobs.outbox.remove", lambda ids, alias: 0)
    with transaction.atomic():
        handle = receipt.enqueue(7)
        receipt.enqueue_in(60, 8)
    get_store().cancel("default", [handle.id])
    assert len(kept()) == 2
    assert relay.relay() == 2
    assert (kept(), counted()) == ([], 2)
    assert handle.refresh().state == "cancelled"


@pytest.mark.parametrize("policy", ["skip", "replace", "raise"])
def test_an_equal_job_that_was_settled_and_not_removed_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch, policy: Any
) -> None:
    unique.enqueue(7)
    monkeypatch.setattr("django_jobs.outbox.remove", lambda ids, alias: 0)
    with suppress(DuplicateJob), transaction.atomic():
        unique.using(on_conflict=policy).enqueue(7)
    run("default")
    assert (relay.relay(), kept(), counted()) == (1, [], 1)


@pytest.mark.parametrize("many", [1, 3])
def test_a_job_that_is_sent_twice_is_announced_once(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    told: list[str] = []

    def note(job_id: str, **_: Any) -> None:
        told.append(job_id)

    monkeypatch.setattr("django_jobs.outbox.remove", lambda ids, alias: 0)
    job_enqueued.connect(note)
    try:
        with transaction.atomic():
            handles = receipt.enqueue_many([(number,) for number in range(many)])
            handles += receipt.using(priority=3).enqueue_many([(number,) for number in range(many)])
            handles.append(receipt.enqueue_in(60, 8))
        assert relay.relay() == 2 * many + 1
    finally:
        job_enqueued.disconnect(note)
    assert sorted(told) == sorted(handle.id for handle in handles)


def test_a_store_that_is_away_is_asked_once_a_second(away: Any) -> None:
    with away() as asked:
        handles = []
        for number in range(20):
            with transaction.atomic():
                handles.append(receipt.enqueue(number))
        assert len(asked) == 1
    assert relay.relay() == 20
    assert all(stored(handle) for handle in handles)


def test_the_rest_is_sent_in_the_order_of_the_calls(away: Any) -> None:
    with away():
        for number in range(30):
            with transaction.atomic():
                receipt.enqueue_many([(10 * number + each,) for each in range(10)])
    relay.relay()
    claims = claim("default", 300)
    assert [claim.record.rpartition(b"\n")[2] for claim in claims] == [b"[[%d],{}]" % n for n in range(300)]


def test_without_a_transaction_and_for_calls_that_want_none_nothing_is_written(away: Any) -> None:
    with away() as asked:
        for call in (receipt, receipt.using(on_commit=False)):
            with pytest.raises(StoreUnavailable):
                call.enqueue(7)
        with pytest.raises(StoreUnavailable), transaction.atomic():
            receipt.using(outbox=False).enqueue(7)
        assert len(asked) == 3
    assert kept() == []


def test_always_writes_outside_of_transactions_too(away: Any) -> None:
    with override_settings(DJANGO_JOBS=SETTINGS | {"OUTBOX": "always"}):
        assert receipt.enqueue(1).state == "queued"
        with away():
            assert receipt.enqueue(2).state == "deferred"
            assert [each.state for each in receipt.enqueue_many([(3,), (4,)])] == ["deferred", "deferred"]
            chain(receipt.s(5), receipt.s(6)).enqueue()
            with Batch("b") as batch:
                receipt.enqueue(7)
        assert (relay.relay(), relay.relay()) == (5, 1), "the batch ends last"
        assert counted() == 6
        assert batch.handle.state == "running"


def test_a_full_queue_lets_the_entry_wait_and_holds_up_nobody_else(away: Any) -> None:
    for queue in ("small", "patient"):
        receipt.using(queue=queue).enqueue(0)
        with transaction.atomic():
            waits = receipt.using(queue=queue).enqueue(1)
        assert waits.state == "deferred"
    with away(), transaction.atomic():
        other = receipt.enqueue(2)
    assert (relay.relay(), stored(other), stored(waits), len(kept())) == (1, True, False, 2)
    for queue in ("small", "patient"):
        run(queue)
    assert (relay.relay(), kept()) == (2, [])
    assert waits.refresh().state == "queued"


def test_a_queue_with_room_for_some_takes_the_first_of_the_entries(away: Any) -> None:
    with override_settings(DJANGO_JOBS=TEN):
        taken = receipt.using(queue="ten").enqueue_many([(number,) for number in range(3)])
        with away(), transaction.atomic():
            first = [receipt.using(queue="ten").enqueue(number) for number in range(12)]
            later = receipt.using(queue="ten").enqueue_in(60, 12)
        assert (relay.relay(), [stored(each) for each in first]) == (8, [True] * 7 + [False] * 5)
        assert stored(later), "a job for a later time needs no room"
        assert [each.id for each in claim("ten", 20)] == [each.id for each in [*taken, *first[:7]]]
        assert (relay.relay(), kept()) == (5, [])
        assert [each.id for each in claim("ten", 20)] == [each.id for each in first[7:]]


def test_a_queue_is_asked_once_for_all_the_entries_that_it_has_room_for(
    away: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    add = Store.enqueue

    def noted(self: Store, queue: str, jobs: Any, **options: Any) -> Any:
        sizes.append(len(jobs))
        return add(self, queue, jobs, **options)

    with override_settings(DJANGO_JOBS=TEN):
        receipt.using(queue="ten").enqueue_many([(number,) for number in range(3)])
        with away(), transaction.atomic():
            handles = [receipt.using(queue="ten").enqueue(number) for number in range(30)]
        monkeypatch.setattr(Store, "enqueue", noted)
        assert (relay.relay(), sizes) == (7, [10])
        assert [stored(each) for each in handles] == [True] * 7 + [False] * 23
        assert {row.reason for row in rows("default")} == {str(QueueFull("ten", 10))}


def test_jobs_of_a_batch_and_others_get_the_room_in_their_order_and_the_batch_counts_its_own(away: Any) -> None:
    with override_settings(DJANGO_JOBS=TEN):
        batch = Batch("b")
        with away(), transaction.atomic():
            handles = []
            for number in range(6):
                with batch:
                    handles.append(receipt.using(queue="ten").enqueue(number))
                handles.append(receipt.using(queue="ten").enqueue(number))
        rows("default").filter(kind="close").delete()
        receipt.using(queue="ten").enqueue_many([(number,) for number in range(3)])
        assert relay.relay() == 7
        assert [stored(each) for each in handles] == [True] * 7 + [False] * 5
        assert batch.handle.counts["live"] == 4
        claim("ten", 10)
        assert relay.relay() == 5
        assert [each.id for each in claim("ten", 10)] == [each.id for each in handles[7:]]
        assert batch.handle.counts["live"] == 6


def test_no_entry_gets_room_that_came_free_after_one_before_it_was_refused(
    away: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Store.enqueue

    def and_claim(self: Store, queue: str, jobs: Any, **options: Any) -> Any:
        try:
            return add(self, queue, jobs, **options)
        finally:
            claim(queue, 10)

    with override_settings(DJANGO_JOBS=TEN):
        receipt.using(queue="ten").enqueue_many([(number,) for number in range(8)])
        with away(), transaction.atomic():
            handles = [receipt.using(queue="ten").enqueue(number) for number in range(25)]
            later = receipt.using(queue="ten").enqueue_in(60, 25)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "enqueue", and_claim)
            relay.relay()
        sent = [stored(each) for each in handles]
        assert (sent[0], sent, stored(later)) == (True, sorted(sent, reverse=True), True)


def test_what_try_enqueue_left_in_the_outbox_is_dropped_only_where_there_is_no_room(away: Any) -> None:
    with override_settings(DJANGO_JOBS=TEN):
        receipt.using(queue="ten").enqueue_many([(number,) for number in range(3)])
        with away(), transaction.atomic():
            handles = [receipt.using(queue="ten").try_enqueue(number) for number in range(9)]
        assert (relay.relay(), kept()) == (9, [])
        assert [each is not None and stored(each) for each in handles] == [True] * 7 + [False] * 2


def test_what_try_enqueue_left_behind_an_entry_that_waits_for_room_does_not_wait(away: Any) -> None:
    receipt.using(queue="small").enqueue(0)
    with away(), transaction.atomic():
        waits = receipt.using(queue="small").enqueue(1)
        receipt.using(queue="small").try_enqueue(2)
    assert (relay.relay(), kept()) == (1, [waits.id])


def test_many_entries_of_full_queues_hold_up_no_end_of_a_batch(away: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "PAGE", 2)
    with override_settings(DJANGO_JOBS={**SETTINGS, "QUEUES": {"small": {"MAX_LENGTH": 1}}}):
        receipt.using(queue="small").enqueue(0)
        with away(), transaction.atomic():
            receipt.using(queue="small").enqueue_many([(number,) for number in range(4)])
            with Batch("empty") as batch:
                pass
        assert (relay.relay(), len(kept())) == (1, 4)
        assert batch.handle.state == "succeeded"


def test_entries_that_wait_do_not_use_up_the_time_of_those_behind_them(
    away: Any, time: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt.using(queue="small").enqueue(0)
    with away(), transaction.atomic():
        waiting = [chain(receipt.using(queue="small").s(number)).enqueue() for number in range(5)]
        handle = receipt.enqueue(9)
    stats = Store.stats

    def slow(self: Store, *args: Any) -> Any:
        time.now += relay.SLICE * 0.6
        return stats(self, *args)

    monkeypatch.setattr(Store, "stats", slow)
    monkeypatch.setattr(relay, "monotonic", time)
    assert [relay.relay() for _ in range(3)] == [0, 0, 1]
    assert stored(handle)
    run("small")
    assert sum(relay.relay() for _ in range(3)) == 1
    assert waiting[0].state == "running", "the first that waits is the first that is sent"


def test_data_of_many_entries_are_not_in_memory_together(away: Any) -> None:
    def most(number: int) -> int:
        with away(), transaction.atomic():
            receipt.enqueue_many([("x" * 500_000,)] * number)
        tracemalloc.start()
        try:
            assert relay.relay() == number
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with override_settings(DJANGO_JOBS=SETTINGS | {"MAX_PAYLOAD": 600_000}):
        assert most(60) < 1.5 * most(20)


def test_a_duplicate_ends_as_one(away: Any) -> None:
    unique.enqueue(7)
    with transaction.atomic():
        here = unique.enqueue(7)
    with away(), transaction.atomic():
        unique.enqueue(7)
    with away(), transaction.atomic():
        strict.enqueue(7)
        strict.enqueue(7)
    assert (here.state, relay.relay(), kept()) == ("duplicate", 3, [])
    assert counted() == 2


@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
@pytest.mark.parametrize("at", ["at the commit", "by a worker"])
def test_the_id_of_a_duplicate_leads_to_the_job_that_has_the_key(at: str, many: bool, away: Any) -> None:
    first = unique.enqueue(7)
    with away() if at == "by a worker" else nullcontext(), transaction.atomic():
        handle = unique.enqueue_many([(7,)])[0] if many else unique.enqueue(7)
        id = handle.id
    relay.relay()
    assert (handle.refresh().state, handle.id) == ("duplicate", first.id)
    assert (get_job(id), get_job(id, "default"), get_job(id).state) == (first, first, "queued")
    with pytest.raises(JobFailed, match="not stored: duplicate"):
        handle.wait(1)


def test_to_cancel_a_duplicate_from_the_outbox_does_not_cancel_the_job_that_has_the_key(away: Any) -> None:
    first = unique.enqueue(7)
    with away(), transaction.atomic():
        handle = unique.enqueue(7)
    relay.relay()
    assert not handle.cancel()
    assert (handle.state, first.refresh().state) == ("duplicate", "queued")


def test_of_equal_jobs_of_one_call_the_others_lead_to_the_first() -> None:
    with transaction.atomic():
        ids = [handle.id for handle in unique.enqueue_many([(7,), (7,), (8,)])]
    assert [get_job(id).id for id in ids] == [ids[0], ids[0], ids[2]]


@pytest.mark.parametrize("what", [replacing, debouncing], ids=["replace", "debounce"])
def test_the_id_of_a_call_that_gave_another_job_its_arguments_leads_there(what: Any, away: Any) -> None:
    first = what.enqueue_in(60, 7, "older")
    with away(), transaction.atomic():
        handle = what.enqueue_in(60, 7, "newer")
        id = handle.id
    relay.relay()
    assert (handle.refresh().state, handle.id, get_job(id)) == ("duplicate", first.id, first)


@pytest.mark.parametrize("what", ["replacing", "debouncing"])
def test_newer_arguments_stay_when_an_older_call_comes_from_the_outbox(what: str, away: Any) -> None:
    task = globals()[what]
    with away(), transaction.atomic():
        task.enqueue_in(60, 7, "oldest")
        task.enqueue_in(60, 7, "older")
    with transaction.atomic():
        newer = task.enqueue_in(600, 7, "newer")
    before = get_store().get("default", newer.id)
    assert (relay.relay(), kept(), counted()) == (2, [], 1)
    assert get_store().get("default", newer.id) == before


@pytest.mark.parametrize("what", ["replacing", "debouncing"])
def test_of_calls_that_wait_in_the_outbox_the_last_gives_the_arguments(what: str, away: Any) -> None:
    task = globals()[what]
    with away(), transaction.atomic():
        first = task.enqueue_in(60, 7, "first")
        for note in ("second", "third"):
            task.enqueue_in(60, 7, note)
    assert (relay.relay(), kept()) == (3, [])
    assert b'"third"' in get_store().get("default", first.id).record  # type: ignore[union-attr]


def test_an_old_entry_is_not_sent_until_somebody_decides_it(away: Any) -> None:
    with away(), transaction.atomic():
        receipt.enqueue(1)
        receipt.enqueue(2)
    rows("default").update(fresh_at=timezone.now() - timedelta(days=1))
    assert (relay.relay(), counted()) == (0, 0)
    first, second = rows("default").filter(is_held=True)
    assert "IDEMPOTENCY" in first.reason
    assert relay.send_again([first.pk]) == 1
    assert relay.delete([second.pk]) == 1
    assert (relay.relay(), kept(), counted()) == (1, [], 1)


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_entry_of_a_machine_whose_clock_is_wrong_is_sent_at_once(away: Any, hours: int) -> None:
    with away(), transaction.atomic():
        handle = receipt.enqueue(1)
    row = rows("default").get()
    token = f"{int(row.token[:12], 16) + hours * 3_600_000:012x}{row.token[12:]}"
    rows("default").update(token=token)
    assert (relay.relay(), stored(handle)) == (1, True)


def test_an_entry_is_left_to_its_process_for_a_moment(away: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with away(), transaction.atomic():
        receipt.enqueue(1)
    with monkeypatch.context() as patch:
        patch.setattr(relay, "SPARE", 60.0)
        assert relay.relay() == 0
    assert relay.relay() == 1


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_entry_has_its_age_while_the_clocks_change(away: Any, hours: int) -> None:
    """Without USE_TZ, its columns have local times: of the time before the change, or after it."""
    with override_settings(DJANGO_JOBS=SETTINGS | {"IDEMPOTENCY": 1800}):
        with away(), transaction.atomic():
            receipt.enqueue(1)
        then = timezone.now() + timedelta(hours=hours)
        rows("default").update(created=then, fresh_at=then)
        found = backlog()
        assert found is not None
        assert found.oldest < 600
        assert (relay.relay(), kept()) == (1, [])


def test_a_queue_that_a_deploy_removed_and_data_that_nobody_can_read_are_held(away: Any) -> None:
    with away(), transaction.atomic():
        receipt.using(queue="small").enqueue(1)
        for number in range(2, 5):
            receipt.enqueue(number)
    two, three = rows("default").filter(queue="default")[:2]
    rows("default").filter(pk=two.pk).update(data=b"nonsense")
    rows("default").filter(pk=three.pk).update(data=bytes(three.data).replace(b'"format":1', b'"format":9'))
    with override_settings(DJANGO_JOBS=SETTINGS | {"QUEUES": {"default": {}}}):
        assert relay.relay() == 1
    reasons = list(rows("default").filter(is_held=True).values_list("reason", flat=True))
    assert len(reasons) == 3
    assert "'small' is not in DJANGO_JOBS['QUEUES']" in reasons[0]
    assert "cannot be read" in reasons[1]
    assert "has format 9" in reasons[2]


def test_a_workflow_starts_whole_and_once(away: Any) -> None:
    with away(), transaction.atomic():
        handle = chain(receipt.s(1), receipt.s(2)).enqueue()
        assert handle.state == "deferred"
    assert (handle.state, kept()) == ("deferred", [handle.id])
    row = rows("default").get()
    assert (relay.relay(), handle.state, counted()) == (1, "running", 1)
    row.save(using="default", force_insert=True)
    assert (relay.relay(), handle.state, counted()) == (1, "running", 1)
    with away(), transaction.atomic():
        cancelled = chain(receipt.s(1), receipt.s(2)).enqueue()
    cancelled.cancel()
    assert (relay.relay(), cancelled.state, kept()) == (0, "cancelled", [])


def test_a_workflow_that_a_lower_limit_leaves_no_room_for_is_held(away: Any) -> None:
    with override_settings(DJANGO_JOBS=TEN), away(), transaction.atomic():
        group(*[receipt.using(queue="ten").s(n) for n in range(10)]).enqueue()
    with override_settings(DJANGO_JOBS={**TEN, "QUEUES": {"default": {}, "ten": {"MAX_LENGTH": 9}}}):
        relay.relay()
        row = rows("default").get()
    assert row.is_held
    assert "begins with 10 steps in queue 'ten', whose MAX_LENGTH is 9" in row.reason


def test_a_batch_ends_after_its_jobs_have_come(away: Any) -> None:
    first = receipt.using(queue="small").enqueue(0)
    with transaction.atomic(), Batch("b", on_complete=receipt.s(9)) as batch:
        receipt.using(queue="small").enqueue(1)
        receipt.enqueue(2)
    assert len(kept()) == 2, "the job that waits for room, and the end of the batch"
    run("default")
    assert relay.relay() == 0
    assert batch.handle.state == "running"
    assert first.cancel()
    assert relay.relay() == 1
    assert relay.relay() == 1
    assert kept() == []
    engine.advance(get_store(), "default")
    assert batch.handle.counts == batch.handle.counts | {"live": 1, "succeeded": 1}


@pytest.mark.parametrize(
    "odd",
    [
        *(b'"run_in":"soon"', b'"run_at":null', b'"digest":[]', b'"at":"x"', b'"record":"x"', b'"at":1e400'),
        *(b'"run_at":1e99', b'"expires_in":36893488147419103232', b'"schedule_run":["x"]'),
    ],
)
def test_odd_values_in_a_row_hold_it_and_nothing_else(away: Any, odd: bytes) -> None:
    with away(), transaction.atomic():
        receipt.enqueue_in(60, 1)
        other = receipt.enqueue(2)
    first = rows("default").first()
    name = odd.partition(b":")[0]
    line, _, rest = bytes(first.data).partition(b"\n")
    head = json.loads(line)
    value = json.loads(odd.partition(b":")[2])
    key = name.decode().strip('"')
    (head if key in ("at", "record") else head["job"])[key] = value
    rows("default").filter(pk=first.pk).update(data=json.dumps(head).encode() + b"\n" + rest)
    assert (relay.relay(), stored(other)) == (1, True)
    assert "cannot be read" in rows("default").get(is_held=True).reason


def test_text_in_a_row_that_has_no_encoding_holds_up_no_other_entry(away: Any) -> None:
    with away(), transaction.atomic():
        receipt.enqueue(1)
        other = receipt.enqueue(2)
    first = rows("default").first()
    digest = json.loads(bytes(first.data).partition(b"\n")[0])["job"]["digest"].encode()
    rows("default").filter(pk=first.pk).update(data=bytes(first.data).replace(digest, b"\\ud800"))
    assert (relay.relay(), stored(other), kept()) == (2, True, [])


@pytest.mark.parametrize("damage", [(b'"fields":[[', b'"fields":[],"x":[['), (b'"0","default"', b'"0","default\t"')])
def test_a_workflow_whose_entry_is_damaged_is_found_and_can_be_cancelled(
    away: Any, damage: tuple[bytes, bytes]
) -> None:
    with away(), transaction.atomic():
        handle = chain(receipt.s(1), receipt.s(2)).enqueue()
        other = receipt.enqueue(2)
    row = rows("default").first()
    assert damage[0] in bytes(row.data)
    rows("default").filter(pk=row.pk).update(data=bytes(row.data).replace(*damage))
    assert (relay.relay(), stored(other), rows("default").get().is_held) == (1, True, True)
    found = get_workflow(handle.id)
    assert found.state == "deferred"
    found.cancel()
    assert (found.state, kept()) == ("cancelled", [])


def test_a_damaged_queue_holds_up_only_its_own_entries(away: Any) -> None:
    with away(), transaction.atomic():
        receipt.using(queue="small").enqueue(1)
        other = receipt.enqueue(2)
    store = get_store()
    store.transport.command("SET", store.keys.of("small")["jobs"], "not a hash")
    assert (relay.relay(), stored(other), len(kept())) == (1, True, 1)
    assert rows("default").get().reason != ""


def test_an_id_of_the_callers_is_enqueued_once_whether_it_waited_or_not(away: Any) -> None:
    with away(), transaction.atomic():
        receipt.using(job_id="mine").enqueue(1)
    receipt.using(job_id="mine").enqueue(1)
    with transaction.atomic():
        receipt.using(job_id="mine").enqueue(1)
    assert (relay.relay(), kept(), counted()) == (1, [], 1)


def test_a_batch_that_is_closed_refuses_its_own_jobs_only() -> None:
    with transaction.atomic(), Batch("b") as batch:
        receipt.enqueue(0)
    batch.handle.cancel()
    around: list[JobHandle] = []
    closed: list[JobHandle] = []

    def enqueue_three() -> None:
        with transaction.atomic():
            around.append(receipt.enqueue(1))
            with batch:
                closed.append(receipt.enqueue(2))
            around.append(receipt.enqueue(3))

    with pytest.raises(BatchClosed):
        enqueue_three()
    assert [stored(each) for each in around] == [True, True]
    assert [each.state for each in (*around, *closed)] == ["queued", "queued", "cancelled"]
    assert kept() == [batch.handle.id], "its end: Django calls nothing after a callback that raises"


def test_a_job_that_its_batch_gave_up_is_refused_alone(away: Any) -> None:
    """At the commit as by a worker: the others of the same call are enqueued."""
    with Batch("b") as batch:
        receipt.enqueue(0)
    handles: list[JobHandle] = []

    def enqueue_three() -> None:
        with batch, transaction.atomic():
            handles.extend(receipt.enqueue(number) for number in range(3))
            get_store().void("default", [handles[1].id])

    with pytest.raises(BatchClosed, match="gave up job"):
        enqueue_three()
    assert [stored(each) for each in handles] == [True, False, True]
    assert [each.state for each in handles] == ["queued", "cancelled", "queued"]
    with away():
        handles.clear()
        enqueue_three()
    assert relay.relay() == 2
    assert [stored(each) for each in handles] == [True, False, True]
    assert "gave up job" in rows("default").get(is_held=True).reason


def test_a_batch_that_was_cancelled_refuses_jobs_that_come_late_and_not_those_that_it_has(
    monkeypatch: pytest.MonkeyPatch, away: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.outbox.remove", lambda ids, alias: 0)
        with transaction.atomic(), Batch("b") as batch:
            was_sent = receipt.enqueue(1)
    rows("default").filter(kind="close").delete()
    with away(), batch, transaction.atomic():
        late = receipt.enqueue(2)
    batch.handle.cancel()
    relay.relay()
    assert list(rows("default").filter(kind="job").values_list("key", "is_held")) == [(late.id, True)]
    assert was_sent.refresh().state == "cancelled"


def test_a_batch_with_the_transaction_inside_it_ends_after_its_jobs(away: Any) -> None:
    with Batch("b", on_complete=receipt.s(9)) as batch, away(), transaction.atomic():
        receipt.enqueue(1)
    assert len(kept()) == 2, "the job, and the end of the batch"
    assert (relay.relay(), relay.relay(), kept()) == (1, 1, [])
    assert batch.handle.state == "running"


def test_a_job_that_joined_its_batch_and_waits_for_its_store_is_not_given_up(
    make_redis_store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_redis_store()
    use_store(store)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("Nobody listens.")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "enqueue", refuse)
        with transaction.atomic(), Batch("b", on_success=receipt.s(9)) as batch:
            receipt.enqueue(1)
            given_up = receipt.enqueue(2)
    assert rows("default").filter(key=given_up.id).delete()[0] == 1, "as an operator deletes it"
    clock.advance(2 * engine.CHECK)
    engine.check(store, batch.id, 1000)
    assert (relay.relay(), relay.relay()) == (1, 1), "the job, and the end of the batch"
    assert batch.handle.counts == batch.handle.counts | {"live": 1, "deleted": 1}


def test_two_transactions_with_one_id_have_each_its_row(away: Any) -> None:
    with away(), transaction.atomic():
        first = receipt.using(job_id="one").enqueue(1)
    receipt.using(queue="small").enqueue(0)
    with transaction.atomic():
        second = receipt.using(job_id="one", queue="small").try_enqueue(1)
    assert (second.state if second else "", kept()) == ("full", ["one"])
    assert (relay.relay(), stored(first)) == (1, True)


def test_what_is_settled_stays_so_when_the_store_goes_away_within_a_page(monkeypatch: Any, away: Any) -> None:
    with away(), transaction.atomic():
        receipt.enqueue(1)
        receipt.using(queue="patient").enqueue(2)
    enqueue = Store.enqueue

    def half(self: Store, queue: str, *args: Any, **kwargs: Any) -> Any:
        if queue == "patient":
            raise StoreUnavailable("Nobody listens.")
        return enqueue(self, queue, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "enqueue", half)
        assert relay.relay() == 1
        with pytest.raises(StoreUnavailable):
            relay.relay()
    assert len(kept()) == 1


def test_a_node_of_a_cluster_that_is_away_holds_up_only_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the commit nor in a worker, and each of its calls is tried once."""
    asked: list[str] = []

    def refusing(name: str) -> Any:
        real = getattr(Store, name)

        def call(self: Store, place: str, *args: Any, **kwargs: Any) -> Any:
            if place == "patient" or name == "add_workflow":
                asked.append(name)
                raise StoreUnavailable("Nobody listens.")
            return real(self, place, *args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Store, "server_of", lambda self, place: "b" if place == "patient" or place[0] == "~" else "a")
        for name in ("enqueue", "add_workflow"):
            patch.setattr(Store, name, refusing(name))
        for number in range(3):
            with transaction.atomic():
                chain(receipt.s(number)).enqueue()
                there = receipt.using(queue="patient").enqueue(number)
                here = receipt.enqueue(number)
            assert (there.state, here.state) == ("deferred", "queued")
        assert asked == ["add_workflow", "enqueue"]
        with transaction.atomic():
            relayed = receipt.enqueue(9)
            row = rows("default").get(key=relayed.id)
        row.save(using="default", force_insert=True)
        asked.clear()
        assert relay.relay() == 1
        assert asked == ["add_workflow", "enqueue"]
    commits._away_until.clear()
    assert (len(kept()), relay.relay(), len(kept())) == (6, 4, 2), "the queue has room for one"


def test_a_job_that_was_to_run_long_ago_expires_by_its_own_time(away: Any) -> None:
    with away(), transaction.atomic():
        receipt.using(run_at=timezone.now() - timedelta(hours=2)).enqueue(1)
        short.enqueue_at(timezone.now() + timedelta(seconds=60), 5)
    row = rows("default").last()
    line, _, rest = bytes(row.data).partition(b"\n")
    head = json.loads(line)
    head["at"] -= 3_600_000
    head["job"]["run_at"] -= 3_600_000
    rows("default").filter(pk=row.pk).update(data=json.dumps(head).encode() + b"\n" + rest)
    relay.relay()
    claimed = claim("default", 10)
    assert [each.record.rpartition(b"\n")[2] for each in claimed] == [b"[[1],{}]"]


@pytest.mark.parametrize("is_back", [True, False])
def test_a_job_in_the_outbox_is_found_by_its_id(is_back: bool, away: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with away(), transaction.atomic():
        handle = receipt.enqueue(1)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("Nobody listens.")

    with monkeypatch.context() as patch:
        if not is_back:
            patch.setattr(Store, "find", refuse)
        found = get_job(handle.id)
        assert (found, found.state, found.name) == (handle, "deferred", handle.name)
        assert get_job(handle.id, "default") == handle
        with pytest.raises(JobNotFound if is_back else StoreUnavailable):
            get_job(handle.id, "small")
    relay.relay()
    assert (found.refresh().state, get_job(handle.id).state) == ("queued", "queued")


def test_a_job_that_leaves_the_outbox_while_it_is_looked_for_is_found(
    away: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with away(), transaction.atomic():
        handle = receipt.enqueue(1)
    find, looks = Store.find, []

    def find_and_send(store: Store, *args: Any) -> Any:
        found = find(store, *args)
        if not looks:
            looks.append("first")
            relay.relay()
        return found

    monkeypatch.setattr(Store, "find", find_and_send)
    # The job may have been sent after a look into each queue; the outbox is empty then.
    monkeypatch.setattr(Store, "has_returned_none", lambda *args: False)
    assert get_job(handle.id).state == "queued"


@job(name="tests.outbox.doubled")
def doubled(number: int) -> int:
    return 2 * number


@pytest.fixture
def worker_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a caller looks into the store for the third time, a worker sends and runs what is in the outbox."""
    looks = list[str]()

    def look(read: Any) -> Any:
        def reads(*args: Any) -> Any:
            looks.append("look")
            if len(looks) == 3:
                relay.relay()
                work()
            return read(*args)

        return reads

    for name in ("find", "workflow_fields"):
        monkeypatch.setattr(Store, name, look(getattr(Store, name)))


def work() -> None:
    while claimed := claim("default", 10):
        for each in claimed:
            Executor().run(each, get_store())
        follow_all(get_store(), ["default"])


def waited(handle: Any, is_async: bool, timeout: float = 30) -> Any:
    return async_to_sync(handle.await_result)(timeout) if is_async else handle.wait(timeout)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("what", ["job", "workflow"])
def test_who_waits_for_what_is_in_the_outbox_gets_its_result(
    what: str, is_async: bool, away: Any, worker_comes: None
) -> None:
    with away(), transaction.atomic():
        handle: Any = doubled.enqueue(4) if what == "job" else chain(doubled.s(1), doubled.s(PREVIOUS)).enqueue()
        with pytest.raises(JobFailed, match="deferred"):
            waited(handle, is_async)
    assert waited(handle, is_async) == (8 if what == "job" else 4)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("what", ["job", "workflow", "batch"])
def test_who_waits_for_what_stays_in_the_outbox_or_is_deleted_there_is_told(
    what: str, is_async: bool, away: Any
) -> None:
    get: Any = get_job if what == "job" else get_workflow
    with away(), transaction.atomic():
        handle: Any = receipt.enqueue(1) if what == "job" else enqueued(what, "flow")
        with pytest.raises(JobFailed, match="deferred"):
            waited(get(handle.id), is_async)
    found = get(handle.id)
    for waits in (handle, found):
        with pytest.raises(TimeoutError):
            waited(waits, is_async, 0.01)
    relay.delete(rows("default").values_list("pk", flat=True))
    for waits in (handle, found):
        with pytest.raises((JobNotFound, WorkflowNotFound)):
            waited(waits, is_async)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A context in which what the store has of jobs and workflows cannot be read."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("Nobody listens.")

    @contextmanager
    def is_unread(applies: bool = True) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for name in ("find", "workflow_fields") if applies else ():
                patch.setattr(Store, name, refuse)
            yield

    return is_unread


@pytest.mark.parametrize("is_back", [True, False])
@pytest.mark.parametrize("kind", ["workflow", "batch"])
def test_a_workflow_and_a_batch_in_the_outbox_are_found_by_their_ids(
    kind: str, is_back: bool, away: Any, unread: Any
) -> None:
    with away(), transaction.atomic():
        handle = enqueued(kind, "flow")
        assert (get_workflow(handle.id), get_workflow(handle.id).state) == (handle, "deferred")
    with unread(not is_back):
        found = get_workflow(handle.id)
        assert (found, found.name, found.state, handle.state) == (handle, "flow", "deferred", "deferred")
        with pytest.raises(TimeoutError if is_back else StoreUnavailable):
            handle.wait(0.01)
        with pytest.raises(WorkflowNotFound if is_back else StoreUnavailable):
            get_workflow(handle.id[:-1])
    with pytest.raises(WorkflowNotFound):
        found.retry()
    while kept():
        relay.relay()
    assert (found.state, handle.state, get_workflow(handle.id).state) == ("running",) * 3


def enqueued(kind: str, name: str) -> WorkflowHandle:
    """Enqueue three jobs."""
    if kind == "workflow":
        flow = Workflow(name)
        for n in range(3):
            flow.add(receipt.s(n))
        return flow.enqueue()
    with Batch(name) as batch:
        receipt.enqueue_many([(n,) for n in range(3)])
    return batch.handle


@pytest.mark.parametrize("is_read", [False, True], ids=["only in the outbox", "read by a worker"])
@pytest.mark.parametrize("kind", ["workflow", "batch"])
def test_what_is_found_in_the_outbox_is_cancelled_as_a_whole(kind: str, is_read: bool, away: Any) -> None:
    with away(), transaction.atomic():
        handle = enqueued(kind, "flow")
    left = list(rows("default"))
    with suppress(KeyError), transaction.atomic():
        found = get_workflow(handle.id)
        found.cancel()
        assert (found.state, kept()) == ("cancelled", [])
        raise KeyError("rolled back")
    assert (found.state, len(kept())) == ("deferred", len(left))
    found.cancel()
    assert (found.state, kept()) == ("cancelled", [])
    if is_read:
        rows("default").bulk_create(left)
    relay.relay()
    assert (found.state, counted()) == ("cancelled", 0)


@pytest.mark.parametrize("get", [get_job, get_workflow])
def test_in_async_code_a_look_into_the_outbox_says_what_to_call_instead(get: Any) -> None:
    """And what the store has is found."""
    known = chain(receipt.s(1)).enqueue() if get is get_workflow else receipt.enqueue(1)

    async def look() -> None:
        assert get(known.id) == known
        with pytest.raises(SynchronousOnlyOperation, match=f"a{get.__name__}"):
            get("bnone")
        with pytest.raises(JobNotFound if get is get_job else WorkflowNotFound):
            await {get_job: aget_job, get_workflow: aget_workflow}[get]("bnone")

    async_to_sync(look)()


@pytest.mark.skipif(django.VERSION < (6, 0) and find_spec("django_tasks") is None, reason="needs Django's tasks")
def test_a_task_in_the_outbox_is_ready(away: Any) -> None:
    from tests.tasks_project import add

    with away(), transaction.atomic():
        result = add.enqueue(1, b=2)
    assert kept() == [result.id]
    assert add.get_result(result.id) == result
    relay.relay()
    assert add.get_result(result.id) == result


@pytest.mark.skipif(django.VERSION < (6, 0) and find_spec("django_tasks") is None, reason="needs Django's tasks")
def test_the_result_of_a_task_that_was_a_duplicate_is_that_of_the_job_that_has_the_key(away: Any) -> None:
    from tests.tasks_project import add

    once = add.using(unique="queued")
    first = once.enqueue(1, b=2)
    with away(), transaction.atomic():
        second = once.enqueue(1, b=2)
    assert second.id != first.id
    relay.relay()
    assert add.get_result(second.id) == add.get_result(first.id)


def test_the_delays_of_first_steps_count_from_the_call_however_late_they_are_sent(away: Any, jobs: Any) -> None:
    with away(), transaction.atomic():
        job = short.enqueue(7)
        flow = chain(short.s(8), receipt.s(9)).enqueue()
    jobs.travel(120)
    relay.relay()
    jobs.run_all()
    assert (job.refresh().state, flow.state, flow.counts["expired"]) == ("expired", "stopped", 1)


def test_a_workflow_that_was_sent_before_its_process_died_finds_room_in_the_queue_that_it_fills(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as died:
        died.setattr(commits, "_remove", lambda tokens: None)
        with transaction.atomic():
            flow = chain(receipt.using(queue="small").s(1), receipt.s(2)).enqueue()
    assert (kept(), flow.state) == ([flow.id], "running")
    assert relay.relay() == 1
    assert (kept(), flow.state, counted("small")) == ([], "running", 1)
