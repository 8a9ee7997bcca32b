"""EAGER mode: a job runs at once in the process that enqueues it, in a temporary store of its own."""

from __future__ import annotations

from dataclasses import replace

from django_jobs.conf import get_settings
from django_jobs.core.values import Lane, NewJob
from django_jobs.enqueue.handle import JobHandle
from django_jobs.execution.executor import Executor
from django_jobs.stores import make_store

#: No other process sees the store, so none can take the claim: any long lease will do.
_LEASE_MS = 86_400_000


def run(new: NewJob, handle: JobHandle) -> None:
    """Run one job now, even if it is due later.  `handle` then shows how it ended.

    Only one attempt is made: a failed job stays in retry (or dead), with its error on the handle and in the log.
    """
    store = make_store(replace(get_settings(), store="memory"))
    store.enqueue(handle.queue, [new._replace(run_at=0, run_in=None)])
    lane = Lane.ALONE if new.controls.alone or new.controls.at_most_once else Lane.SHARED
    for claim in store.claim(handle.queue, "eager", 1, lane=lane, lease=_LEASE_MS).claims:
        Executor(close_connections=False).run(claim, store)
    if (info := store.get(handle.queue, handle.id)) is not None:
        handle.show(info, final=True)
    store.close()
