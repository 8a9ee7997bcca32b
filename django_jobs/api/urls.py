"""The URLs of the API: `path("jobs/", include("django_jobs.api.urls"))`."""

from __future__ import annotations

import json
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, re_path
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.operation import Operation
from ninja.parser import Parser

from django_jobs.api.common.principal import authenticate
from django_jobs.api.common.problems import answer_for
from django_jobs.api.common.request_guard import View, guarded, nothing_here
from django_jobs.api.common.schemas import ProblemDocument
from django_jobs.api.endpoints import (
    bulk,
    bulk_operations,
    history,
    numbers,
    outbox,
    queues,
    schedules,
    types,
    work,
    workers,
    workflows,
)
from django_jobs.conf import get_settings
from django_jobs.stores import maker_of

VERSION = "1"
OPENAPI = "v1/openapi.json"
#: The name of the only address that answers without a token.
HEALTH = "healthz"
#: Addresses that go with the next release → what has the same, or the same purpose.
DEPRECATED = {
    "v1/alarms": "v1/findings",
    "v1/tags": "v1/jobs",
    "v1/trend": "metrics",
    "v1/queues/{name}/trend": "metrics",
    "v1/job-types/{name}/trend": "metrics",
    "v1/workers/{name}/trend": "metrics",
}
#: Since when (RFC 9745).
DEPRECATED_AT = "@1795737600"


class StrictParser(Parser):
    """JSON as in RFC 8259: without NaN and Infinity."""

    def parse_body(self, request: HttpRequest) -> Any:
        return json.loads(request.body, parse_constant=_no_constant)


class Api(NinjaAPI):
    """Names operations in words: clients are generated from the document, and their functions have these names."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


def make_api() -> NinjaAPI:
    api = Api(
        title="django_jobs",
        version=VERSION,
        description="Enqueue, watch and run jobs. Errors are application/problem+json.",
        openapi_url=None,
        docs_url=None,
        urls_namespace="django_jobs_api",
        auth=authenticate,
        parser=StrictParser(),
    )
    for part in (
        bulk, bulk_operations, work, types, queues, schedules, history, outbox, workflows, numbers, workers
    ):  # fmt: skip
        api.add_router("", part.router)
    for kind in (Exception, HttpError, ValidationError):
        api.add_exception_handler(kind, answer_for)  # type: ignore[arg-type]
    return api


api = make_api()
# A process that serves the API needs the store: import it with the URLconf, not in the first request.
maker_of(get_settings())


def openapi(request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI document, to callers with any token."""
    authenticate(request)
    document = api.get_openapi_schema(path_prefix=request.path.removesuffix(OPENAPI))
    return HttpResponse(json.dumps(describe_errors(document)), content_type="application/json")


def describe_errors(document: dict[str, Any]) -> dict[str, Any]:
    """Add what ninja cannot know: how callers authenticate, the form of errors, and what goes."""
    schema = ProblemDocument.model_json_schema()
    document["components"]["schemas"]["Problem"] = schema
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "basic": {"type": "http", "scheme": "basic"},
    }
    error = {
        "description": "An error (RFC 9457)",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for address, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"]["default"] = error
            if any(address.endswith(f"/{each}") for each in DEPRECATED):
                operation["deprecated"] = True
            if not address.endswith("/healthz"):
                operation["security"] = [{"bearer": []}, {"basic": []}]
            if address.endswith("/metrics"):
                operation["responses"][200] = {"description": "OK", "content": {"text/plain": {}}}
    return document


def _guarded_patterns() -> list[URLPattern]:
    patterns: list[Any] = api.urls[0]
    for pattern in patterns:
        guard = guarded(pattern.callback, is_open=pattern.name == HEALTH)
        address = str(pattern.pattern).replace("<", "{").replace(">", "}")
        pattern.callback = announced(guard, address) if address in DEPRECATED else guard
    return patterns


def announced(view: View, address: str) -> View:
    """Wrap the view of a deprecated address: its answers say since when it is one, and what to use instead."""
    link = f'<{"../" * address.count("/")}{DEPRECATED[address]}>; rel="successor-version"'

    @wraps(view)
    def announce(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        response["Deprecation"], response["Link"] = DEPRECATED_AT, link
        return response

    return announce


urlpatterns: list[URLPattern] = [
    path(OPENAPI, guarded(openapi), name="openapi"),
    *(pattern for pattern in _guarded_patterns() if pattern.name != "api-root"),
    re_path("", guarded(nothing_here, is_open=True)),
]
