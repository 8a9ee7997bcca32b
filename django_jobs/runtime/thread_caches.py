"""Django's caches on a thread that runs jobs."""

from __future__ import annotations

from contextlib import suppress
from threading import local

from django.core.cache import caches

_thread = local()


def warm_caches() -> None:
    """Django keeps its caches by context: made here, they and their connections serve every job of this thread."""
    if not getattr(_thread, "is_warm", False):
        _thread.is_warm = True
        for alias in caches:
            # One that is configured wrongly fails in the job that uses it.
            with suppress(Exception):
                caches[alias]
