"""What a worker does with the connections of a thread: also with those that cannot even be closed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs.runtime import database_connections

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


@pytest.mark.parametrize("tidy", [database_connections.before_job, database_connections.after_job])
def test_a_connection_whose_driver_fails_is_given_up_and_the_worker_goes_on(
    connection: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tidy: Any
) -> None:
    monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", fail)
    tidy()

    assert connections["default"] is not connection
    assert "database 'default' cannot be closed" in caplog.text
    assert "out of order" in caplog.text


def test_a_transaction_that_was_left_open_goes_even_if_its_connection_cannot_be_closed(
    connection: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transaction.atomic().__enter__()
    monkeypatch.setattr(connection, "close", fail)
    database_connections.after_job()

    assert not connections["default"].in_atomic_block
    assert "is no longer used" in caplog.text


def test_a_connection_that_lay_idle_is_asked_before_it_is_used(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database_connections.after_job()
    database_connections.before_job()
    assert not connection.health_check_enabled, "a busy worker does not pay for it"

    monkeypatch.setattr(database_connections, "IDLE", -1.0)
    database_connections.before_job()
    assert connection.health_check_enabled


def test_a_pool_of_connections_is_closed_before_a_fork(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(connection, "_connection_pools", {}, raising=False)
    monkeypatch.setattr(connection, "close_pool", lambda: closed.append(connection.alias), raising=False)
    database_connections.close_all()
    assert closed == [], "there is none, and none is made"

    connection._connection_pools["default"] = object()
    database_connections.close_all()
    assert closed == ["default"]


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
def test_a_transaction_that_was_opened_behind_django_s_back_ends_with_its_job(
    connection: Any, caplog: pytest.LogCaptureFixture, begin: str
) -> None:
    connection.cursor().execute(begin)
    assert not connection.in_atomic_block
    database_connections.after_job("7", "shop.pay")

    assert connections["default"] is not connection
    assert "Job 7 (shop.pay) left a transaction open on database 'default'" in caplog.text


def test_a_connection_that_is_idle_stays_and_costs_no_query(
    connection: Any, django_assert_num_queries: Any, caplog: pytest.LogCaptureFixture
) -> None:
    connection.settings_dict["CONN_MAX_AGE"] = None
    connection.close_at = None
    connection.cursor().execute("SELECT 1")
    with django_assert_num_queries(0, connection=connection):
        database_connections.after_job()
    assert connections["default"] is connection
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("raw", "is_open"),
    [
        (SimpleNamespace(info=SimpleNamespace(transaction_status=2)), True),  # psycopg, psycopg2: in a transaction
        (SimpleNamespace(info=SimpleNamespace(transaction_status=3)), True),  # in one that failed
        (SimpleNamespace(info=SimpleNamespace(transaction_status=0)), False),
        (SimpleNamespace(info=SimpleNamespace(transaction_status=4)), False),  # closed: Django sees to that
        (SimpleNamespace(server_status=3), True),  # PyMySQL
        (SimpleNamespace(server_status=2), False),
        (SimpleNamespace(info=lambda: "mysqlclient says nothing of it"), False),
        (SimpleNamespace(transaction_in_progress=True), True),  # oracledb
        (None, False),
    ],
)
def test_each_driver_is_asked_in_its_own_way(raw: Any, is_open: bool) -> None:
    assert database_connections._in_transaction(SimpleNamespace(connection=raw)) is is_open  # type: ignore[arg-type]
