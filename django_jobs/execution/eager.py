"""EAGER mode: a job runs at once in the process that enqueues it, in a temporary store of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from django_jobs.conf import get_settings
from django_jobs.core.attempt import Attempted
from django_jobs.core.values import Claim, Lane, NewJob, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import Discard, Retry, Snooze
from django_jobs.execution.executor import Executor
from django_jobs.stores import make_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import engine
from django_jobs.workflows.packing import Start

#: No other process sees the store, so none can take the claim: any long lease will do.
_LEASE_MS = 86_400_000


def run_workflow(id: str, fields: Mapping[str, bytes | int], starts: Sequence[Start]) -> Store:
    """Run a workflow now, all of it, even if a step is due later.  Returns the temporary store that has it.

    Only one attempt of each step is made: a failed job stays in retry (or dead), one that asks to run again waits for
    that, and so do the steps after it."""
    store = make_store(replace(get_settings(), store="memory"))
    store.add_workflow(id, fields, check_in=_LEASE_MS)
    engine.start_first(store, id, starts)
    attempted, again = set[str](), list[Claim]()
    while claim := _next(store, attempted):
        if claim.id in attempted:
            again.append(claim)  # it asked to run again at once
            continue
        attempted.add(claim.id)
        _raise_if_wanted(Executor(close_connections=False).run(claim, store))
    for claim in again:
        store.release(claim.queue, [claim])
    return store


def _next(store: Store, attempted: Collection[str]) -> Claim | None:
    for queue in store.queues():
        due = [id for id in store.ids(queue, State.SCHEDULED)[0] if id not in attempted]
        if due:
            store.reschedule(queue, due, 1)
        for lane in (Lane.SHARED, Lane.ALONE):
            if claims := store.claim(queue, "eager", 1, lane=lane, lease=_LEASE_MS).claims:
                return claims[0]
    return None


def run(new: NewJob, handle: JobHandle) -> None:
    """Run one job now, even if it is due later.  `handle` then shows how it ended.

    Only one attempt is made: a failed job stays in retry (or dead), with its error on the handle and in the log.
    Raises that error with EAGER_PROPAGATES.
    """
    store = make_store(replace(get_settings(), store="memory"))
    store.enqueue(handle.queue, [new._replace(run_at=0, run_in=None)])
    lane = Lane.ALONE if new.controls.alone or new.controls.at_most_once else Lane.SHARED
    attempts = [
        Executor(close_connections=False).run(claim, store)
        for claim in store.claim(handle.queue, "eager", 1, lane=lane, lease=_LEASE_MS).claims
    ]
    if (info := store.find([handle.queue], handle.id)) is not None:
        handle.show(info, final=True)
    store.close()
    for attempted in attempts:
        _raise_if_wanted(attempted)


def _raise_if_wanted(attempted: Attempted) -> None:
    """Raise what the job raised, with EAGER_PROPAGATES.  A job that asks to run again, or to be dropped, has not
    failed."""
    error = attempted.error
    if not get_settings().eager_propagates or isinstance(error, Retry | Snooze | Discard):
        return
    if isinstance(error, BaseException):
        raise error
