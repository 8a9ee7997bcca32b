"""Middleware: callables around every job, in the form of Django's (`def m(get_next): def layer(job): …`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.utils.module_loading import import_string

__all__ = ["Handler", "Middleware", "build", "is_async_capable", "load", "try_out", "wrap"]

#: Takes a RunningJob; returns what the job returned (or an awaitable of it, in an async chain).
Handler = Callable[[Any], Any]
Middleware = Callable[[Handler], Handler]


def load(paths: Iterable[str]) -> tuple[Middleware, ...]:
    """Import middleware by dotted path, outermost first.  Raises ImproperlyConfigured naming the wrong one."""
    return tuple(_load(path) for path in paths)


def _load(path: str) -> Middleware:
    try:
        middleware = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"DJANGO_JOBS middleware {path!r} cannot be imported: {error}") from error
    if not callable(middleware):
        raise ImproperlyConfigured(f"DJANGO_JOBS middleware {path!r} is not callable: it must take get_next.")
    if not getattr(middleware, "sync_capable", True):
        raise ImproperlyConfigured(
            f"DJANGO_JOBS middleware {path!r} works only for async jobs, so other jobs would run without it. "
            "Make it work for both with django.utils.decorators.sync_and_async_middleware."
        )
    loaded: Middleware = middleware
    return loaded


def is_async_capable(middleware: Iterable[Middleware]) -> bool:
    """Return whether all can run on the event loop.  As in Django, they declare it with `async_capable = True`."""
    return all(getattr(layer, "async_capable", False) for layer in middleware)


def wrap(handler: Handler, middleware: Iterable[Middleware]) -> Handler:
    """Nest `middleware` (outermost first) around `handler`.

    One that raises MiddlewareNotUsed is left out.  Raises ImproperlyConfigured if one does not return a callable.
    """
    for layer in reversed(tuple(middleware)):
        try:
            made = layer(handler)
        except MiddlewareNotUsed:
            continue  # as Django does
        if not callable(made):
            raise ImproperlyConfigured(
                f"The middleware {name_of(layer)} returned {made!r} instead of a callable that takes a job: "
                "is a `return` missing?"
            )
        handler = made
    return handler


def build(paths: Iterable[str]) -> None:
    """Make each middleware once, around a function that does nothing.

    Raises ImproperlyConfigured naming the one that cannot be made: otherwise every job would fail."""
    for path in paths:
        try_out(path, _load(path))


def try_out(path: str, layer: Middleware) -> None:
    """Make one middleware.  Raises ImproperlyConfigured if that fails."""
    try:
        wrap(_nothing, [layer])
    except ImproperlyConfigured:
        raise
    except Exception as error:
        raise ImproperlyConfigured(f"The middleware {path} cannot be made: {type(error).__name__}: {error}") from error


def name_of(layer: Middleware) -> str:
    """Return its dotted path, as far as known."""
    name = getattr(layer, "__qualname__", None)
    return f"{layer.__module__}.{name}" if name else repr(layer)


def _nothing(job: Any) -> None: ...
