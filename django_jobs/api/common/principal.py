"""The caller and its rights: none, unless DJANGO_JOBS["API"] is set and a token or your authorizer grants them."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import Error as DatabaseFault
from django.db import router
from django.http import HttpRequest
from django.utils import timezone
from ninja.utils import check_csrf

from django_jobs.api.common.problems import Kind, Problem
from django_jobs.conf import get_settings
from django_jobs.conf.authorizer import authorizer
from django_jobs.core import registry
from django_jobs.models import ApiToken
from django_jobs.models.token import Scope
from django_jobs.runtime.per_minute import counted
from django_jobs.runtime.savepoint import savepoint

__all__ = ["Principal", "Scope", "authenticate", "caller", "require"]

logger = logging.getLogger("django_jobs.api")
#: `last_used_at` is updated this often: a write for every request would be its most expensive part.
USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller.  `scopes` as on tokens; `jobs` are the job names it may use, empty = all that the API offers.

    `by_header`: it authenticated by a header that browsers do not send by themselves, so no CSRF token is required.
    """

    name: str
    scopes: frozenset[str]
    jobs: frozenset[str] = field(default=frozenset())
    by_header: bool = False

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def knows(self, job: str) -> bool:
        """Return whether the caller may use jobs with that name.  A type that was renamed keeps its callers."""
        return not self.jobs or not self.jobs.isdisjoint(registry.names_of(job))


def api_settings() -> Mapping[str, Any]:
    """Return DJANGO_JOBS["API"].  Raises Problem 403 if it is not set."""
    api = get_settings().api
    if api is None:
        raise Problem(Kind.NOT_SET_UP, "The HTTP API is off. Set DJANGO_JOBS['API']; {} allows callers with a token.")
    return api


def authenticate(request: HttpRequest) -> Principal:
    """Return the caller.  Raises Problem 401 (unknown) or 403.  This is the `auth` of every endpoint but healthz.

    It is asked twice in a request, before its body is read and by ninja: the second time it remembers."""
    found: Principal | None = getattr(request, "_jobs_caller", None)
    return found if found is not None else _identify(request, is_new=True)


def authenticate_again(request: HttpRequest) -> None:
    """Do the same after a call has waited: its token may have been revoked or limited meanwhile.  The call is still one
    request, and counts once."""
    request.auth = _identify(request, is_new=False)  # type: ignore[attr-defined]


def _identify(request: HttpRequest, *, is_new: bool) -> Principal:
    path = api_settings().get("AUTHORIZER")
    principal: Principal | None = authorizer("API", path)(request) if path else _by_token(request, is_new=is_new)
    if principal is None:
        raise Problem(
            Kind.NOT_AUTHENTICATED, "Send 'Authorization: Bearer <token>', or Basic with the token as password."
        )
    # Other callers authenticated by something that a browser may send by itself, such as a session.
    if not principal.by_header and check_csrf(request) is not None:
        raise Problem(Kind.CSRF_FAILED, "The CSRF check failed. A caller with a session needs a CSRF token.")
    request._jobs_caller = principal  # type: ignore[attr-defined]
    return principal


def caller(request: HttpRequest) -> Principal:
    """Return the principal that `authenticate` found."""
    return request.auth  # type: ignore[attr-defined,no-any-return]


def require(request: HttpRequest, *scopes: str, job: str | None = None) -> Principal:
    """Return the caller if it has one of these scopes and may use `job`.  Raises Problem 403."""
    principal = caller(request)
    if not any(principal.may(scope) for scope in scopes):
        raise Problem(Kind.SCOPE_MISSING, f"This needs the scope {' or '.join(map(repr, map(str, scopes)))}.")
    if job is not None:
        check_known(principal, job)
    return principal


def check_known(principal: Principal, job: str) -> None:
    """Raise Problem 403 if the caller may not use this job type."""
    if not principal.knows(job):
        raise Problem(Kind.JOB_NOT_ALLOWED, f"{principal.name!r} may not use jobs named {job!r}.")


def _by_token(request: HttpRequest, *, is_new: bool) -> Principal | None:
    for secret in _secrets(request.headers.get("Authorization", "")):
        token = ApiToken.objects.with_secret(secret)
        if token is not None:
            if is_new:
                note_use(token)
                check_rate(token)
            return Principal(token.name, frozenset(token.scopes), frozenset(token.jobs), by_header=True)
    return None


def require_all_jobs(request: HttpRequest, *scopes: str) -> Principal:
    """Do `require` for a call that concerns all job types: a caller that is limited to some gets a Problem 403."""
    principal = require(request, *scopes)
    if principal.jobs:
        raise Problem(
            Kind.JOB_NOT_ALLOWED, f"{principal.name!r} may deal only with some job types, and this concerns all."
        )
    return principal


def note_use(token: ApiToken) -> None:
    """Write when the token was used.  The request does not depend on it: the database may be a read-only copy."""
    now, using = timezone.now(), router.db_for_write(ApiToken)
    if token.last_used_at is None or now - token.last_used_at > USED_EVERY:
        try:
            with savepoint(using):
                ApiToken.objects.using(using).filter(pk=token.pk).update(last_used_at=now)
        except DatabaseFault as error:
            logger.info("The use of the token %r cannot be noted: %s", token.name, error)


def check_rate(token: ApiToken) -> None:
    """Raise Problem 429 for a token that has made its requests of this minute."""
    beyond, seconds = counted(f"{token.pk}", token.per_minute)
    if beyond:
        detail = f"{token.name!r} may make {token.per_minute} requests a minute. Try again in {seconds} s."
        raise Problem(Kind.TOO_MANY, detail, retry_after=seconds)


def _secrets(header: str) -> list[str]:
    """Return possible tokens in an Authorization header.  Basic: password, or user without password (`curl -u T:`)."""
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return [value]
    if scheme.lower() == "basic":
        try:
            user, _, password = b64decode(value, validate=True).decode().partition(":")
        except ValueError:  # not base64, not ASCII, or not UTF-8
            return []
        return [secret for secret in (password or user,) if secret]
    return []
