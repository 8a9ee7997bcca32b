"""EAGER mode: a job runs where it is enqueued, at once, in a store of its own that ends with it."""

from __future__ import annotations

from dataclasses import replace

from django_jobs.conf import get_settings
from django_jobs.core.values import Lane, NewJob
from django_jobs.enqueue.handle import JobHandle
from django_jobs.execution.executor import Executor
from django_jobs.stores import make_store

#: Nobody else can see the store, so nobody can take the claim.
_LEASE_MS = 86_400_000


def run(new: NewJob, handle: JobHandle) -> None:
    """Run one job now, whatever its time; the handle shows how it ended.

    One attempt is made: a job that failed stays in retry (or dead), its error on the handle and in the log.
    """
    store = make_store(replace(get_settings(), store="memory"))
    store.enqueue(handle.queue, [new._replace(run_at=0, run_in=None)])
    lane = Lane.ALONE if new.controls.alone or new.controls.at_most_once else Lane.SHARED
    for claim in store.claim(handle.queue, "eager", 1, lane=lane, lease=_LEASE_MS).claims:
        Executor(close_connections=False).run(claim, store)
    if (info := store.get(handle.queue, handle.id)) is not None:
        handle.show(info, final=True)
    store.close()
