"""The API's errors as application/problem+json (RFC 9457), and the status of each exception."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from ninja.errors import HttpError, ValidationError

from django_jobs import exceptions

logger = logging.getLogger("django_jobs.api")

#: Seconds after which a client may try again when the store is unreachable or a queue is full.
RETRY_AFTER = 5


class Problem(Exception):
    """Raised by an endpoint to answer with an error.  `more` are additional members of the document."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.more = status, detail, more


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> HttpResponse:
    """Return the answer.  `type` stays about:blank, so `title` is the phrase of the status (RFC 9457, 4.2.1)."""
    document = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    content = json.dumps(document, default=str)
    return HttpResponse(content, status=status, content_type="application/problem+json", headers=dict(headers or {}))


#: The first match counts, so subclasses come before their base.  None: the exception's text may be shown.
STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (exceptions.UnknownJob, 404),
    (exceptions.UnknownQueue, 404),
    (exceptions.JobNotFound, 404),
    (exceptions.UnknownSchedule, 404),
    (exceptions.JobMoved, 409),
    (exceptions.InvalidSchedule, 409),
    (exceptions.DuplicateJob, 409),
    (exceptions.StaleClaim, 409),
    (exceptions.QueueFull, 503),
    (exceptions.StoreError, 503),
    (exceptions.CorruptRecord, 409),
    (exceptions.PayloadError, 422),
    (exceptions.InvalidArguments, 422),
    (exceptions.InvalidJob, 422),
)


def answer_for(request: HttpRequest, error: Exception) -> HttpResponse:
    """Return the answer for an exception."""
    match error:
        case Problem():
            headers = {"WWW-Authenticate": 'Bearer realm="jobs", Basic realm="jobs"'} if error.status == 401 else None
            return problem(error.status, error.detail, headers, **error.more)
        case ValidationError():
            return problem(422, "The request is not valid; `errors` lists what is wrong.", errors=error.errors)
        case HttpError():
            return problem(error.status_code, str(error))
        case RequestDataTooBig():
            return problem(413, str(error))
        case Http404():
            return problem(404, "This address does not exist.")
        case UnreadablePostError() | SuspiciousOperation():
            return problem(400, "The request could not be read completely.")
        case OperationalError() | InterfaceError() | exceptions.NotKnownYet():
            # The reason, and which database it is, belong in the log and are not for clients.
            logger.error("The API could not reach the database: %s", error)
            return problem(503, "The database cannot be reached.", {"Retry-After": str(RETRY_AFTER)})
    for kind, status in STATUSES:
        if isinstance(error, kind):
            if status != 503:
                return problem(status, str(error))
            if not isinstance(error, exceptions.QueueFull):
                logger.error("The API could not use the store: %s", error)
            detail = (
                str(error) if isinstance(error, exceptions.QueueFull) else type(error).__doc__ or "The store failed."
            )
            return problem(503, detail, {"Retry-After": str(RETRY_AFTER)})
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    # Error reporters listen to this signal, because Django itself does not see the exception.
    got_request_exception.send(sender=None, request=request)
    return problem(500, "This is an error of the server. Its log has the details.")
