"""A handle for one workflow or batch: what enqueue returns and `get_workflow` finds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from django_jobs import outbox
from django_jobs.conf import get_settings
from django_jobs.enqueueing.handle import DEFERRED, refuse_in_job
from django_jobs.exceptions import CorruptRecord, JobFailed, StoreUnavailable, WorkflowNotFound
from django_jobs.runtime.async_twin import async_twin
from django_jobs.serialization.checked import Unreadable
from django_jobs.serialization.results import load_result
from django_jobs.stores import get_store
from django_jobs.stores.ran_here import ran_here
from django_jobs.workflows import engine, reading
from django_jobs.workflows.packing import first_steps
from django_jobs.workflows.reading import StepInfo, WorkflowInfo
from django_jobs.workflows.watching import Watch

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store


class WorkflowHandle:
    """One workflow or batch.  `state`, `steps` and `counts` are read from the store each time.

    `state`: "running" | "succeeded" | "stopped" (a step ended without success, and nothing more can happen by itself) |
    "cancelled"; or "deferred" while it waits for the commit."""

    def __init__(self, id: str, name: str = "", *, store: Store | None = None) -> None:
        self.id, self.name = id, name
        #: of its own, if it runs where it was enqueued (EAGER).
        self._store = store
        self._waits = self._is_dropped = False
        #: its row in the outbox, and the queue and id of each job that it begins with; of a batch, its fields.
        self._kept: outbox.Kept | None = None
        self._firsts: Sequence[tuple[str, str]] = ()
        self._fields: outbox.Fields = {}

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.name!r} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkflowHandle) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def deferred(self, kept: outbox.Kept | None, firsts: Sequence[tuple[str, str]]) -> None:
        """It waits for the commit.  `kept`: its row in the outbox; `firsts`: (queue, id) of its first jobs."""
        self._waits, self._kept, self._firsts = True, kept, firsts

    def is_dropped(self, *, at_commit: bool = False) -> bool:
        """Return whether it was cancelled before it was sent.  A rollback of the block that did it undoes that."""
        if self._kept is not None and self._kept.has_come_back(at_commit=at_commit):
            self._is_dropped, self._waits = False, True
        return self._is_dropped

    def sent(self, store: Store | None = None) -> None:
        """It is in the project's store, or in one of its own (EAGER)."""
        self._waits, self._store = False, store

    @property
    def store(self) -> Store:
        """The store that has it."""
        return self._store or get_store()

    # -- looking -------------------------------------------------------------

    @property
    def info(self) -> WorkflowInfo:
        """All that is known of it but its steps.  Raises WorkflowNotFound."""
        found = reading.read(self.store, self.id)
        if found is None:
            raise self._not_found()
        return found

    @property
    def state(self) -> str:
        """How it stands.  Raises WorkflowNotFound."""
        if self.is_dropped():
            return "cancelled"
        info = None if self._is_waiting() else self._look()
        return DEFERRED if info is None else info.state

    def _look(self) -> WorkflowInfo | None:
        """Return what the store has of it; None if it is in the outbox.  Raises WorkflowNotFound."""
        if self._store is not None:
            return self.info
        found = outbox.accepted(lambda: reading.read(self.store, self.id), self._look_into_outbox)
        if found is None:
            raise self._not_found()
        return found if isinstance(found, WorkflowInfo) else None

    def _not_found(self) -> WorkflowNotFound:
        return WorkflowNotFound(
            f"There is no workflow or batch with the id {self.id!r}. One is kept for HISTORY['ttl'] after its end."
        )

    def _look_into_outbox(self) -> WorkflowInfo | outbox.Kept | None:
        """Defer it, and return its row, if the outbox has it."""
        row, of_batch = outbox.find_workflow(self.id), self.id.startswith("b")
        if row is None:
            return None
        firsts = list[tuple[str, str]]()
        with suppress(outbox.UnreadableRow, CorruptRecord, Unreadable):  # workers cannot send it either
            fields = outbox.unpack(row).fields
            self.name = name.decode(errors="replace") if isinstance(name := fields.get("name"), bytes) else ""
            firsts = [(start.queue, start.new.id) for start in first_steps(fields)]
            self._fields = fields if of_batch else {}
        kept = outbox.Kept(row.token, get_settings().database, batch=self.id if of_batch else "")
        self.deferred(kept, firsts)
        return kept

    def _is_waiting(self) -> bool:
        """Return whether it is not in the store yet, as far as is known here."""
        if self._waits and self._kept is not None:
            with suppress(StoreUnavailable):
                self._waits = reading.read(self.store, self.id) is None  # else a worker has sent it
        return self._waits

    @property
    def counts(self) -> dict[str, int]:
        """How many steps are in each state: waiting, live (the job waits or runs), succeeded, dead, cancelled, expired,
        deleted."""
        return self.info.counts

    @property
    def steps(self) -> list[StepInfo]:
        """Its steps in the order in which they were added; of a batch, its jobs in the order of their ids."""
        info = self.info
        if info.kind == "batch":
            return reading.jobs_of_batch(self.store, self.id)
        return reading.steps(self.store, self.id)

    # -- waiting and acting --------------------------------------------------

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until it has ended.  Returns what its last step returned, if one step is the last; else None.

        Raises JobFailed if it is stopped or cancelled, TimeoutError after `timeout` seconds (None = never),
        WorkflowNotFound if it has left the store, JobsError inside a job."""
        watch, until = self._watch(), None if timeout is None else time.monotonic() + timeout
        while (found := watch.look()) is not None:
            refuse_in_job(repr(self))
            if found.end is not None:
                try:
                    wait_for([found.end], self._left(until, timeout, found.patience))
                finally:
                    found.end.cancel()
            time.sleep(self._left(until, timeout, found.pause))
        return self._result()

    def _watch(self) -> Watch:
        if self.state == DEFERRED and (self._kept is None or not self._kept.is_left_to_workers()):
            raise JobFailed(
                f"{self!r} is deferred: it is enqueued when its transaction commits. Wait for it after that."
            )
        return Watch(self.store, self.id, self._kept)

    def _left(self, until: float | None, timeout: float | None, most: float) -> float:
        """Return `most`, or the seconds that are left if they are fewer.  Raises TimeoutError if none are."""
        left = most if until is None else min(most, until - time.monotonic())
        if left <= 0:
            raise TimeoutError(f"{self!r} is running after {timeout} s.")
        return left

    def _result(self) -> Any:
        info = self.info
        if info.state != "succeeded":
            stopped_by = ", ".join(f"{n} {what}" for what, n in info.stopped_by.items())
            raise JobFailed(f"{self!r} is {info.state}" + (f" (steps: {stopped_by})." if stopped_by else "."))
        (last,) = self.store.workflow_fields(self.id, ("last",))
        if last is None:
            return None
        (result,) = self.store.workflow_fields(self.id, (f"r:{int(last)}",))
        return load_result(result) if result else None

    def cancel(self) -> None:
        """Cancel what waits, and ask what runs to stop.  One that is stopped cannot be retried any more.  A workflow
        that waits for its commit is never sent, and nor is what the outbox has of a batch.  It has no effect on one
        that has succeeded.  If it has a row in the outbox, a rollback of the block that cancelled it undoes that.

        Raises WorkflowNotFound."""
        if self.state == "cancelled":
            return
        if not self._waits or (self._kept is not None and not self._kept.leave(self._left_outbox)):
            if self.info.may_be_cancelled:
                engine.stop(self.store, self.id)
        elif self._kept is None or self._kept.is_leaving:
            self._is_dropped, self._waits = True, False

    acancel = async_twin(cancel)

    def _left_outbox(self) -> None:
        """Its row is deleted for good.  If a worker had read it before, the store has it, or must refuse its jobs."""
        self._is_dropped, self._waits = True, False
        with suppress(StoreUnavailable):
            for queue, id in self._firsts:
                self.store.void(queue, [id])
            if self._fields:  # what is cancelled refuses the jobs that come
                self.store.join_batch(self.id, "", [], self._fields)
            if reading.read(self.store, self.id) is not None:
                self._is_dropped = False
                engine.stop(self.store, self.id)

    def retry(self) -> int:
        """Queue again the jobs of all steps that ended without success, so that it goes on.  Returns how many moved.

        Jobs that are delivered at most once and may have started stay, and so do jobs that were deleted.  Raises
        WorkflowNotFound, and JobFailed if the workflow was cancelled."""
        if self.is_dropped() or self.info.state == "cancelled":
            raise JobFailed(f"{self!r} was cancelled, so nothing in it starts any more. Enqueue it again.")
        return len(engine.retry(self.store, self.id))

    aretry = async_twin(retry)

    async def await_result(self, timeout: float | None = None) -> Any:
        """Async twin of `wait` (Python keeps the word `await` for itself)."""
        until = None if timeout is None else time.monotonic() + timeout
        # A read needs a thread until the store answers; no thread is held after that.  What may look into the outbox
        # runs on Django's thread for sync code, as all that reads the database: another's connection would stay open.
        on_djangos = self._kept is not None or bool(get_settings().outbox)
        watch = await sync_to_async(self._watch, thread_sensitive=on_djangos)()
        look = sync_to_async(watch.look, thread_sensitive=self._kept is not None)
        while (found := await look()) is not None:
            if found.end is not None:
                try:
                    patience = self._left(until, timeout, found.patience)
                    await asyncio.wait([asyncio.wrap_future(found.end)], timeout=patience)
                finally:
                    found.end.cancel()
            await asyncio.sleep(self._left(until, timeout, found.pause))
        return await sync_to_async(self._result, thread_sensitive=on_djangos)()

    async def ainfo(self) -> WorkflowInfo:
        """Async twin of `info`."""
        return await sync_to_async(lambda: self.info)()


def get_workflow(id: str) -> WorkflowHandle:
    """Return a handle for the workflow or batch with that id, also if it is in the outbox.  Raises WorkflowNotFound."""
    handle = WorkflowHandle(id, store=ran_here().store_of(id))
    if (info := handle._look()) is not None:
        handle.name = info.name
    return handle


aget_workflow = async_twin(get_workflow)
