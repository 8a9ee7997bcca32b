"""`asubmit`, the async form of `submit`: one thread sends what all event loops of the process enqueue.

To hand a call to Django's thread for sync code costs more than the call to the store.  So the event loop encodes the
job, and the thread sends all jobs that wait, in as few calls as possible.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import NamedTuple

from django.core.exceptions import SynchronousOnlyOperation

from django_jobs.conf import Settings, get_settings
from django_jobs.core.values import Added
from django_jobs.enqueueing import membership
from django_jobs.enqueueing.batching import Batcher, Refused
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import EncodedJob, NewJobRequest
from django_jobs.enqueueing.sending import settings_of, show_first
from django_jobs.enqueueing.submit import make_ready, submit, wants_commit
from django_jobs.exceptions import JobsError, StoreUnavailable
from django_jobs.runtime.async_twin import async_twin
from django_jobs.runtime.database_connections import in_transaction_anywhere
from django_jobs.signals import job_enqueued
from django_jobs.stores import is_made
from django_jobs.stores.values.sizes import MAX_BATCH

_submit_in_thread = async_twin(submit)


class _Waiting(NamedTuple):
    """A job that waits to be sent, and the future whose result is the error to raise, or None."""

    ready: EncodedJob
    loop: AbstractEventLoop
    answer: Future[Exception | None]


async def asubmit(request: NewJobRequest) -> JobHandle:
    """Do `submit`.  If this is cancelled, the job may be enqueued or not."""
    settings, loop = get_settings(), get_running_loop()
    if _needs_sync_thread(request, settings):
        return await _submit_in_thread(request)
    try:
        ready = make_ready(request, settings)
        sender = _running_sender()
    except (SynchronousOnlyOperation, RuntimeError):
        # An argument such as `request.user` is read from the database; or no thread can be started.
        return await _submit_in_thread(request)
    answer: Future[Exception | None] = loop.create_future()
    sender.waiting.put(_Waiting(ready, loop, answer))
    if (error := await answer) is not None:
        try:
            raise error
        finally:
            del error, answer  # its traceback refers to this frame
    return ready.handle


def _needs_sync_thread(request: NewJobRequest, settings: Settings) -> bool:
    """Return whether sync code has a say in this call, or the call may wait for more than the store's answer."""
    options = request.definition.options
    wants = wants_commit(request.on_commit, settings)
    return bool(
        not is_made()
        or settings.eager
        or settings.enqueue_middleware
        or job_enqueued.receivers
        # The transaction of any thread may be that of the thread for sync code, which the caller wants to wait for.
        or (wants and (settings.outbox == "always" or in_transaction_anywhere(settings.database)))
        or membership.current.get() is not None
        or request.id is not None  # its reservation may need another server, for which the others must not wait
        or settings_of(request.queue, settings).on_full == "block"
        or callable(options.concurrency_key)
        or options.on_end or options.on_dead or request.changed  # they may name a type that is in the database
    )  # fmt: skip


class _Sender(Thread):
    """Sends what waits.  It is a daemon: it must not keep the process from ending, when nobody waits for an answer."""

    def __init__(self) -> None:
        super().__init__(name="django_jobs sender", daemon=True)
        self.waiting: SimpleQueue[_Waiting] = SimpleQueue()

    def run(self) -> None:
        """Serve all calls, for ever."""
        while True:
            self._send_round(self.waiting.get())

    def _send_round(self, first: _Waiting) -> None:
        # A round is a method of its own, so that no variable keeps its jobs and errors until the next call.
        calls = [first]
        with suppress(Empty):
            while len(calls) < MAX_BATCH:
                calls.append(self.waiting.get_nowait())
        errors = _send([call.ready for call in calls])
        answers: dict[AbstractEventLoop, list[tuple[Future[Exception | None], Exception | None]]] = {}
        for call in calls:
            answers.setdefault(call.loop, []).append((call.answer, errors.get(id(call.ready.handle))))
        for loop, told in answers.items():
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_answer, told)


def _answer(told: Sequence[tuple[Future[Exception | None], Exception | None]]) -> None:
    for answer, error in told:
        if not answer.done():  # its task was not cancelled
            answer.set_result(error)


def _send(jobs: Sequence[EncodedJob]) -> dict[int, Exception]:
    """Send jobs of several callers.  Returns the errors that `submit` would raise, by the `id` of the job's handle."""
    refused: list[Refused] = []
    errors: dict[int, Exception] = {}
    try:
        batcher = Batcher(get_settings(), refused, full=set())
        for each in jobs:
            batcher.add(each)
        batcher.send_rest()
        for each in jobs:
            if each.handle.added is Added.EXISTS:
                try:
                    show_first(each.handle)
                except JobsError as error:
                    errors[id(each.handle)] = error
    except Exception as error:  # the thread must go on: others will call
        errors = {id(each.handle): _own(error, each) for each in jobs if each.handle.added is not Added.ADDED}
    return errors | {id(each.handle): _own(error, each) for some, error in refused for each in some}


def _own(error: Exception, each: EncodedJob) -> Exception:
    """Return the error for one of the callers that share it: nobody's traceback grows in the hands of another."""
    try:
        own = copy(error).with_traceback(error.__traceback__)
    except Exception:  # its class takes other arguments than it keeps
        return error
    own.args = error.args
    own.__cause__, own.__context__ = error.__cause__, error.__context__
    own.__suppress_context__ = error.__suppress_context__
    if isinstance(own, StoreUnavailable):
        own.job_id = each.new.id
    return own


#: The thread of this process, from its first call on; and the lock under which it is started.
_sender: _Sender | None = None
_lock = Lock()


def _running_sender() -> _Sender:
    global _sender
    with _lock:
        if _sender is None:
            starting = _Sender()
            starting.start()
            _sender = starting
        return _sender


def _forget() -> None:
    """In the child of a fork: the thread is the parent's, and so is what waits for it."""
    global _sender, _lock
    _sender, _lock = None, Lock()


os.register_at_fork(after_in_child=_forget)
