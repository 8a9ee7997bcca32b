"""Pages that enqueue: in a transaction that commits, in one that does not, and outside of any."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_jobs import JobHandle
from tests.integration.sample_jobs import receipt


def answer(*handles: JobHandle) -> HttpResponse:
    return JsonResponse({handle.id: str(handle.state) for handle in handles})


def plain(request: HttpRequest) -> HttpResponse:
    return answer(receipt.enqueue(7))


def commits(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        return answer(receipt.enqueue(7))


def fails(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        receipt.using(job_id="lost").enqueue(7)
        raise ValueError("too bad")


async def async_plain(request: HttpRequest) -> HttpResponse:
    return answer(receipt.enqueue(7), await receipt.aenqueue(8))


async def async_commits(request: HttpRequest) -> HttpResponse:
    return await sync_to_async(commits)(request)


async def async_fails(request: HttpRequest) -> HttpResponse:
    return await sync_to_async(fails)(request)


urlpatterns = [
    path("plain", plain),
    path("commits", commits),
    path("fails", fails),
    path("async-plain", async_plain),
    path("async-commits", async_commits),
    path("async-fails", async_fails),
]
