"""EAGER mode: what is enqueued runs at once in the process that enqueues it, in a temporary store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from django_jobs.conf import get_settings
from django_jobs.core.attempt import Attempted
from django_jobs.core.values import Added, Claim, Lane, State
from django_jobs.enqueueing import membership
from django_jobs.enqueueing.request import EncodedJob
from django_jobs.events.announce import announce_expired
from django_jobs.exceptions import Discard, Retry, Snooze
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import follow_all
from django_jobs.serialization.record import has_expired
from django_jobs.stores import make_store
from django_jobs.stores.ran_here import ran_here
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import MAX_BATCH
from django_jobs.workflows import engine
from django_jobs.workflows.packing import Start

#: No other process sees the store, so none can take the claim: any long lease will do.
_LEASE_MS = 86_400_000


class EagerRun:
    """A temporary store for one job, one unique key, one workflow, or one batch, and what runs in it.

    Only one attempt of each job is made: a failed job stays in retry (or dead), one that asks to run again waits for
    that, and so does what comes after it."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or make_store(replace(get_settings(), store="memory"))
        self._ids, self._attempted = set[str](), set[str]()

    def note(self, id: str) -> None:
        """The job with this id is here."""
        self._ids.add(id)
        ran_here().begin(id, self.store)

    def run_all(self) -> None:
        """Run what is in the store now, even if it is due later, and what follows from it.

        Raises what a job raised, with EAGER_PROPAGATES."""
        again = list[Claim]()
        token = membership.current.set(None)  # a job is not in the `with batch:` around the call that enqueued it
        try:
            while claim := self._next():
                if claim.id in self._attempted:
                    again.append(claim)  # it asked to run again at once
                    continue
                self._attempted.add(claim.id)
                self.note(claim.id)
                _raise_if_wanted(Executor(close_connections=False).run(claim, self.store))
        finally:
            membership.current.reset(token)
            for claim in again:
                self.store.release(claim.queue, [claim])

    def end(self) -> None:
        """Keep what became of its jobs: it is known without the store."""
        queues = self.store.queues()
        for id in self._ids:
            if (info := self.store.find(queues, id)) is not None:
                ran_here().end(info)

    def _next(self) -> Claim | None:
        late: list[tuple[str, int]] = []
        for queue in self.store.queues():
            later = self.store.get_many(queue, self._new(queue, State.SCHEDULED)[:MAX_BATCH])
            late += [(queue, info.at) for info in later if has_expired(info, info.at)]
            due = [info.id for info in later if not has_expired(info, info.at)]
            if due:
                self.store.reschedule(queue, due, 1)
            if not due and not self._new(queue, State.QUEUED):
                continue
            for lane in (Lane.SHARED, Lane.ALONE):
                claimed = self.store.claim(queue, "eager", 1, lane=lane, lease=_LEASE_MS)
                announce_expired(queue, claimed.expired, claimed.now)
                if claimed.claims:
                    return claimed.claims[0]
        goes_on = (late and self._expire(*late[0])) or follow_all(self.store, self.store.queues())
        return self._next() if goes_on else None

    def _expire(self, queue: str, at: int) -> bool:
        """End the jobs that expire before this time, at which the first of them could have started.  Returns whether
        there were any."""
        options = self.store.options
        self.store.options = replace(options, clock=lambda: at)
        try:
            expired, _ = self.store.expire(queue)
        finally:
            self.store.options = options
        announce_expired(queue, expired, at)
        return bool(expired)

    def _new(self, queue: str, state: State) -> list[str]:
        found, cursor = self.store.ids(queue, state)
        while cursor:
            more, cursor = self.store.ids(queue, state, cursor)
            found += more
        return [id for id in found if id not in self._attempted]


#: Of the batches that are open here, by their ids.
_of_batches: WeakValueDictionary[str, EagerRun] = WeakValueDictionary()


def run_of_batch(id: str) -> EagerRun:
    """Return where the jobs of a batch run.  The batch keeps it."""
    if (here := _of_batches.get(id)) is None:
        here = _of_batches[id] = EagerRun()
        ran_here().keep(id, here.store)
    return here


def run_workflow(id: str, fields: Mapping[str, bytes | int], starts: Sequence[Start]) -> Store:
    """Run a workflow now.  Returns the temporary store that has it."""
    here = EagerRun()
    ran_here().keep(id, here.store)
    here.store.add_workflow(id, fields, check_in=_LEASE_MS)
    engine.start_first(here.store, id, starts)
    here.run_all()
    return here.store


def run(each: EncodedJob, add: Callable[[Store], bool]) -> None:
    """Run one job now.  `add` puts it into a store, and says whether it did.  Its handle then shows how it stands.

    A job with the caller's id that has run here is the first one, and does not run again.  A job with a unique key runs
    in the store of the last one with this key, if that runs or holds the key still."""
    batch, handle = each.request.batch, each.handle
    if each.request.id is not None and (first := ran_here().find(handle.id)) is not None:
        handle.added = Added.EXISTS
        handle.show(first)
        return
    key = f"{handle.queue}\n{each.new.controls.unique}" if batch is None and each.new.controls.unique else ""
    here = run_of_batch(batch.id) if batch is not None else EagerRun(ran_here().store_of(key))
    if key:
        ran_here().begin(key, here.store)
    try:
        if not add(here.store):
            return
        here.note(handle.id)
        try:
            here.run_all()
        finally:
            if (info := here.store.find([handle.queue], handle.id)) is not None:
                handle.show(info, final=batch is None)
    finally:
        if batch is None:
            here.end()
        if key and here.store.key_holders(handle.queue, {"": each.new.record}):
            ran_here().keep(key, here.store)
        elif batch is None and not key:  # a store with a key may be in use by another thread, or around this call
            here.store.close()


def _raise_if_wanted(attempted: Attempted) -> None:
    """Raise what the job raised, with EAGER_PROPAGATES.  A job that asks to run again, or to be dropped, has not
    failed."""
    error = attempted.error
    if not get_settings().eager_propagates or isinstance(error, Retry | Snooze | Discard):
        return
    if isinstance(error, BaseException):
        raise error
