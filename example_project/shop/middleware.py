"""Middleware around every enqueue and every run of this shop's jobs."""

from __future__ import annotations

import logging
from functools import partial
from time import monotonic
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import transaction
from django.utils.decorators import sync_and_async_middleware

from django_jobs import JobHandle
from shop.models import SentJob

logger = logging.getLogger("shop.jobs")
SLOW = 2.0


@sync_and_async_middleware
def log_slow_jobs(get_next: Any) -> Any:
    """Warn of attempts that took longer than SLOW seconds.  Works with sync and async jobs, as Django's does."""

    def note(job: Any, start: float) -> None:
        if (took := monotonic() - start) > SLOW:
            logger.warning("%s took %.1f s", job.name, took)

    if iscoroutinefunction(get_next):

        async def middleware(job: Any) -> Any:
            start = monotonic()
            try:
                return await get_next(job)
            finally:
                note(job, start)
    else:

        def middleware(job: Any) -> Any:
            start = monotonic()
            try:
                return get_next(job)
            finally:
                note(job, start)

    return middleware


def remember_job(get_next: Any) -> Any:
    """Keep a row for each stored job, so that pages can find it.

    Inside atomic() a job is stored at the commit, so the row is written after it: then the handle knows whether an
    equal unique job was already waiting.
    """

    def middleware(new: Any) -> Any:
        handle = get_next(new)
        transaction.on_commit(partial(keep, handle))
        return handle

    return middleware


def keep(handle: JobHandle) -> None:
    """Write the row, unless the job was not stored."""
    if handle.state not in ("duplicate", "full"):
        SentJob.objects.get_or_create(job_id=handle.id, defaults={"queue": handle.queue, "name": handle.name})
