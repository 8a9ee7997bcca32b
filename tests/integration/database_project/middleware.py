"""A middleware that cannot run on an event loop, and uses the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections

from django_jobs import RunningJob


def sync_only(get_response: Callable[[RunningJob], Any]) -> Callable[[RunningJob], Any]:
    def call(job: RunningJob) -> Any:
        connections[job.args[0]].ensure_connection()
        return get_response(job)

    return call
