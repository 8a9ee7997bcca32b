"""What a worker does with the connections of a thread: also with those that cannot even be closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs.worker import database

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def connection() -> Iterator[Any]:
    """An open connection of this thread, under the eyes of the worker; the test may spoil it."""
    before = connections["default"]
    spoiled = before.copy()
    spoiled.inc_thread_sharing()
    connections["default"] = spoiled
    spoiled.ensure_connection()
    yield spoiled
    connections["default"] = before
    spoiled.connection.close()


def fail(*_: Any) -> None:
    raise RuntimeError("the driver is out of order")


@pytest.mark.parametrize("tidy", [database.before_job, database.after_job])
def test_a_connection_whose_driver_fails_is_given_up_and_the_worker_goes_on(
    connection: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tidy: Any
) -> None:
    monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", fail)
    tidy()

    assert connections["default"] is not connection
    assert "database 'default' is given up" in caplog.text
    assert "out of order" in caplog.text


def test_a_transaction_that_was_left_open_goes_even_if_its_connection_cannot_be_closed(
    connection: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transaction.atomic().__enter__()
    monkeypatch.setattr(connection, "close", fail)
    database.after_job()

    assert not connections["default"].in_atomic_block
    assert "is given up" in caplog.text


def test_a_connection_that_lay_idle_is_asked_before_it_is_used(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.after_job()
    database.before_job()
    assert not connection.health_check_enabled, "a busy worker does not pay for it"

    monkeypatch.setattr(database, "IDLE", -1.0)
    database.before_job()
    assert connection.health_check_enabled


def test_a_pool_of_connections_is_closed_before_a_fork(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(connection, "_connection_pools", {}, raising=False)
    monkeypatch.setattr(connection, "close_pool", lambda: closed.append(connection.alias), raising=False)
    database.close_all()
    assert closed == [], "there is none, and none is made"

    connection._connection_pools["default"] = object()
    database.close_all()
    assert closed == ["default"]
