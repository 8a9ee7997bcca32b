"""A handle for one workflow or batch: what enqueue returns and `get_workflow` finds."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from django_jobs.enqueue.handle import DEFERRED
from django_jobs.exceptions import JobFailed, WorkflowNotFound
from django_jobs.runtime.async_twin import async_twin
from django_jobs.serialization.results import load_result
from django_jobs.stores import get_store
from django_jobs.workflows import engine, reading
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
        #: of its own, if it ran where it was enqueued (EAGER).
        self._store = store
        self._waits = False
        #: it was cancelled before its commit, and is never sent.
        self.is_dropped = False

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.name!r} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkflowHandle) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def deferred(self) -> None:
        """It waits for the commit."""
        self._waits = True

    def sent(self) -> None:
        """It is in the store."""
        self._waits = False

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
            raise WorkflowNotFound(
                f"There is no workflow or batch with the id {self.id!r}. One is kept for HISTORY['ttl'] after its end."
            )
        return found

    @property
    def state(self) -> str:
        """How it stands.  Raises WorkflowNotFound."""
        if self.is_dropped:
            return "cancelled"
        return DEFERRED if self._waits else self.info.state

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
        WorkflowNotFound if it has left the store."""
        watch, until = self._watch(), None if timeout is None else time.monotonic() + timeout
        while (found := watch.look()) is not None:
            if found.end is not None:
                try:
                    wait_for([found.end], self._left(until, timeout, found.patience))
                finally:
                    found.end.cancel()
            time.sleep(self._left(until, timeout, found.pause))
        return self._result()

    def _watch(self) -> Watch:
        if self._waits:
            raise JobFailed(
                f"{self!r} is deferred: it is enqueued when its transaction commits. Wait for it after that."
            )
        return Watch(self.store, self.id)

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
        that waits for its commit is never sent.  It has no effect on one that has succeeded.

        Raises WorkflowNotFound."""
        if self._waits:
            self.is_dropped, self._waits = True, False
        elif not self.is_dropped and self.info.may_be_cancelled:
            engine.stop(self.store, self.id)

    acancel = async_twin(cancel)

    def retry(self) -> int:
        """Queue again the jobs of all steps that ended without success, so that it goes on.  Returns how many moved.

        Jobs that are delivered at most once and may have started stay, and so do jobs that were deleted.  Raises
        WorkflowNotFound, and JobFailed if the workflow was cancelled."""
        if self.state == "cancelled":
            raise JobFailed(f"{self!r} was cancelled, so nothing in it starts any more. Enqueue it again.")
        return len(engine.retry(self.store, self.id))

    aretry = async_twin(retry)

    async def await_result(self, timeout: float | None = None) -> Any:
        """Async twin of `wait` (Python keeps the word `await` for itself)."""
        watch, until = self._watch(), None if timeout is None else time.monotonic() + timeout
        # A read needs a thread until the store answers; no thread is held after that.
        look = sync_to_async(watch.look, thread_sensitive=False)
        while (found := await look()) is not None:
            if found.end is not None:
                try:
                    patience = self._left(until, timeout, found.patience)
                    await asyncio.wait([asyncio.wrap_future(found.end)], timeout=patience)
                finally:
                    found.end.cancel()
            await asyncio.sleep(self._left(until, timeout, found.pause))
        return await sync_to_async(self._result, thread_sensitive=False)()

    async def ainfo(self) -> WorkflowInfo:
        """Async twin of `info`."""
        return await sync_to_async(lambda: self.info)()


def get_workflow(id: str) -> WorkflowHandle:
    """Return a handle for the workflow or batch with that id.  Raises WorkflowNotFound."""
    handle = WorkflowHandle(id)
    handle.name = handle.info.name
    return handle


aget_workflow = async_twin(get_workflow)
