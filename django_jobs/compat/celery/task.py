"""`Task`: what a decorated function becomes, and the base class of tasks."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NoReturn
from uuid import uuid4

from django_jobs.compat.celery.calls import check_call, check_errback, chosen_for, place_of, takes_error
from django_jobs.compat.celery.canvas import Signature, chunks, listed
from django_jobs.compat.celery.conf import conf
from django_jobs.compat.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    OperationalError,
    Reject,
    Retry,
    Unsupported,
)
from django_jobs.compat.celery.missing import OF_TASKS
from django_jobs.compat.celery.request import Context, context_for, context_of, entered
from django_jobs.compat.celery.results import EagerResult
from django_jobs.compat.celery.running import LONGEST_BACKOFF, attempt, retry
from django_jobs.compat.celery.stored import message_for
from django_jobs.core.context import current_job
from django_jobs.enqueueing.decorator import JobFunction
from django_jobs.exceptions import InvalidArguments
from django_jobs.serialization import arguments


class Task:
    """Base class of all tasks.  Calling a task runs it here and now; `delay` and `apply_async` enqueue it.

    The attributes are the options of the decorator, with Celery's defaults.  None: as the setting says."""

    MaxRetriesExceededError: ClassVar[type[Exception]] = MaxRetriesExceededError
    OperationalError: ClassVar[type[Exception]] = OperationalError
    #: Templates call every callable.
    do_not_call_in_templates = True

    name: str = ""
    queue: str | None = None
    priority: int | None = None
    #: None = for ever.
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()
    retry_kwargs: Mapping[str, Any] | None = None
    retry_backoff: float = 0
    retry_backoff_max: float = LONGEST_BACKOFF
    retry_jitter: bool = True
    acks_late: bool | None = None
    reject_on_worker_lost: bool | None = None
    ignore_result: bool | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    expires: Any = None
    #: The log has no tracebacks of arguments anyway: these errors are logged as all others.
    throws: Sequence[type[BaseException]] = ()
    #: These change nothing here: arguments are always checked, states and errors always kept.
    typing: bool = True
    track_started: bool | None = None
    trail: bool = True
    send_events: bool = True
    store_errors_even_if_ignored: bool | None = None
    compression: str | None = None
    serializer: str | None = None

    #: the job behind this task.
    definition: JobFunction[..., ..., Any, Any]
    app: Any = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the task does."""
        raise NotImplementedError(f"{type(self).__name__} has no method run().")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task here and now, without a worker.  A class of tasks may replace it: workers call it."""
        context = self.request
        if context.is_calling:
            context.is_calling = False
            return self.run(*args, **kwargs)
        with entered(self, Context(task=self.name, args=args, kwargs=kwargs)):
            return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name in OF_TASKS:
            raise AttributeError(f"{type(self).__name__}.{name} is not there. {OF_TASKS[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def has_own_call(self) -> bool:
        """Whether its class has a `__call__` of its own."""
        return type(self).__call__ is not Task.__call__

    # -- enqueueing ---------------------------------------------------------------

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the task.  Inside atomic(), it is enqueued when the transaction commits."""
        return self.apply_async(args, kwargs)

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Do `delay`, which waits for the commit, and return None as Celery does."""
        self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Enqueue the task.  Returns an AsyncResult.

        `countdown` (seconds) or `eta` (datetime), `expires` (seconds or datetime), `queue`, `priority` (as with the
        broker of CELERY_BROKER_URL), `task_id`, `link`, `link_error`, `time_limit`, `soft_time_limit`, `headers`,
        `ignore_result`; `retry` changes nothing, because a call always tries again for a short while.

        Raises TypeError for arguments that do not fit and for unknown options, PayloadError for arguments that cannot
        be stored, UnknownQueue, QueueFull, and OperationalError if the store cannot be reached."""
        if task_id is not None:
            options["task_id"] = task_id
        self._check(args or (), kwargs or {})
        return Signature(self, args, kwargs, options).enqueue()

    def apply_async_on_commit(self, *args: Any, **options: Any) -> None:
        """Do `apply_async`, which waits for the commit, and return None as Celery does."""
        self.apply_async(*args, **options)

    def _check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if isinstance(args, str) or not isinstance(args, Sequence):
            raise InvalidArguments(f"{self.name}.apply_async({args!r}): args is a list or a tuple, as in ((7,)).")
        self.definition.check_call(args, kwargs)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        retries: int = 0,
        throw: bool | None = None,
        link: Any = None,
        link_error: Any = None,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> EagerResult:
        """Run the task here, with its retries, which do not wait.  Returns an EagerResult.

        `throw`: raise its error; None: as the setting task_eager_propagates says."""
        check_call(self.name, options)
        self._check(args or (), kwargs or {})
        # Arguments that a worker would not get as they are, must not be seen here either.
        sent_args, sent_kwargs = arguments.load(arguments.dump(list(args or ()), dict(kwargs or {})))
        id = task_id or str(uuid4())
        context = Context(
            id=id, task=self.name, args=sent_args, kwargs=sent_kwargs, retries=retries, called_directly=False,
            is_eager=True, hostname="eager", headers=headers, delivery_info={"is_eager": True},
        )  # fmt: skip
        try:
            value = attempt(self, context)
        except Retry as again:
            args = args if again.new_args is None else again.new_args
            kwargs = kwargs if again.new_kwargs is None else again.new_kwargs
            return self.apply(
                args, kwargs, id, retries + 1, throw, link=link, link_error=link_error, headers=headers, **options
            )
        except Ignore as error:
            return EagerResult(id, error, "IGNORED")
        except Reject as error:
            return EagerResult(id, error, "REJECTED")
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            for errback in listed(link_error):
                check_errback(errback)
                errback(context, error, text) if takes_error(errback) else errback.apply((id,))
            if conf.propagates if throw is None else throw:
                raise
            return EagerResult(id, error, "FAILURE", text)
        for callback in listed(link):
            callback.apply((value,))
        return EagerResult(id, value, "SUCCESS")

    # -- signatures -----------------------------------------------------------------

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return this call as a signature.  In a chain, the result of the task before is its first argument."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return this call as a signature that takes no result."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(self, args: Any = None, *more: Any, **options: Any) -> Signature:
        """Return `Signature(self, args, kwargs, options)`."""
        return Signature(self, args, *more, **options)

    def starmap(self, calls: Iterable[Any]) -> Signature:
        """Return one call that runs this task for each tuple of arguments, one after the other."""
        return Signature("celery.starmap", (self.name, [list(each) for each in calls]), immutable=True)

    def map(self, calls: Iterable[Any]) -> Signature:
        """Return one call that runs this task for each argument, one after the other."""
        return self.starmap((each,) for each in calls)

    def chunks(self, calls: Iterable[Any], n: int) -> chunks:
        """Return a group of calls.  Each call runs this task for `n` tuples of arguments."""
        return chunks(self.starmap, calls, n)

    # -- inside the task ---------------------------------------------------------------

    @property
    def request(self) -> Context:
        """The call that this code runs in."""
        return context_of(self)

    def retry(self, *args: Any, **options: Any) -> NoReturn:
        """Raise Retry: the task runs again after `countdown` seconds (default_retry_delay), or at `eta`.

        After `max_retries`, raise `exc` instead, or MaxRetriesExceededError."""
        retry(self, self.request, *args, **options)

    def update_state(self, task_id: str | None = None, state: str | None = None, meta: Any = None, **_: Any) -> None:
        """Show a state and JSON data, at most 1000 bytes, while the task runs: AsyncResult has them, and the admin.

        At most once a second; the last one before that is sent later.  Raises Unsupported for another task's id."""
        if task_id not in (None, self.request.id):
            raise Unsupported(f"{self.name}.update_state(task_id={task_id!r}): a task shows its own state only.")
        message = message_for(state or "PROGRESS", meta)
        if (job := current_job()) is not None:
            job.checkin(message)

    # -- hooks -------------------------------------------------------------------------

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called before each attempt."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Called after the function has returned."""

    def on_retry(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after an attempt that is followed by another."""

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after the last attempt has failed.  An attempt whose process was ended calls no hook."""

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after the last attempt."""


class TaskDefinition(JobFunction[..., ..., Any, Any]):
    def __init__(self, task: Task, **options: Any) -> None:
        super().__init__(_body(task), name=task.name, **options)
        self.task = task
        # Only the main thread can be interrupted.  The limit may be one of a single call.
        self.on_main_thread = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.task(*args, **kwargs)

    def placed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, int]:
        """Return what the decorator, the routes and the default queue say, as for `delay`."""
        return place_of(self.task, chosen_for(self.task, self.name, args, kwargs, {}))


def _body(task: Task) -> Any:
    """Return the function that a worker runs."""

    def body(*args: Any, **kwargs: Any) -> Any:
        job = current_job()
        if job is None:
            return task(*args, **kwargs)
        return attempt(task, context_for(task, job, args, kwargs))

    function = inspect.unwrap(getattr(task.run, "__func__", task.run))
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        with suppress(AttributeError):
            setattr(body, name, getattr(function, name))
    if task.run.__qualname__.endswith(".run"):  # a class of its own is what people look for
        body.__module__, body.__name__ = type(task).__module__, type(task).__name__
        body.__qualname__ = type(task).__qualname__
    body.__wrapped__ = function  # type: ignore[attr-defined]
    body.__signature__ = inspect.signature(task.run)  # type: ignore[attr-defined]
    return body
