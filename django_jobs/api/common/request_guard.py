"""Checks of every request before an endpoint sees it, and headers of every answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.handlers.wsgi import WSGIRequest
from django.db import transaction
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from django_jobs.api.common.principal import api_settings, authenticate
from django_jobs.api.common.problems import Kind, Problem, answer_for, problem

#: Maximum bytes of a request's body.
MAX_BODY = 262_144
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})

View = Callable[..., HttpResponseBase]


def guarded(view: View, *, is_open: bool = False) -> View:
    """Wrap a view: check settings, https, the caller, size and type of the body; add headers; answer errors as
    problems.  `is_open`: anybody may call it, and its body is not read."""

    @wraps(view)
    def guard(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        is_head = request.method == "HEAD"
        if is_head:  # as GET, without the body
            request.method = "GET"
        try:
            check_settings(request)
            if not is_open:
                # Before the body is read: a client without a token that sends a body slowly must not occupy a thread.
                authenticate(request)
                read_body(request)
            response = view(request, *args, **kwargs)
        except Exception as error:
            response = answer_for(request, error)
        if response.status_code == 405 and response.get("Content-Type", "").startswith("text/html"):
            response = problem(
                Kind.METHOD_NOT_ALLOWED,
                f"{request.method} is not allowed for this address.",
                {"Allow": response["Allow"]},
            )
        if is_head and isinstance(response, HttpResponse):
            request.method = "HEAD"
            response["Content-Length"] = str(len(response.content))
            response.content = b""
        response["Cache-Control"] = "no-store"
        response["X-Content-Type-Options"] = "nosniff"
        return response

    # The API has its own authentication: a project-wide login does not apply, CSRF is checked if no token is sent, and
    # an accepted job must not depend on the commit of a request.
    return login_not_required(csrf_exempt(transaction.non_atomic_requests(guard)))


def check_settings(request: HttpRequest) -> None:
    """Raise Problem if the API is not set up, or not for such requests."""
    if api_settings().get("REQUIRE_HTTPS") and not request.is_secure():
        raise Problem(Kind.HTTPS_REQUIRED, "This API answers https only. Behind a proxy, set SECURE_PROXY_SSL_HEADER.")


def read_body(request: HttpRequest) -> None:
    """Read the body, all of it: an action whose body is lost in part could do more than was asked for.

    Raises Problem for bodies that no endpoint accepts."""
    if request.method not in METHODS_WITH_BODY:
        return
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or len(length) > 18:
        raise Problem(Kind.BAD_REQUEST, "Content-Length is not a number.")
    if int(length) == 0:
        read_chunks(request)
    if int(length) > MAX_BODY or len(request.body) > MAX_BODY:
        raise Problem(Kind.TOO_LARGE, f"A body may have at most {MAX_BODY} bytes. Store the data and send its address.")
    if not request.body:
        return
    if request.method == "DELETE":
        raise Problem(Kind.BAD_REQUEST, "DELETE takes no body here: it would have no effect.")
    if request.content_type != "application/json":
        raise Problem(Kind.NOT_JSON, f"Send application/json, not {request.content_type or 'nothing'!r:.100}.")


def read_chunks(request: HttpRequest) -> None:
    """Read a body that came in chunks.  Under WSGI, Django takes a body without Content-Length for empty, whatever the
    server has read.  Raises Problem 411 if the server does not say where the body ends."""
    if not isinstance(request, WSGIRequest) or "chunked" not in request.headers.get("Transfer-Encoding", "").lower():
        return
    if not request.environ.get("wsgi.input_terminated"):
        raise Problem(Kind.LENGTH_REQUIRED, "This server cannot read chunks: send Content-Length.")
    body, stream = b"", request.environ["wsgi.input"]
    try:
        while len(body) <= MAX_BODY and (some := stream.read(MAX_BODY + 1 - len(body))):
            body += some
    except Exception as error:  # each server has classes of its own for chunks that it cannot read
        raise UnreadablePostError(*error.args) from error
    request._body = body  # where Django keeps a body that has been read


def nothing_here(request: HttpRequest, **_: Any) -> HttpResponse:
    """Answer every other path below the API's address with 404."""
    raise Problem(Kind.NO_ADDRESS, f"The address {request.path!r:.200} does not exist. See v1/openapi.json.")
