"""How a process knows remote types: read now and then, never in the way."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.db import OperationalError

from django_jobs.core import registry
from django_jobs.exceptions import NotKnownYet, UnknownJob
from django_jobs.models import RemoteJobType
from django_jobs.remote import type_cache
from django_jobs.remote.job_types import RemoteType
from django_jobs.remote.type_cache import MISSED, REFRESH, Known
from tests.conftest import Seconds
from tests.integration.api.conftest import SETTINGS, Api


@pytest.fixture
def types(settings: Any, time: Seconds) -> Known:
    settings.DJANGO_JOBS = SETTINGS
    return Known(time)


def test_who_asks_during_the_first_read_waits_for_it(types: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go = Event(), Event()

    def read() -> list[RemoteType]:
        began.set()
        assert go.wait(60)
        return [RemoteType("php.x", "pull", "at_least_once", 3, 0, 60, "", "")]

    monkeypatch.setattr(type_cache, "read_rows", read)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(types.refresh)
        assert began.wait(60)
        second = threads.submit(types.refresh)
        go.set()
        assert list(second.result(60)) == list(first.result(60)) == ["php.x"]


def test_names_are_read_at_most_once_per_period(types: Known, time: Seconds, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        for _ in range(50):
            types.refresh()
    time.now = REFRESH
    with django_assert_num_queries(1):
        types.refresh()


def test_a_name_that_is_not_there_is_looked_up_at_once_and_then_with_the_others(
    types: Known, time: Seconds, django_assert_num_queries: Any
) -> None:
    """A job may come a moment after its type, and would be parked for a minute by an older reading."""
    types.refresh()
    assert types.definition_of("php.none") is None
    with django_assert_num_queries(0):
        for _ in range(50):
            assert types.definition_of("php.none") is None
    RemoteJobType.objects.create(name="php.late", queue="pull")
    assert types.definition_of("php.late") is not None
    for later in (REFRESH, MISSED + 1):
        time.now = later
        with django_assert_num_queries(1 if later == REFRESH else 2):
            types.definition_of("php.none")


def test_a_definition_is_the_same_object_until_its_row_changes(types: Known, time: Seconds) -> None:
    row = RemoteJobType.objects.create(name="php.x", queue="pull", attempts=2)
    first = types.definition_of("php.x")
    time.now += REFRESH
    assert types.definition_of("php.x") is first
    row.attempts = 7
    row.save()
    time.now += REFRESH
    second = types.definition_of("php.x")
    assert first is not None
    assert second is not None
    assert (first.max_attempts, second.max_attempts) == (2, 7)
    row.delete()
    time.now += REFRESH
    assert types.definition_of("php.x") is None
    assert types.definitions == {}


def test_a_database_that_is_away_leaves_what_was_known(
    types: Known, time: Seconds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    RemoteJobType.objects.create(name="php.x", queue="pull")
    assert types.definition_of("php.x")

    def away() -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(type_cache, "read_rows", away)
    for _ in range(3):
        time.now += REFRESH
        assert types.definition_of("php.x")
    assert types.pull_queues == {"pull"}
    assert caplog.text.count("gone") == 1
    with pytest.raises(NotKnownYet):
        types.definition_of("php.new")


def test_a_type_that_may_exist_while_the_rows_cannot_be_read_is_for_later(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(type_cache, "read_rows", away)
    answer = api.put("v1/jobs/php.perhaps/1")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")


@pytest.mark.django_db(transaction=True)
def test_an_event_loop_may_ask_too(types: Known) -> None:
    RemoteJobType.objects.create(name="php.x", queue="pull")

    async def ask() -> Any:
        return types.definition_of("php.x")

    assert asyncio.run(ask()) is not None


def test_without_the_api_no_name_costs_a_query(settings: Any, types: Known, django_assert_num_queries: Any) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "API": None}
    with django_assert_num_queries(0):
        assert types.definition_of("php.x") is None
        with pytest.raises(UnknownJob):
            registry.get("php.x")


@pytest.mark.accepts("K07")
def test_the_options_of_a_row_are_those_of_its_jobs(types: Known) -> None:
    RemoteJobType.objects.create(
        name="php.pay",
        queue="push",
        url="https://example.com/",
        delivery_strategy="at_most_once",
        attempts=5,
        concurrency=3,
    )
    definition = types.definition_of("php.pay")
    assert definition is not None
    assert (definition.queue, definition.delivery, definition.max_concurrency) == ("push", "at_most_once", 3)
    assert definition.stored_options.max_attempts == 1
    assert definition.stored_controls.at_most_once
    assert definition.api
