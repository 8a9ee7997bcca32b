"""DJANGO_JOBS["API"]["AUTHORIZER"] as an object, for the API and for the system check."""

from __future__ import annotations

from inspect import isclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string


def find_authorizer(path: str) -> Any:
    """Return what the path names: a function, a class with a method `authorize`, or an instance of one.

    Raises ImportError, ImproperlyConfigured, or any error that its module raises.
    """
    found = import_string(path)
    if not callable(getattr(found, "authorize", None if isclass(found) else found)):
        raise ImproperlyConfigured(f"{found!r:.100} is neither callable nor a class with a method authorize")
    return found
