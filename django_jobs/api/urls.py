"""The URLs of the API: `path("jobs/", include("django_jobs.api.urls"))`."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, re_path
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.parser import Parser

from django_jobs.api.common.principal import authenticate
from django_jobs.api.common.problems import answer_for
from django_jobs.api.common.request_guard import guarded, nothing_here
from django_jobs.api.common.schemas import ProblemDocument
from django_jobs.api.endpoints import bulk, history, numbers, queues, schedules, types, work, workers, workflows
from django_jobs.conf import get_settings
from django_jobs.stores import maker_of

VERSION = "1"
OPENAPI = "v1/openapi.json"
#: The name of the only address that answers without a token.
HEALTH = "healthz"


class StrictParser(Parser):
    """JSON as in RFC 8259: without NaN and Infinity."""

    def parse_body(self, request: HttpRequest) -> Any:
        return json.loads(request.body, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


def make_api() -> NinjaAPI:
    """Return the API with all endpoints and one error handler."""
    api = NinjaAPI(
        title="django_jobs",
        version=VERSION,
        description="Enqueue, watch and run jobs. Errors are application/problem+json.",
        openapi_url=None,
        docs_url=None,
        urls_namespace="django_jobs_api",
        auth=authenticate,
        parser=StrictParser(),
    )
    for router in (bulk.router, work.router, types.router, queues.router, schedules.router, history.router):
        api.add_router("", router)
    api.add_router("", workflows.router)
    api.add_router("", numbers.router)
    api.add_router("", workers.router)
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
    """Add what ninja cannot know: how callers authenticate, and the form of errors."""
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
            if not address.endswith("/healthz"):
                operation["security"] = [{"bearer": []}, {"basic": []}]
            if address.endswith("/metrics"):
                operation["responses"][200] = {"description": "OK", "content": {"text/plain": {}}}
    return document


def _guarded_patterns() -> list[URLPattern]:
    patterns: list[Any] = api.urls[0]
    for pattern in patterns:
        pattern.callback = guarded(pattern.callback, is_open=pattern.name == HEALTH)
    return patterns


urlpatterns: list[URLPattern] = [
    path(OPENAPI, guarded(openapi), name="openapi"),
    *(pattern for pattern in _guarded_patterns() if pattern.name != "api-root"),
    re_path("", guarded(nothing_here, is_open=True)),
]
