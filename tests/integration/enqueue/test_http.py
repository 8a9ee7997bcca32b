"""A full queue becomes 503 with Retry-After, in WSGI and in ASGI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

from django_jobs.testing import Jobs
from tests.integration.sample_jobs import receipt


def view(request: HttpRequest) -> HttpResponse:
    receipt.enqueue(7)
    return HttpResponse("accepted")


async def async_view(request: HttpRequest) -> HttpResponse:
    await receipt.aenqueue(7)
    return HttpResponse("accepted")


def atomic_view(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        receipt.enqueue(7)
    return HttpResponse("accepted")


def broken(request: HttpRequest) -> HttpResponse:
    raise LookupError("something else")


urlpatterns = [path("view", view), path("async", async_view), path("atomic", atomic_view), path("broken", broken)]


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    jobs: dict[str, Any] = {"STORE": "memory", "QUEUES": {"default": {"MAX_LENGTH": 1}}}
    middleware = ["django_jobs.http.QueueFullMiddleware"]
    with override_settings(DJANGO_JOBS=jobs, MIDDLEWARE=middleware, ROOT_URLCONF=__name__):
        yield


class TestFullQueue:
    @pytest.mark.accepts("O05", "O06")
    @pytest.mark.parametrize("address", ["/view", "/async"])
    def test_a_client_is_asked_to_come_again(self, jobs: Jobs, address: str) -> None:
        assert Client().get(address).status_code == 200
        response = Client().get(address)
        assert (response.status_code, response["Retry-After"]) == (503, "5")
        assert b"try again" in response.content

    @pytest.mark.django_db(transaction=True)
    def test_a_job_refused_after_the_commit_is_told_too(self, jobs: Jobs) -> None:
        assert Client().get("/atomic").status_code == 200
        assert Client().get("/atomic").status_code == 503

    def test_async_requests_are_answered_alike(self, jobs: Jobs) -> None:
        from asgiref.sync import async_to_sync

        async def requests() -> list[int]:
            client = AsyncClient()
            return [(await client.get(address)).status_code for address in ("/async", "/async", "/view")]

        assert async_to_sync(requests)() == [200, 503, 503]

    def test_other_errors_are_left_alone(self, jobs: Jobs) -> None:
        with pytest.raises(LookupError):
            Client().get("/broken")
