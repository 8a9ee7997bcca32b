"""A database that stays away: each task of a worker says it once, and goes on by itself."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection

from django_jobs.schedules.rows import ScheduleRows
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.agenda import send_kept
from django_jobs.worker.maintenance.archiver import Archiver
from tests.conftest import Seconds

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.redis]


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_each_task_says_once_that_the_database_is_away(
    redis_store: Store, settings: Any, time: Seconds, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    settings.DJANGO_JOBS = {"STORE": "memory", "OUTBOX": True, "ARCHIVE": {}}
    use_store(redis_store)
    archiver, schedules, outbox = Archiver(redis_store, lambda: ["default"]), ScheduleRows(time), send_kept()

    def turn() -> None:
        time.now += 60
        archiver.pruned_at = None
        archiver.tick(), schedules.entries(), outbox()

    def refuse(*_: Any) -> None:
        raise error("nobody listens")

    for times in (1, 2):
        with connection.execute_wrapper(refuse):
            for _ in range(3):
                turn()
        said = [record.getMessage() for record in caplog.records if "nobody listens" in record.getMessage()]
        assert len(said) == 3 * times, said
        assert not any(record.exc_info for record in caplog.records)
        turn()
