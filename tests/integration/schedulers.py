"""What the tests of periodic jobs share: a job, a clock that is set, schedules, and what was enqueued."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from django.test import override_settings

from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Completed, Lane
from django_jobs.signals import job_enqueued
from django_jobs.stores import get_store, use_store

START = datetime(2026, 11, 20, 10, 0, 30, tzinfo=UTC)


def tick_job(*args, **kwargs):
    """What every schedule here runs."""


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.fixture(autouse=True)
def known_job():
    registry.register(JobDefinition(tick_job, name="tests.tick"))
    yield
    registry.unregister("tests.tick")


@pytest.fixture
def use(clock):
    """Put a store in use at START."""

    def put(store):
        use_store(store)
        clock.now = ms(START)
        return store

    return put


@pytest.fixture
def at(clock):
    def go(moment: datetime) -> None:
        clock.now = ms(moment)

    return go


@pytest.fixture
def enqueued():
    """The ids of the jobs that were added, in order."""
    ids: list[str] = []

    def receive(job_id, **_):
        ids.append(job_id)

    job_enqueued.connect(receive)
    yield ids
    job_enqueued.disconnect(receive)


def run_times(ids: list[str]) -> list[datetime]:
    return [datetime.fromtimestamp(int(id.rpartition(":")[2]) / 1000, UTC) for id in ids]


@contextmanager
def settled(settings):
    """DJANGO_JOBS for a while, on the store that is in use: a change of settings would close it."""
    store = get_store()
    use_store(None)
    with override_settings(DJANGO_JOBS={"STORE": "memory", **settings}):
        use_store(store)
        try:
            yield
        finally:
            use_store(None)
    use_store(store)


def scheduled(**entries):
    """SCHEDULES with these entries of the job of this module."""
    return settled({"SCHEDULES": {key: {"job": "tests.tick", **entry} for key, entry in entries.items()}})


def finish_all(store):
    """Run everything that waits."""
    while claims := store.claim("default", "w", 100, lane=Lane.SHARED, lease=60_000).claims:
        store.complete("default", [Completed(claim) for claim in claims])
