"""Celery's settings: `app.conf`, and what has the prefix CELERY_ in Django's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_jobs.compat.celery.missing import SETTINGS
from django_jobs.conf import get_settings

#: The settings that count, with Celery's defaults.
DEFAULTS: Mapping[str, Any] = {
    "beat_schedule": {},
    "broker_url": "",
    "imports": (),
    "include": (),
    "result_backend": None,
    "result_expires": 86_400,
    "task_acks_late": False,
    "task_always_eager": False,
    "task_default_priority": None,
    "task_default_queue": None,
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_reject_on_worker_lost": False,
    "task_routes": None,
    "task_soft_time_limit": None,
    "task_time_limit": None,
    "timezone": None,
}
#: Settings that have to be JSON, or lists of it.
CONTENT = ("task_serializer", "result_serializer", "accept_content", "result_accept_content", "event_serializer")
_JSON = frozenset({"json", "application/json"})


class Conf:
    """`app.conf`: what the project has set there, then Django's settings, then Celery's defaults."""

    def __init__(self) -> None:
        self.__dict__["_set"] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self._set:
            return self._set[name]
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(settings, f"CELERY_{name.upper()}", DEFAULTS.get(name))

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name, value)
        self._set[name] = value

    def update(self, *given: Mapping[str, Any], **more: Any) -> None:
        for name, value in {**dict(*given), **more}.items():
            setattr(self, name, value)

    def check(self) -> None:
        """Raise ImproperlyConfigured for a setting of Django's that cannot be kept."""
        for name in dir(settings):
            if name.startswith("CELERY_"):
                _check(name.removeprefix("CELERY_").lower(), getattr(settings, name))

    @property
    def is_eager(self) -> bool:
        """Whether tasks run where they are called."""
        return bool(self.task_always_eager) or get_settings().eager

    @property
    def propagates(self) -> bool:
        """Whether their errors are raised there."""
        return bool(self.task_eager_propagates) or get_settings().eager_propagates

    @property
    def keeps_results(self) -> float | None:
        """Seconds to keep a result; None = as HISTORY says.  Without a result backend, Celery keeps none."""
        expires = self.result_expires
        if not self.result_backend or not expires:
            return None
        return float(expires.total_seconds() if hasattr(expires, "total_seconds") else expires)

    @property
    def first_is_highest(self) -> bool:
        """Whether priority 0 is served first, as with Redis.  With RabbitMQ, the highest number is."""
        return "amqp" not in str(self.broker_url or "").partition("://")[0]


def _check(name: str, value: Any) -> None:
    if name in SETTINGS and value:
        raise ImproperlyConfigured(f"Celery's setting {name} is not kept. {SETTINGS[name]}")
    if name in CONTENT and value:
        asked = [value] if isinstance(value, str) else list(value)
        if wrong := [each for each in asked if each not in _JSON]:
            raise ImproperlyConfigured(
                f"Celery's setting {name} is {value!r}. Jobs are JSON with dates, decimals, UUIDs, bytes and model "
                f"instances; they are never {wrong[0]}. Remove the setting."
            )


conf = Conf()


# -- routes -----------------------------------------------------------------------------


def route(name: str, args: Any, kwargs: Any, options: Mapping[str, Any], task: Any) -> dict[str, Any]:
    """Return what task_routes says about a call: "queue" and "priority", or nothing.

    Raises ImproperlyConfigured for other options."""
    for router in _routers(conf.task_routes):
        found = router(name, args, kwargs, options, task=task) if callable(router) else _matching(router, name)
        if found:
            found = {"queue": found} if isinstance(found, str) else dict(found)
            if others := sorted(found.keys() - {"queue", "priority"}):
                raise ImproperlyConfigured(
                    f"task_routes gives {name} the option {others[0]!r}. Use only 'queue' and 'priority'."
                )
            return found
    return {}


def _routers(routes: Any) -> Iterator[Any]:
    for each in routes if isinstance(routes, list | tuple) else [routes]:
        if each is not None:
            yield import_string(each) if isinstance(each, str) else each


def _matching(routes: Mapping[Any, Any] | Iterable[tuple[Any, Any]], name: str) -> Any:
    pairs = list(routes.items() if isinstance(routes, Mapping) else routes)
    for pattern, found in pairs:
        if pattern == name:
            return found
    for pattern, found in pairs:
        if pattern.match(name) if isinstance(pattern, re.Pattern) else fnmatchcase(name, pattern):
            return found
    return None
