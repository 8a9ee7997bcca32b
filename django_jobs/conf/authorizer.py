"""AUTHORIZER of DJANGO_JOBS["API"] and of ["CONSOLE"] as a callable, and who needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from inspect import isclass, iscoroutinefunction, signature
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

#: What the authorizer of each part of the settings is called with.
ARGUMENTS = {"API": ("request",), "CONSOLE": ("request", "permission")}


@lru_cache(maxsize=8)
def authorizer(part: str, path: str) -> Callable[..., Any]:
    """Return what the path names: a function, or the method `authorize` of an object or of a class, made once.

    Raises ImportError, ImproperlyConfigured, or any error that its module or its class raises.
    """
    found = import_string(path)
    if isclass(found) and hasattr(found, "authorize"):
        found = found()
    asked = getattr(found, "authorize", None if isclass(found) else found)
    if not callable(asked):
        raise ImproperlyConfigured(f"{found!r:.100} is neither callable nor a class with a method authorize")
    if iscoroutinefunction(asked):
        raise ImproperlyConfigured(f"{found!r:.100} is async, and its answer is not awaited")
    try:
        signature(asked).bind(*ARGUMENTS[part])
    except TypeError as error:
        given = ", ".join(ARGUMENTS[part])
        raise ImproperlyConfigured(f"{found!r:.100} cannot be called with ({given}): {error}") from error
    except ValueError:  # some callables of C have no signature
        pass
    return asked  # type: ignore[no-any-return]


def console_warnings(raw: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """W011: can anybody see the console without an AUTHORIZER?"""
    if apps.is_installed("django.contrib.admin") and not raw.get("CONSOLE"):
        user = get_user_model()
        if not hasattr(user, "has_perm"):
            text = f"Nobody may see the console: users ({user._meta.label}) have no method has_perm."
            hint = (
                "Give them one, as PermissionsMixin does, or name a function in DJANGO_JOBS['CONSOLE']['AUTHORIZER']."
            )
            yield Warning(text, hint=hint, id="django_jobs.W011")
