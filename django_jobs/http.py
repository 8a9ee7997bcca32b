"""Django middleware that answers a full queue with 503 and Retry-After, so that the client tries again later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _

from django_jobs.exceptions import QueueFull

#: Seconds: long enough for some jobs to run, short enough for a person to wait.
RETRY_AFTER = 5


class QueueFullMiddleware:
    """Answers 503 with Retry-After where a view raises QueueFull.  Works in WSGI and ASGI projects.

    With ATOMIC_REQUESTS, a job that a view enqueues is sent after the commit.  If the queue is full then, what the view
    saved stays saved, the job is not enqueued, and the answer is 503 nevertheless.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Django calls this for errors raised by a view or by the commit of its transaction."""
        if not isinstance(error, QueueFull):
            return None
        return HttpResponse(
            _("Too many jobs are waiting. Please try again in a moment."),
            status=503,
            content_type="text/plain; charset=utf-8",
            headers={"Retry-After": str(RETRY_AFTER)},
        )
