"""Batches: jobs that are enqueued inside `with batch:`, and what is done when they have ended."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.utils.module_loading import import_string

from django_jobs import outbox
from django_jobs.conf import get_settings
from django_jobs.core.context import current_job
from django_jobs.enqueueing import commits, membership, submit
from django_jobs.enqueueing import request as new_job
from django_jobs.enqueueing.request import JoinableBatch
from django_jobs.enqueueing.signature import Signature
from django_jobs.exceptions import BatchClosed, InvalidWorkflow
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores import get_store
from django_jobs.workflows import engine
from django_jobs.workflows.encoding import fields_of_batch
from django_jobs.workflows.handle import WorkflowHandle

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store


class OpenBatch:
    """A batch to which jobs can be added: `with batch:` around the calls that enqueue them.

    `current_batch()` returns one inside the batch's own jobs."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._tokens: list[Token[JoinableBatch | None]] = []
        #: EAGER: where its jobs run.
        self._eager: Any = None

    def __repr__(self) -> str:
        return f"<batch {self.id}>"

    def __enter__(self) -> OpenBatch:
        if membership.current.get() is not None:
            raise InvalidWorkflow(f"{self!r} is opened inside another `with batch:`. A job belongs to one batch only.")
        self._prepare()
        self._tokens.append(membership.current.set(self))
        return self

    def _prepare(self) -> None:
        if get_settings().eager:
            # Execution is a layer above; only eager mode calls upwards, and only here.
            self._eager = import_string("django_jobs.execution.eager.run_of_batch")(self.id)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        membership.current.reset(self._tokens.pop())

    def new_fields(self) -> Mapping[str, bytes | int]:
        """Return {}: it must be in the store."""
        return {}

    @property
    def handle(self) -> WorkflowHandle:
        """A handle to look at the batch, wait for it, cancel it, and retry its dead jobs."""
        return WorkflowHandle(self.id, store=None if self._eager is None else self._eager.store)


class Batch(OpenBatch):
    """Jobs of any number, and callbacks for when they have ended.  Callbacks are signatures:

    `on_success` starts when all jobs have succeeded, also after a dead one was retried; `on_complete` when all have
    ended, in whatever way; `on_dead` at the first that is dead.  Each starts once; none after `cancel()`.

    All jobs that are enqueued inside `with batch:` belong to it.  It is complete when that block has ended and none of
    its jobs is left; until then its own jobs may add more with `current_batch()`.  If the block raises, or its process
    dies, the batch stays open: enter it again to finish it, or cancel it.  `manage.py jobs doctor` names such batches.
    """

    def __init__(
        self,
        name: str = "",
        *,
        on_success: Signature | None = None,
        on_complete: Signature | None = None,
        on_dead: Signature | None = None,
    ) -> None:
        """Raises InvalidWorkflow for a callback that is not a signature, or names the result of a step."""
        if not isinstance(name, str) or len(name) > 200:
            raise InvalidWorkflow(f"Batch({name!r}): use a text of at most 200 characters as the name.")
        super().__init__(f"b{new_job.new_id(new_job.now_ms())}")
        self.name = name
        self.callbacks: list[tuple[str, Signature]] = []
        for what, signature in (("on_success", on_success), ("on_complete", on_complete), ("on_dead", on_dead)):
            if signature is None:
                continue
            if not isinstance(signature, Signature):
                raise InvalidWorkflow(f"Batch({name!r}): {what}={signature!r} is not a signature. Pass task.s(…).")
            if signature.names_results:
                raise InvalidWorkflow(f"Batch({name!r}): {what}={signature!r} names a result; a batch passes none on.")
            self.callbacks.append((what, signature))
        self._fields: Mapping[str, bytes | int] | None = None

    def __repr__(self) -> str:
        return f"<Batch {self.name!r} {self.id}>"

    def __enter__(self) -> Batch:
        super().__enter__()
        return self

    def _prepare(self) -> None:
        self.new_fields()  # errors in callbacks come before the first job
        super()._prepare()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        super().__exit__(kind, error, tb)
        if kind is None:
            self._close()

    def new_fields(self) -> Mapping[str, bytes | int]:
        """Return its fields in the store before its first job."""
        if self._fields is None:
            self._fields = fields_of_batch(self.id, self.name, self.callbacks)
        return self._fields

    def _close(self) -> None:
        settings, entry = get_settings(), None
        if submit.is_kept(None, settings) or (settings.outbox and outbox.is_waited_for(self.id, settings.database)):
            now = new_job.now_ms()
            of_batch = (self.id, self.new_fields(), now)
            place = (outbox.EntryKind.CLOSE, self.id, self.name, "", None)
            entry = outbox.Entry(*place, *of_batch, token=new_job.new_id(now))
        if entry is not None or submit.waits_for_commit(None, settings):
            what = f"the end of batch {self.name!r} ({self.id})"
            commits.after_commit(self._close_now, what, settings, entry)
        else:
            self._close_now()

    def _close_now(self) -> None:
        if self._eager is None:
            close(get_store(), self.id, self.new_fields())
        else:
            close(self._eager.store, self.id, self.new_fields())
            self._eager.run_all()

    async def __aenter__(self) -> Batch:
        await sync_to_async(self._prepare)()
        OpenBatch.__enter__(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        OpenBatch.__exit__(self, kind, error, tb)
        if kind is None:
            await sync_to_async(self._close)()


def close(store: Store, id: str, fields: Mapping[str, bytes | int]) -> None:
    """End a batch: it gets no more jobs from outside.  Raises BatchClosed and StoreError."""
    answer = store.join_batch(id, "", [], fields)  # it may have no job at all
    if answer == "done":
        return
    if answer:
        raise BatchClosed(f"Batch {id} cannot be closed: it is {answer}.")
    store.check_workflows_in([(id, engine.CHECK_SOON)])
    engine.follow(store, id, [], "close")
    if ACTIVE:
        crashpoint("batch.closed")


def current_batch() -> OpenBatch:
    """Return the batch to which the running job belongs, so that it can add jobs: `with current_batch():`.

    Raises InvalidWorkflow outside of a batch's jobs."""
    job: Any = current_job()
    id = job.workflow if job is not None else None
    if id is None or not id.startswith("b"):
        raise InvalidWorkflow("current_batch(): this code does not run in a job of a batch.")
    return OpenBatch(id)
