"""One attempt of a task: hooks and signals round its function, on the thread that runs it."""

from __future__ import annotations

import inspect
import logging
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from time import monotonic
from types import FrameType, TracebackType
from typing import Any, NoReturn

from django.utils import timezone

from django_jobs.compat.celery import signals
from django_jobs.compat.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    Unsupported,
)
from django_jobs.compat.celery.request import Context, entered
from django_jobs.exceptions import InvalidArguments, Snooze

logger = logging.getLogger("django_jobs")

#: Celery's longest pause of retry_backoff, in seconds.
LONGEST_BACKOFF = 600


class ExceptionInfo:
    """The `einfo` of hooks and signals."""

    def __init__(self, exception: BaseException) -> None:
        self.exception, self.type = exception, type(exception)
        self.tb: TracebackType | None = exception.__traceback__
        self.traceback = "".join(traceback.format_exception(exception))

    def __str__(self) -> str:
        return self.traceback


def attempt(task: Any, context: Context) -> Any:
    """Run the task once.  Returns what it returned, or raises what it raised.

    `reject` with `requeue` and Retry become what a worker of django_jobs understands."""
    args, kwargs = context.args, context.kwargs
    state: str | None = None  # stays so after SystemExit
    value: Any = None
    einfo: ExceptionInfo | None = None
    with entered(task, context):
        signals.task_prerun.send_robust(task, task_id=context.id, task=task, args=args, kwargs=kwargs)
        began = monotonic()
        try:
            try:
                task.before_start(context.id, args, kwargs)
                with soft_limit(None if context.is_eager else context.timelimit[1]):
                    value = with_autoretry(task, context)
            except Retry as again:
                state, value, einfo = "RETRY", again, ExceptionInfo(again)
                hook(task.on_retry, again.exc or again, context.id, args, kwargs, einfo, context=context)
                signals.task_retry.send_robust(task, request=context, reason=again, einfo=einfo)
                raise
            except (Ignore, Reject) as stop:
                state, value = "REJECTED" if isinstance(stop, Reject) else "IGNORED", stop
                if isinstance(stop, Reject) and stop.requeue and not context.is_eager:
                    raise Snooze(str(stop), in_=0) from stop
                raise
            except Exception as error:
                state, value, einfo = "FAILURE", error, ExceptionInfo(error)
                hook(task.on_failure, error, context.id, args, kwargs, einfo, context=context)
                signals.task_failure.send_robust(
                    task, task_id=context.id, exception=error, args=args, kwargs=kwargs,
                    traceback=error.__traceback__, einfo=einfo,
                )  # fmt: skip
                raise
            state = "SUCCESS"
            hook(task.on_success, value, context.id, args, kwargs, context=context)
            signals.task_success.send_robust(task, result=value, runtime=monotonic() - began)
            return value
        finally:
            if state in ("SUCCESS", "FAILURE"):
                hook(task.after_return, state, value, context.id, args, kwargs, einfo, context=context)
            signals.task_postrun.send_robust(
                task, task_id=context.id, task=task, args=args, kwargs=kwargs, retval=value, state=state
            )


def hook(call: Callable[..., Any], *args: Any, context: Context) -> None:
    """Call a hook.  On a worker, its error is only logged: how the attempt ends is decided when a hook learns it."""
    try:
        call(*args)
    except Exception:
        if context.is_eager:
            raise
        logger.exception("%s of task %s %s has failed", call.__name__, context.task, context.id)


# -- retries ------------------------------------------------------------------------------


def with_autoretry(task: Any, context: Context) -> Any:
    """Run the function, and retry it after the errors of `autoretry_for`."""
    context.is_calling = task.has_own_call
    run = task if context.is_calling else task.run
    if not task.autoretry_for:
        return run(*context.args, **context.kwargs)
    try:
        return run(*context.args, **context.kwargs)
    except (Ignore, Reject, Retry, *task.dont_autoretry_for):
        raise
    except tuple(task.autoretry_for) as error:
        options = dict(task.retry_kwargs or {})
        if task.retry_backoff:
            options["countdown"] = backoff(task, context.retries)
        retry(task, context, exc=error, **options)


def backoff(task: Any, retries: int) -> int:
    """Return the pause of retry_backoff, in seconds: it doubles with each retry, and jitter takes a random part."""
    pause = min(int(task.retry_backoff_max), int(max(1.0, float(task.retry_backoff))) * 2**retries)
    return random.randrange(pause + 1) if task.retry_jitter else pause


def retry(
    task: Any,
    context: Context,
    args: Any = None,
    kwargs: Any = None,
    exc: BaseException | None = None,
    throw: bool = True,
    eta: datetime | None = None,
    countdown: float | None = None,
    max_retries: int | None = None,
    queue: Any = None,
    **options: Any,
) -> NoReturn:
    """Raise Retry; after the last retry raise `exc`, or MaxRetriesExceededError.  `args`, `kwargs` and `queue` are
    those of the task from now on."""
    changed = sorted(name for name, value in options.items() if value is not None)
    if changed and not context.called_directly:
        raise Unsupported(
            f"{task.name}: self.retry({changed[0]}=…): a retry has the options of its call. Enqueue a new call with "
            f"self.apply_async({changed[0]}=…, countdown=…), and return."
        )
    if not throw:
        raise Unsupported(f"{task.name}: self.retry(throw=False): the retry begins when the task raises. Remove it.")
    if eta is not None and countdown is not None:
        raise InvalidArguments(f"{task.name}: self.retry(): countdown and eta exclude each other.")
    if context.called_directly:
        raise exc if exc is not None else Retry("Task can be retried", when=None)
    most = task.max_retries if max_retries is None else max_retries
    if most is not None and context.retries + 1 > most:
        if exc is not None:
            raise exc
        raise MaxRetriesExceededError(
            f"Can't retry {task.name}[{context.id}] args:{tuple(context.args)} kwargs:{dict(context.kwargs)}",
            task_args=context.args,
            task_kwargs=context.kwargs,
        )
    when: Any = eta if eta is not None else task.default_retry_delay if countdown is None else countdown
    if isinstance(when, datetime) and timezone.is_naive(when):
        when = timezone.make_aware(when)
    queue = getattr(queue, "name", queue)
    args, kwargs = _call_again(task, context, args, kwargs)
    raise Retry(exc=exc, when=when, is_eager=context.is_eager, args=args, kwargs=kwargs, queue=queue)


def _call_again(task: Any, context: Context, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of the retry.  If only `args` or only `kwargs` are given, the old ones stay, except those
    that the new ones replace, however they were passed."""
    if (args is None) == (kwargs is None):
        return args, kwargs
    parameters = inspect.signature(task.run).parameters.values()
    names = [each.name if each.kind is each.POSITIONAL_OR_KEYWORD else "" for each in parameters]
    if kwargs is None:
        taken = names[: len(args)]
        return args, {name: value for name, value in context.kwargs.items() if name not in taken}
    # Behind the last name are the values of *args.
    taken = [*names, *[""] * len(context.args)][: len(context.args)]
    args = [kwargs.get(name, value) for name, value in zip(taken, context.args, strict=True)]
    return args, {name: value for name, value in kwargs.items() if name not in taken}


# -- soft limit ---------------------------------------------------------------------------


@contextmanager
def soft_limit(seconds: float | None) -> Iterator[None]:
    """Raise SoftTimeLimitExceeded in this block after so many seconds, in code that blocks, too.

    A timer can interrupt only the main thread: workers run such tasks there.  On another thread nothing is raised."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return
    began, is_inside = monotonic(), True

    def over(number: int, frame: FrameType | None) -> None:
        if is_inside:
            raise SoftTimeLimitExceeded(f"SoftTimeLimitExceeded({seconds:g},)")

    handler: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, over)
    # A test may have a timer of its own.
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        is_inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (monotonic() - began)))
