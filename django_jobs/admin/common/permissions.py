"""The permission that each change needs.  Every page needs `view_jobs`, every change its own one as well; arguments and
results are shown with `view_arguments`."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from django_jobs.conf import get_settings
from django_jobs.conf.authorizer import authorizer

VIEW = "view_jobs"
ARGUMENTS = "view_arguments"
PAUSE = "pause_queues"
WORKERS = "manage_workers"
SCHEDULES = "run_schedules"
ENQUEUE = "enqueue_jobs"
#: verb of operations.VERBS → permission.
VERBS = {
    "revive": "retry_jobs",
    "reschedule": "retry_jobs",
    "edit": "retry_jobs",
    "cancel": "delete_jobs",
    "kill": "delete_jobs",
    "delete": "delete_jobs",
}


def may(request: HttpRequest, permission: str) -> bool:
    """Return whether this request may do what `permission` allows: "view_jobs", or "add_schedule" of a model.

    DJANGO_JOBS["CONSOLE"]["AUTHORIZER"] decides, or else the user's `has_perm`.  Raises ImproperlyConfigured if the
    authorizer answers neither True nor False, because anything else may be true by accident."""
    name = f"django_jobs.{permission}"
    path = get_settings().console.get("AUTHORIZER")
    if path is None:
        return getattr(request.user, "is_active", True) and has_perm(request.user, name)
    answer = authorizer("CONSOLE", path)(request, name)
    if not isinstance(answer, bool):
        raise ImproperlyConfigured(f"{path} returned a value of type {type(answer).__name__}, not True or False.")
    return answer


def has_perm(user: Any, name: str) -> bool:
    """Ask a user of any model.  What `has_perm` takes besides the name, such as the object, is None here.  A user
    without the method may do nothing."""
    if not hasattr(user, "has_perm"):
        return False
    needed = [
        each for each in list(signature(user.has_perm).parameters.values())[1:] if each.default is Parameter.empty
    ]
    more = [None for each in needed if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    named = {each.name: None for each in needed if each.kind is Parameter.KEYWORD_ONLY}
    return bool(user.has_perm(name, *more, **named))


def user_name(request: HttpRequest) -> str:
    """Return how the history names whoever sent this request; a project with an authorizer may have no users."""
    user: Any = request.user
    return (user.get_username() if hasattr(user, "get_username") else "") or str(user)
