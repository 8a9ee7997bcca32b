"""Inside atomic(), every way in waits for the commit; after a rollback nothing was ever enqueued."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_jobs import DuplicateJob, JobFailed, JobHandle, QueueFull, StoreUnavailable
from django_jobs.core.values import State
from django_jobs.enqueueing.methods import Calls
from django_jobs.stores import get_store
from tests.integration.sample_jobs import receipt, strict, unique
from tests.integration.ways_in import CALLS, WAYS_IN, enqueue

SETTINGS: dict[str, Any] = {"STORE": "memory", "QUEUES": {"default": {}, "small": {"MAX_LENGTH": 1}}}

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with override_settings(DJANGO_JOBS=SETTINGS):
        yield


def stored(handle: JobHandle) -> bool:
    return get_store().get(handle.queue, handle.id) is not None


@pytest.mark.parametrize("way_in", WAYS_IN)
class TestEveryWayIn:
    def test_waits_for_the_commit(self, way_in: str) -> None:
        with transaction.atomic():
            handle = enqueue(way_in)
            assert handle.state == "deferred"
            assert not stored(handle)
        assert handle.state in ("queued", "scheduled")
        assert stored(handle)
        (stats,) = get_store().stats(["default"])
        assert sum(stats.counts.values()) == 1

    def test_enqueues_nothing_after_a_rollback_of_all_or_of_the_savepoint(self, way_in: str) -> None:
        with transaction.atomic():
            outer = enqueue(way_in)
            transaction.set_rollback(True)
        with transaction.atomic(), transaction.atomic():
            inner = enqueue(way_in)
            transaction.set_rollback(True)
        assert (outer.state, inner.state) == ("deferred", "deferred")
        (stats,) = get_store().stats(["default"])
        assert sum(stats.counts.values()) == 0

    def test_sends_nothing_that_was_cancelled_before_the_commit(self, way_in: str) -> None:
        with transaction.atomic():
            handle = enqueue(way_in)
            assert handle.cancel()
        assert handle.state == "cancelled"
        (stats,) = get_store().stats(["default"])
        assert sum(stats.counts.values()) == 0


def test_waiting_for_a_job_that_waits_for_the_commit_is_refused_at_once() -> None:
    with transaction.atomic():
        handle = receipt.enqueue(7)
        with pytest.raises(JobFailed, match=r"is deferred: .* Wait for it after the atomic\(\) block"):
            handle.wait(5)
        transaction.set_rollback(True)
    with pytest.raises(JobFailed, match="not at all after a rollback"):
        handle.wait(5)


def test_no_call_that_enqueues_is_missing_above() -> None:
    makes_no_call = {"s", "using"}
    assert {name for name in dir(Calls) if not name.startswith("_")} - makes_no_call == set(CALLS)


@pytest.mark.parametrize("way_in", CALLS)
def test_on_commit_false_enqueues_at_once_in_every_way(way_in: str) -> None:
    with transaction.atomic():
        handle = enqueue(way_in, receipt.using(on_commit=False))
        assert stored(handle)
        transaction.set_rollback(True)
    assert stored(handle)


class TestTransactions:
    def test_the_setting_switches_it_off_and_using_on_again(self) -> None:
        with override_settings(DJANGO_JOBS={**SETTINGS, "ON_COMMIT": False}), transaction.atomic():
            assert receipt.enqueue(7).state == "queued"
            assert receipt.using(on_commit=True).enqueue(7).state == "deferred"

    def test_what_is_wrong_with_a_call_is_said_before_the_commit(self) -> None:
        with transaction.atomic(), pytest.raises(TypeError, match="cannot be called like this"):
            receipt.enqueue()  # type: ignore[call-arg]

    def test_of_jobs_enqueued_together_only_the_cancelled_one_is_left_out(self) -> None:
        with transaction.atomic():
            first, second, third = receipt.enqueue_many([(1,), (2,), (3,)])
            second.cancel()
        assert [stored(each) for each in (first, second, third)] == [True, False, True]

    def test_items_of_an_iterator_wait_like_all_others(self) -> None:
        with transaction.atomic():
            handles = receipt.enqueue_many((number,) for number in range(3))
            assert [handle.state for handle in handles] == ["deferred"] * 3
        assert all(stored(each) for each in handles)

    def test_a_handle_that_was_cancelled_before_the_commit_stays_cancelled(self) -> None:
        with transaction.atomic():
            handle = receipt.enqueue(7)
            handle.cancel()
        assert handle.refresh().state == "cancelled"
        assert handle.cancel()
        with pytest.raises(JobFailed, match="ended as cancelled"):
            handle.wait(5)

    def test_a_refusal_is_raised_though_the_last_job_of_the_transaction_was_cancelled(self) -> None:
        def refused_then_cancelled() -> None:
            strict.enqueue(1)
            receipt.enqueue(7).cancel()

        strict.enqueue(1)
        with pytest.raises(DuplicateJob), transaction.atomic():
            refused_then_cancelled()

    def test_a_deferred_handle_stays_so_when_it_is_asked(self) -> None:
        with transaction.atomic():
            handle = receipt.enqueue(7)
            assert handle.refresh().state == "deferred"
            assert (handle.result, handle.error, handle.attempts) == (None, None, ())


class TestWhatOnlyTheStoreKnows:
    def test_a_duplicate_turns_the_handle_at_the_commit(self) -> None:
        with transaction.atomic():
            first, second = unique.enqueue_unique(1), unique.enqueue_unique(1)
            assert first is not None
            assert second is not None
        assert (first.state, second.state) == ("queued", "duplicate")

    def test_a_full_queue_raises_at_the_commit_and_the_log_names_the_job(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        receipt.using(queue="small").enqueue(1)
        with pytest.raises(QueueFull), transaction.atomic():
            handle = receipt.using(queue="small").enqueue(2)
        assert f"The first is sample.receipt {handle.id}" in caplog.text
        assert handle.state == "full"

    def test_a_full_queue_raises_whatever_comes_after_it_in_the_transaction(self) -> None:
        def another() -> None:
            with transaction.atomic():
                receipt.enqueue(3)

        def full_then(later: Callable[[], None]) -> None:
            receipt.using(queue="small").enqueue(2)
            later()

        def rolled_back() -> None:
            with transaction.atomic():
                receipt.enqueue(3)
                transaction.set_rollback(True)

        def enqueued_by_a_callback() -> None:
            transaction.on_commit(another)
            another()

        receipt.using(queue="small").enqueue(1)
        for later in (rolled_back, enqueued_by_a_callback):
            with pytest.raises(QueueFull), transaction.atomic():
                full_then(later)
        assert get_store().stats(["default"])[0].counts[State.QUEUED] == 2

    def test_try_enqueue_never_raises_for_a_full_queue(self) -> None:
        receipt.using(queue="small").enqueue(1)
        with transaction.atomic():
            handle = receipt.using(queue="small").try_enqueue(2)
        assert handle is not None
        assert handle.state == "full"


class TestOneCommit:
    """What waits for one commit goes to the store together, and waits for it once."""

    @pytest.fixture
    def sent(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        """The ids of each call to the store."""
        calls: list[list[str]] = []
        store = get_store()
        enqueue = store.enqueue

        def counting(queue: str, jobs: Any, **options: Any) -> Any:
            calls.append([job.id for job in jobs])
            return enqueue(queue, jobs, **options)

        monkeypatch.setattr(store, "enqueue", counting)
        return calls

    def test_calls_of_one_transaction_are_one_call_to_the_store_in_their_order(self, sent: list[list[str]]) -> None:
        with transaction.atomic():
            handles = [receipt.enqueue(n) for n in range(20)]
        assert sent == [[handle.id for handle in handles]]
        assert all(handle.state == "queued" for handle in handles)

    def test_what_a_savepoint_took_away_is_not_among_them(self, sent: list[list[str]]) -> None:
        with transaction.atomic():
            first = receipt.enqueue(1)
            with transaction.atomic():
                inner = receipt.enqueue(2)
            for _ in range(2):
                with transaction.atomic():
                    receipt.enqueue(3)
                    transaction.set_rollback(True)
            last = receipt.enqueue(5)
        assert sent == [[first.id, last.id], [inner.id]]

    def test_each_of_many_savepoints_costs_the_same(self) -> None:
        """An import that saves and enqueues row by row; compared with a small one on the same machine."""

        def cost(rows: int) -> float:
            began = time.process_time()
            with transaction.atomic():
                for n in range(rows):
                    with transaction.atomic():
                        receipt.enqueue(n)
            return time.process_time() - began

        cost(10)
        assert cost(800) < 64 * cost(100), "eight times as much is to be expected"

    def test_a_later_transaction_is_not_sent_with_an_earlier_one(self, sent: list[list[str]]) -> None:
        handles = []
        for _ in range(3):
            with transaction.atomic():
                handles.append(receipt.enqueue(1))
            with transaction.atomic():
                receipt.enqueue(2)
                transaction.set_rollback(True)
        assert sent == [[handle.id] for handle in handles]

    def test_each_is_refused_for_itself(self) -> None:
        strict.enqueue(1)
        with pytest.raises(DuplicateJob), transaction.atomic():
            handles = [strict.enqueue(1), strict.enqueue(2), receipt.enqueue(1)]
        assert [handle.state for handle in handles] == ["duplicate", "queued", "queued"]

    def test_of_several_calls_the_first_fit_into_a_bounded_queue(self) -> None:
        with pytest.raises(QueueFull), transaction.atomic():
            handles = [receipt.using(queue="small").enqueue(n) for n in range(3)]
        assert [handle.state for handle in handles] == ["queued", "full", "full"]

    def test_a_store_that_is_away_is_waited_for_once(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        asked = []

        def away(queue: str, jobs: Any, **options: Any) -> None:
            asked.append(len(jobs))
            raise StoreUnavailable("gone")

        monkeypatch.setattr(get_store(), "enqueue", away)
        handles: list[JobHandle] = []

        def enqueue_some() -> None:
            handles.extend(receipt.enqueue(n) for n in range(20))
            with transaction.atomic():
                handles.append(receipt.enqueue(21))
            handles.append(receipt.using(queue="small").enqueue(22))

        with pytest.raises(StoreUnavailable) as told, transaction.atomic():
            enqueue_some()
        assert asked == [20]
        assert told.value.job_id == handles[0].id
        assert all(handle.id in caplog.text for handle in (handles[0], *handles[-2:]))

    def test_outside_a_transaction_the_error_carries_the_id(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(queue: str, jobs: Any, **options: Any) -> None:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(get_store(), "enqueue", away)
        with pytest.raises(StoreUnavailable) as told:
            receipt.using(job_id="mine").enqueue(7)
        assert told.value.job_id == "mine"


class TestOtherDatabases:
    PROGRAM = """
        import django
        from django.conf import settings

        memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        settings.configure(
            INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_jobs"],
            DATABASES={DATABASES},
            DJANGO_JOBS={"STORE": "memory", "DATABASE": "DATABASE"},
            USE_TZ=True,
        )
        django.setup()
        from asgiref.sync import async_to_sync, sync_to_async
        from django.db import connections, transaction
        from django_jobs.stores import get_store
        from tests.integration.sample_jobs import receipt
        from tests.integration.ways_in import WAYS_IN, aenqueue, enqueue

        def stored(handle):
            return get_store().get("default", handle.id) is not None

    """

    def run(self, databases: str, database: str, program: str) -> None:
        head = textwrap.dedent(self.PROGRAM).replace("{DATABASES}", databases).replace('DATABASE"}', database + '"}')
        code = head + textwrap.dedent(program)
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=240)

    def test_the_transaction_of_the_named_database_counts_in_every_way(self) -> None:
        self.run(
            '{"default": memory, "other": memory}',
            "other",
            """
            for way_in in WAYS_IN:
                with transaction.atomic():
                    handle = enqueue(way_in)
                    assert stored(handle), way_in
                    transaction.set_rollback(True)
                get_store().delete("default", [handle.id])
                with transaction.atomic(using="other"):
                    handle = enqueue(way_in)
                    assert handle.state == "deferred" and not stored(handle), way_in
                    transaction.set_rollback(True, using="other")
                assert not stored(handle), way_in
                with transaction.atomic(using="other"):
                    handle = enqueue(way_in)
                assert stored(handle), way_in
                get_store().delete("default", [handle.id])
            """,
        )

    def test_without_any_database_every_way_enqueues_at_once(self) -> None:
        self.run(
            "{}",
            "default",
            """
            async def view(way_in):
                return await aenqueue(way_in)

            for way_in in WAYS_IN:
                for call in (enqueue, async_to_sync(view)):
                    handle = call(way_in)
                    assert stored(handle), (way_in, call)
                    get_store().delete("default", [handle.id])
            """,
        )

    def test_no_connection_is_opened_to_ask(self) -> None:
        self.run(
            '{"default": {**memory, "NAME": "/nowhere/db.sqlite3"}}',
            "default",
            """
            assert receipt.enqueue(7).state == "queued"
            assert connections["default"].connection is None
            """,
        )
