"""On PostgreSQL, workers free the space of deleted rows.  Runs where the tests have such a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from django_jobs import outbox
from django_jobs.outbox import vacuum
from django_jobs.outbox.vacuum import Vacuum
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="Only PostgreSQL has VACUUM."),
]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Autovacuum would free the rows of a slow test, and ANALYZE would count them anew."""
    monkeypatch.setattr(vacuum, "MOST", 200)
    let("ALTER TABLE django_jobs_outboxentry SET (autovacuum_enabled = off)")
    yield
    let("ALTER TABLE django_jobs_outboxentry RESET (autovacuum_enabled)")


def let(command: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(command)


def asked(query: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
        return int(row[0])


def dead() -> int:
    return asked("SELECT pg_stat_get_dead_tuples('django_jobs_outboxentry'::regclass)")


def vacuums() -> int:
    return asked("SELECT pg_stat_get_vacuum_count('django_jobs_outboxentry'::regclass)")


def pass_through(number: int) -> None:
    """Write and delete as many rows, and wait until the server counts them."""
    before = dead()
    entries = [outbox.Entry(outbox.EntryKind.CLOSE, str(each), "b", at=1, token=str(each)) for each in range(number)]
    with transaction.atomic():
        outbox.write(entries, "default")
    assert outbox.remove([entry.token for entry in entries], "default") == number

    def is_counted() -> bool:
        asked("SELECT pg_stat_clear_snapshot() IS NULL")
        return dead() >= before + number

    wait_until(is_counted, "the server counts the deleted rows", every=0.1)


@contextmanager
def an_old_transaction() -> Iterator[None]:
    """Somebody may still see what is deleted meanwhile."""
    copy: Any = connection.copy()
    try:
        with copy.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT 1")
            yield
    finally:
        copy.close()


def test_few_deleted_rows_stay_and_many_are_freed() -> None:
    mine = Vacuum()
    before = vacuums()
    pass_through(150)
    mine.tick("default")
    assert vacuums() == before
    pass_through(150)
    mine.tick("default")
    assert (vacuums(), dead()) == (before + 1, 0)


def test_rows_that_an_old_transaction_keeps_are_not_looked_at_each_second() -> None:
    mine = Vacuum()
    with an_old_transaction():
        pass_through(250)
        before = vacuums()
        for _ in range(5):
            mine.tick("default")
        assert (vacuums(), dead()) == (before + 1, 250)
        pass_through(250)
        mine.tick("default")
        assert (vacuums(), dead()) == (before + 2, 500)
    pass_through(500)
    mine.tick("default")
    assert (vacuums(), dead()) == (before + 3, 0)
