"""A full queue: refused, waited for, answered with 503, and what it means after a commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_jobs import QueueFull
from django_jobs.signals import job_expired
from django_jobs.stores import use_store
from tests.integration.stand_ins import work
from tests.integration.workers import WorkerSite
from tests.support.waiting import wait_until

BOUND = 5


def order() -> Any:
    """The job, for the bounded queue."""
    return work.using(queue="small")


def place(request: HttpRequest) -> HttpResponse:
    order().enqueue(0)
    return HttpResponse("accepted", status=202)


def place_if_there_is_room(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=202 if order().try_enqueue(0) else 429)


@transaction.atomic
def save_and_place(request: HttpRequest) -> HttpResponse:
    Group.objects.create(name=f"order {uuid4().hex}")
    order().enqueue(0)
    return HttpResponse("accepted", status=202)


urlpatterns = [path("place", place), path("try", place_if_there_is_room), path("save", save_and_place)]


@pytest.fixture
def make_site(redis_server: str, tmp_path: Path) -> Iterator[Callable[..., WorkerSite]]:
    """A site whose queue "small" takes five jobs; keyword arguments are further options of that queue."""
    made: list[WorkerSite] = []
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=["django_jobs.http.QueueFullMiddleware"]):

        def make(**options: object) -> WorkerSite:
            queues = {"default": {}, "small": {"MAX_LENGTH": BOUND, **options}}
            made.append(WorkerSite(tmp_path, redis_server, NAMESPACE=f"b{uuid4().hex[:10]}", QUEUES=queues))
            changed.enable()
            return made[-1]

        changed = _Settings(lambda: made[-1])
        yield make
        changed.disable()
    for site in made:
        site.close()


class _Settings:
    """This process enqueues to the store of the site, with its queues."""

    def __init__(self, site: Callable[[], WorkerSite]) -> None:
        self._site = site
        self._override: override_settings | None = None

    def enable(self) -> None:
        queues = self._site().jobs_settings["QUEUES"]
        self._override = override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": queues})
        self._override.enable()
        use_store(self._site().store)

    def disable(self) -> None:
        if self._override is not None:
            self._override.disable()


def waiting(site: WorkerSite) -> int:
    counts = site.store.stats(["small"])[0].counts
    return counts["queued"] + counts["blocked"]


@pytest.mark.accepts("O02", "O04", "O05", "O06")
def test_clients_of_a_full_queue_are_asked_to_come_again_and_served_when_there_is_room(
    make_site: Callable[..., WorkerSite],
) -> None:
    site, client = make_site(), Client()
    assert [client.post("/place").status_code for _ in range(BOUND)] == [202] * BOUND
    refused = client.post("/place")
    assert (refused.status_code, refused["Retry-After"]) == (503, "5")
    assert client.post("/try").status_code == 429
    assert waiting(site) == BOUND, "bounded, so the wait is bounded"

    pool = site.pool("--burst")
    assert pool.process.wait(60) == 0
    assert client.post("/place").status_code == 202
    assert client.post("/try").status_code == 202


def test_scheduled_jobs_do_not_count_until_they_are_due_and_are_never_refused(
    make_site: Callable[..., WorkerSite],
) -> None:
    site = make_site()
    for _ in range(2 * BOUND):
        order().enqueue_in(3600)
    for _ in range(BOUND):
        order().enqueue()
    assert order().try_enqueue() is None
    assert order().enqueue_in(60).state == "scheduled"
    assert waiting(site) == BOUND


def test_jobs_that_are_too_late_to_start_take_no_room(make_site: Callable[..., WorkerSite]) -> None:
    site, late = make_site(), []
    job_expired.connect(receiver := lambda **given: late.append(given["job_id"]))
    soon = datetime.now(UTC) + timedelta(seconds=2)
    handles = [order().using(expires_at=soon).enqueue() for _ in range(BOUND)]
    assert order().try_enqueue() is None
    wait_until(lambda: datetime.now(UTC) > soon + timedelta(milliseconds=5), "they are late")
    assert order().try_enqueue() is not None
    assert [handle.refresh().state for handle in handles] == ["expired"] * BOUND
    wait_until(lambda: sorted(late) == sorted(handle.id for handle in handles), "receivers are told")
    job_expired.disconnect(receiver)
    assert waiting(site) == 1


@pytest.mark.accepts("O03")
def test_a_blocked_producer_goes_on_at_the_pace_of_the_workers(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site(ON_FULL="block")
    number, longest = 60, [0]
    producer = Thread(target=lambda: [order().enqueue(5) for _ in range(number)])
    producer.start()
    wait_until(lambda: waiting(site) == BOUND, "the queue is full")
    assert producer.is_alive(), "it waits"
    pool = site.pool(threads=2)

    def everything_has_run() -> bool:
        longest[0] = max(longest[0], waiting(site))
        return site.ledger.count("end") == number

    wait_until(everything_has_run, "all have run", seconds=40)
    producer.join(60)
    assert not producer.is_alive()
    assert longest[0] <= BOUND
    assert pool.stop() == 0


@pytest.mark.accepts("O02", "O03", "O04")
def test_many_producers_at_once_never_put_more_into_it_than_it_takes(
    make_site: Callable[..., WorkerSite], tmp_path: Path
) -> None:
    """Processes of their own, whose views of "there is room" are all out of date; and workers that make some."""
    site, number, each = make_site(ON_FULL="block"), 4, 40
    producers = [site.producer() for _ in range(number)]
    for who, producer in enumerate(producers):
        producer.ask("work", [f"{who}-{n}" for n in range(each)], 2, queue="small")
    most = 0
    wait_until(lambda: waiting(site) == BOUND, "the queue is full")
    pool = site.pool(threads=2)

    def everything_has_run() -> bool:
        nonlocal most
        most = max(most, waiting(site))
        return site.ledger.count("end") == number * each

    wait_until(everything_has_run, "all have run", seconds=40, every=0.001)
    assert not any(producer.answer()["errors"] for producer in producers)
    assert most == BOUND
    assert pool.stop() == 0


def test_a_wait_for_room_ends_when_the_caller_says(make_site: Callable[..., WorkerSite]) -> None:
    make_site(ON_FULL="block")
    for _ in range(BOUND):
        order().enqueue()
    with pytest.raises(QueueFull, match=r"Queue 'small' is full .MAX_LENGTH is 5."):
        order().using(block_timeout=0.05).enqueue()


@pytest.mark.django_db(transaction=True)
def test_after_a_commit_the_data_stays_the_client_is_told_and_the_log_names_the_job(
    make_site: Callable[..., WorkerSite], caplog: pytest.LogCaptureFixture
) -> None:
    site, client = make_site(), Client()
    for _ in range(BOUND):
        assert client.post("/save").status_code == 202
    with caplog.at_level(logging.ERROR, logger="django_jobs"):
        refused = client.post("/save")
    assert (refused.status_code, refused["Retry-After"]) == (503, "5")
    assert Group.objects.count() == BOUND + 1, "what was committed is not undone"
    assert waiting(site) == BOUND
    assert "Not enqueued after the commit: 1 job. The first is work" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_job_refused_at_the_commit_keeps_none_behind_it_from_being_enqueued(
    make_site: Callable[..., WorkerSite],
) -> None:
    make_site()
    for _ in range(BOUND - 1):
        order().enqueue()
    handles = []

    @transaction.atomic
    def save() -> None:
        handles.extend([order().enqueue(), order().enqueue(), work.enqueue()])
        assert {handle.state for handle in handles} == {"deferred"}

    with pytest.raises(QueueFull):
        save()
    assert [handle.state for handle in handles] == ["queued", "full", "queued"]
    with transaction.atomic():
        quiet = order().try_enqueue()
    assert quiet is not None
    assert quiet.state == "full"
