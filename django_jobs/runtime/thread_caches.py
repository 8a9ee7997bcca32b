"""Django's caches on a thread that runs jobs."""

from __future__ import annotations

from contextlib import suppress
from threading import local

from django.core.cache import caches


class _Thread(local):
    is_warm = False


this_thread = _Thread()


def warm_caches() -> None:
    """Make Django's caches for this thread.  Django keeps them per context: caches made before the jobs' own contexts
    serve all jobs of the thread, with their connections."""
    this_thread.is_warm = True
    for alias in caches:
        # A wrongly configured cache raises its error later, in the job that uses it.
        with suppress(Exception):
            caches[alias]
