"""Nested and durable blocks, several databases, TestCase, requests that are transactions: the outbox goes with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test import TestCase, override_settings

from django_jobs import JobHandle, chain
from django_jobs.enqueueing import commits
from django_jobs.operations import relay
from django_jobs.outbox import rows
from django_jobs.stores import get_store
from tests.integration.outbox.test_outbox import SETTINGS, away, counted, kept, stored
from tests.integration.sample_jobs import receipt

__all__ = ["away"]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(relay, "SPARE", 0.0)
    commits._away_until.clear()
    with override_settings(DJANGO_JOBS=SETTINGS):
        yield


@pytest.mark.django_db(transaction=True)
class TestBlocks:
    def test_an_inner_block_that_is_rolled_back_takes_only_its_own_entries_along(self) -> None:
        with transaction.atomic():
            outer = receipt.enqueue(1)
            with transaction.atomic():
                inner = receipt.enqueue(2)
                transaction.set_rollback(True)
            after = receipt.enqueue(3)
            assert kept() == [outer.id, after.id]
        assert [stored(handle) for handle in (outer, inner, after)] == [True, False, True]
        assert kept() == []

    def test_one_statement_writes_all_of_a_call_and_one_removes_them(self, django_assert_num_queries: Any) -> None:
        # BEGIN, INSERT and COMMIT are the transaction; DELETE comes after it, on MySQL and MariaDB after a SELECT.
        with django_assert_num_queries(5 if connection.vendor == "mysql" else 4), transaction.atomic():
            receipt.enqueue_many([(number,) for number in range(90)])
        assert counted() == 90


def in_thread(work: Callable[[], object]) -> None:
    """Do it with a connection that is closed afterwards."""
    try:
        work()
    finally:
        connections.close_all()


several_connections = pytest.mark.skipif(
    "connection.vendor == 'sqlite'", reason="Threads share the connection of a database in memory."
)


@several_connections
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [1, 7, 600])
def test_a_transaction_that_stays_open_keeps_nobody_else_waiting(number: int, caplog: pytest.LogCaptureFixture) -> None:
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")
    has_enqueued, may_end = Event(), Event()

    def stay() -> None:
        with transaction.atomic():
            receipt.enqueue(1)
            has_enqueued.set()
            may_end.wait(60)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(in_thread, stay)
        try:
            assert has_enqueued.wait(60)
            with transaction.atomic():
                receipt.enqueue_many([(each,) for each in range(number)])
            assert (relay.relay(), kept(), caplog.messages) == (0, [], [])
        finally:
            may_end.set()
        other.result()
    assert counted() == number + 1


@several_connections
@pytest.mark.django_db(transaction=True)
def test_processes_and_workers_at_the_same_rows_do_not_hinder_each_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay, "SPARE", -1.0)
    is_over = Event()

    def enqueue() -> None:
        for _ in range(40):
            with transaction.atomic():
                receipt.enqueue_many([(number,) for number in range(20)])

    def send() -> None:
        while not is_over.is_set():
            relay.relay()

    with ThreadPoolExecutor(5) as pool:
        workers = [pool.submit(in_thread, send) for _ in range(2)]
        processes = [pool.submit(in_thread, enqueue) for _ in range(3)]
        wait(processes)
        is_over.set()
    for thread in (*processes, *workers):
        thread.result()
    monkeypatch.setattr(relay, "SPARE", 0.0)
    relay.relay()
    assert (kept(), counted(), caplog.messages) == ([], 3 * 40 * 20, [])


def left_there(entry: str, away: Any) -> Any:
    """Return the handle of a job or a workflow that is in the outbox after its commit, because the store was away."""
    with away(), transaction.atomic():
        return receipt.enqueue(1) if entry == "job" else chain(receipt.s(1), receipt.s(2)).enqueue()


def state_of(handle: Any) -> str:
    return handle.refresh().state if isinstance(handle, JobHandle) else handle.state


def roll_back(act: Callable[[], object]) -> None:
    with transaction.atomic():
        act()
        transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("entry", ["job", "workflow"])
class TestToCancelIsAPartOfTheTransaction:
    def test_a_rollback_leaves_the_entry(self, entry: str, away: Any) -> None:
        handle = left_there(entry, away)
        roll_back(handle.cancel)
        assert kept() == [handle.id]
        assert state_of(handle) == "deferred"
        assert (relay.relay(), counted()) == (1, 1)
        assert state_of(handle) in ("queued", "running")
        handle.cancel()
        assert state_of(handle) == "cancelled"

    def test_a_rollback_within_the_transaction_that_wrote_it_leaves_it_too(self, entry: str) -> None:
        with transaction.atomic():
            handle = receipt.enqueue(1) if entry == "job" else chain(receipt.s(1), receipt.s(2)).enqueue()
            roll_back(handle.cancel)
        assert (kept(), counted()) == ([], 1)
        assert state_of(handle) in ("queued", "running")

    def test_the_commit_cancels_it(self, entry: str, away: Any) -> None:
        handle = left_there(entry, away)
        with transaction.atomic():
            handle.cancel()
            handle.cancel()
            assert state_of(handle) == "cancelled"
        assert state_of(handle) == "cancelled"
        assert (relay.relay(), kept(), counted()) == (0, [], 0)

    @pytest.mark.parametrize("sent", [True, False])
    def test_what_a_worker_has_read_before_does_not_run_either(self, entry: str, sent: bool, away: Any) -> None:
        """Where the database cannot lock rows, or before the cancelling transaction has begun."""
        handle = left_there(entry, away)
        row = rows("default").get()
        if sent:
            relay.relay()
            row.save(using="default")
        with transaction.atomic():
            handle.cancel()
        if not sent:
            row.save(using="default")
            assert relay.relay() == 1
        assert get_store().claim("default", "me", 9, lease=30_000).claims == []


class InATestCase(TestCase):
    def test_entries_go_with_the_transaction_of_the_test(self) -> None:
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            handle = receipt.enqueue(1)
        assert handle.state == "queued"
        assert get_store().get("default", handle.id) is not None
        assert not rows("default").exists()


@pytest.mark.django_db
def test_the_test_kit_runs_what_was_enqueued(jobs: Any) -> None:
    with transaction.atomic():
        receipt.enqueue(1)
    assert len(jobs.run_all()) == 1
    assert not rows("default").exists()
