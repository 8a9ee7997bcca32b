"""The API's errors as application/problem+json (RFC 9457): their kinds, and the kind of each exception."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import DataError
from django.db import Error as DatabaseFault
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from ninja.errors import HttpError, ValidationError

from django_jobs import exceptions

logger = logging.getLogger("django_jobs.api")

#: Seconds after which a client may try again when the store is unreachable or a queue is full.
RETRY_AFTER = 5
#: What every `type` begins with.  A URN: nothing has to be served there, and it never changes.
TYPES = "urn:problem-type:django-jobs:"


class Kind(Enum):
    """The kinds of errors, for clients: the end of `type`, the status, and the title.  No kind is ever renamed."""

    BAD_REQUEST = "bad-request", 400, "The request cannot be read"
    NOT_AUTHENTICATED = "not-authenticated", 401, "No token, or none that is valid"
    NOT_SET_UP = "not-set-up", 403, "The API is not set up"
    HTTPS_REQUIRED = "https-required", 403, "Only https is answered"
    CSRF_FAILED = "csrf-failed", 403, "The CSRF check failed"
    SCOPE_MISSING = "scope-missing", 403, "The token does not have this scope"
    JOB_NOT_ALLOWED = "job-not-allowed", 403, "The token is for other job types"
    NO_ADDRESS = "no-address", 404, "There is nothing at this address"
    NO_JOB = "no-job", 404, "There is no such job"
    NO_JOB_TYPE = "no-job-type", 404, "There is no such job type"
    NO_QUEUE = "no-queue", 404, "There is no such queue"
    NO_SCHEDULE = "no-schedule", 404, "There is no such schedule"
    NO_WORKFLOW = "no-workflow", 404, "There is no such workflow"
    NO_WORKER = "no-worker", 404, "There is no such worker"
    NO_ENTRY = "no-entry", 404, "There is no such entry in the outbox"
    NO_OPERATION = "no-operation", 404, "There is no such bulk operation"
    NO_ARCHIVE = "no-archive", 404, "There is no archive"
    METHOD_NOT_ALLOWED = "method-not-allowed", 405, "The address does not support the method"
    ID_USED = "id-used", 409, "The id belongs to another job"
    KEY_USED = "key-used", 409, "An equal job waits already"
    NAME_USED = "name-used", 409, "The name belongs to another job type"
    HAS_CREDENTIALS = "has-credentials", 409, "The job type has credentials, which belong to its URL"
    ATTEMPT_OVER = "attempt-over", 409, "The attempt is over"
    JOB_ENDED = "job-ended", 409, "The job has ended otherwise"
    JOB_RUNS = "job-runs", 409, "The job runs, or has run"
    JOB_MOVED = "job-moved", 409, "Others change the job at this moment"
    END_DIFFERS = "end-differs", 409, "The job has ended again"
    MAY_HAVE_STARTED = "may-have-started", 409, "The job may have been started, and is delivered at most once"
    MAY_RUN_TWICE = "may-run-twice", 409, "The entry may have been sent, and would run twice"
    ARCHIVED = "archived", 409, "The job is in the archive"
    UNREADABLE = "unreadable", 409, "The record of the job cannot be read"
    NOT_REMOTE = "not-remote", 409, "The job type is not a remote one"
    NOTHING_TO_FETCH = "nothing-to-fetch", 409, "The queue has no job type that workers fetch"
    WORKFLOW_ENDED = "workflow-ended", 409, "The workflow has ended otherwise"
    SCHEDULE_INVALID = "schedule-invalid", 409, "The schedule cannot run"
    PREVIEW_DIFFERS = "preview-differs", 409, "The preview was of something else, or is too old"
    LENGTH_REQUIRED = "length-required", 411, "The server needs Content-Length"
    TOO_LARGE = "too-large", 413, "The body is too large"
    NOT_JSON = "not-json", 415, "The body is not application/json"
    INVALID = "invalid", 422, "Fields are missing or wrong"
    DATA_REFUSED = "data-refused", 422, "The job cannot have these arguments"
    TOO_MANY = "too-many-requests", 429, "The token has made its requests of this minute"
    FAULT = "fault", 500, "A fault of the server"
    QUEUE_FULL = "queue-full", 503, "The queue is full"
    STORE_AWAY = "store-away", 503, "The store cannot be used"
    DATABASE_AWAY = "database-away", 503, "The database cannot be used"

    def __init__(self, word: str, status: int, title: str) -> None:
        self.type, self.status, self.title = TYPES + word, status, title


class Problem(Exception):
    """Raised by an endpoint to answer with an error.  `more` are additional members of the document."""

    def __init__(self, kind: Kind, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.more = kind, detail, more


def document(kind: Kind, detail: str, **more: Any) -> dict[str, Any]:
    """Return the members of an error."""
    return {"type": kind.type, "title": kind.title, "status": kind.status, "detail": detail, **more}


def problem(kind: Kind, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> HttpResponse:
    content = json.dumps(document(kind, detail, **more), default=str)
    return HttpResponse(
        content, status=kind.status, content_type="application/problem+json", headers=dict(headers or {})
    )


def refuses(*kinds: Kind) -> dict[str, Any]:
    """Return the description of a call's 409: the types that it may have.  For `openapi_extra`."""
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/Problem"},
            {"properties": {"type": {"enum": [kind.type for kind in kinds]}}},
        ]
    }
    text = "; ".join(f"{kind.title} (`{kind.type.removeprefix(TYPES)}`)" for kind in kinds)
    return {"responses": {409: {"description": text, "content": {"application/problem+json": {"schema": schema}}}}}


#: The first match counts, so subclasses come before their base.  The text of an exception may be shown, except for 503.
KINDS: tuple[tuple[type[Exception], Kind], ...] = (
    (exceptions.UnknownJob, Kind.NO_JOB_TYPE),
    (exceptions.UnknownQueue, Kind.NO_QUEUE),
    (exceptions.JobNotFound, Kind.NO_JOB),
    (exceptions.UnknownSchedule, Kind.NO_SCHEDULE),
    (exceptions.WorkflowNotFound, Kind.NO_WORKFLOW),
    (exceptions.JobMoved, Kind.JOB_RUNS),
    (exceptions.InvalidSchedule, Kind.SCHEDULE_INVALID),
    (exceptions.DuplicateJob, Kind.KEY_USED),
    (exceptions.StaleClaim, Kind.ATTEMPT_OVER),
    (exceptions.QueueFull, Kind.QUEUE_FULL),
    (exceptions.StoreError, Kind.STORE_AWAY),
    (exceptions.CorruptRecord, Kind.UNREADABLE),
    (exceptions.PayloadError, Kind.DATA_REFUSED),
    (exceptions.InvalidArguments, Kind.DATA_REFUSED),
    (exceptions.InvalidJob, Kind.DATA_REFUSED),
    (exceptions.InvalidQuery, Kind.INVALID),
)


def answer_for(request: HttpRequest, error: Exception) -> HttpResponse:
    read = as_problem(request, error)
    headers = {}
    if read.kind.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="jobs", Basic realm="jobs"'
    elif read.kind.status in (429, 503):
        headers["Retry-After"] = str(read.more.pop("retry_after", RETRY_AFTER))
    return problem(read.kind, read.detail, headers, **read.more)


def as_problem(request: HttpRequest, error: Exception) -> Problem:
    """Return an exception as a Problem.  Logs what is a fault of the server."""
    match error:
        case Problem():
            return error
        case ValidationError():
            return Problem(Kind.INVALID, "The request is not valid; `errors` lists what is wrong.", errors=error.errors)
        case HttpError():  # ninja raises it for a body that is no JSON
            return Problem(Kind.BAD_REQUEST, str(error))
        case RequestDataTooBig():
            return Problem(Kind.TOO_LARGE, str(error))
        case Http404():
            return Problem(Kind.NO_ADDRESS, "This address does not exist.")
        case UnreadablePostError() | SuspiciousOperation():
            return Problem(Kind.BAD_REQUEST, "The request could not be read completely.")
        case DataError():
            logger.warning("%s %s: the database refused a value: %s", request.method, request.path, error)
            return Problem(Kind.INVALID, "The database does not take a value of the request.")
        case DatabaseFault() | exceptions.NotKnownYet():  # also if it is read-only, or has no table
            # The reason, and which database it is, belong in the log and are not for clients.
            logger.error("The API could not use the database: %s", error)
            return Problem(Kind.DATABASE_AWAY, "The database cannot be used.")
    for exception, kind in KINDS:
        if isinstance(error, exception):
            if kind is Kind.STORE_AWAY:
                logger.error("The API could not use the store: %s", error)
                return Problem(kind, type(error).__doc__ or "The store failed.")
            return Problem(kind, str(error))
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    # Error reporters listen to this signal, because Django itself does not see the exception.
    got_request_exception.send(sender=None, request=request)
    return Problem(Kind.FAULT, "This is an error of the server. Its log has the details.")
