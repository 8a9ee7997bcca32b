"""`@job`: turns a module-level function into one that can be enqueued."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from django_jobs.core import registry
from django_jobs.core.context import JobContext
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options.declared import NAMING, OPTIONS, described
from django_jobs.enqueueing.handle import V
from django_jobs.enqueueing.keywords import JobKeywords
from django_jobs.enqueueing.methods import Calls
from django_jobs.exceptions import InvalidJob

P = ParamSpec("P")
#: The parameters of the function itself: those of P, after a JobContext if it takes one.
C = ParamSpec("C")
R = TypeVar("R")

#: What `__module__` of a function is in a script, in IPython, and in the shell of Django.
_NO_MODULES = ("__main__", "__console__", "builtins", None)


class JobFunction(JobDefinition, Calls[P, V], Generic[P, C, R, V]):
    """A function decorated with `@job`: callable as before, and with every call that enqueues.

    For type checkers, `JobFunction[P, C, R, V]`: the parameters of a call that enqueues, those of the function (with
    its context), what the function returns, and the result (what a coroutine function returns after `await`)."""

    def __init__(self, func: Callable[C, R], **options: Any) -> None:
        super().__init__(func, **options)
        self._definition = self

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> R:
        """Run the function at once, in this process, as without `@job`."""
        return self.func(*args, **kwargs)  # type: ignore[no-any-return]


class _Plain(Protocol):
    """What `@job(…)` returns: a decorator."""

    @overload
    def __call__(
        self, func: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, func: Callable[P, R], /) -> JobFunction[P, P, R, R]: ...


class _WithContext(Protocol):
    """What `@job(takes_context=True, …)` returns: a decorator of functions whose first parameter is a JobContext."""

    @overload
    def __call__(
        self, func: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, Concatenate[JobContext, P], Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(
        self, func: Callable[Concatenate[JobContext, P], R], /
    ) -> JobFunction[P, Concatenate[JobContext, P], R, R]: ...


@overload
def job(func: Callable[P, Coroutine[Any, Any, R]], /) -> JobFunction[P, P, Coroutine[Any, Any, R], R]: ...
@overload
def job(func: Callable[P, R], /) -> JobFunction[P, P, R, R]: ...
@overload
def job(*, takes_context: Literal[True], **options: Unpack[JobKeywords]) -> _WithContext: ...
@overload
def job(*, takes_context: Literal[False] = False, **options: Unpack[JobKeywords]) -> _Plain: ...
def job(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a module-level `def` or `async def` a job, as `@job` or `@job(**options)`.

    Raises InvalidJob at import of the module; the error says what to do.
    """
    if func is None:
        return lambda function: _define(function, options)
    return _define(func, options)


job.__doc__ = f"""{job.__doc__}
The options, with their defaults; durations are seconds or a timedelta:

{described(NAMING)}
{described(OPTIONS)}
"""


def _define(func: Any, options: dict[str, Any]) -> JobFunction[..., ..., Any]:
    _check_function(func)
    if func.__module__ in _NO_MODULES and not options.get("name"):
        raise InvalidJob(
            f"The job {func.__name__} is defined in a script or a shell, where no worker can find it. "
            "Move it to a module jobs.py of an installed app, and import it from there."
        )
    definition: JobFunction[..., ..., Any] = JobFunction(func, **options)
    registry.register(definition)
    return definition


def _check_function(func: Any) -> None:
    """Check that a worker can find the job by importing its module: the function must be there under its name."""
    if isinstance(func, JobDefinition):
        raise InvalidJob(f"{func.origin} is a job already: use @job once.")
    if isinstance(func, str):
        raise InvalidJob(f"@job({func!r}): options are given by name, as in @job(queue={func!r}).")
    if not inspect.isfunction(func):
        raise InvalidJob(f"@job on {func!r}: use it on a function, as in @job above `def send_receipt(order_id):`.")
    place = f"{func.__module__}.{func.__qualname__}"
    if func.__name__ == "<lambda>":
        raise InvalidJob(f"{place} is a lambda. Write a `def` at the top level of a module.")
    if "." in func.__qualname__:
        raise InvalidJob(
            f"{place} is nested in a function or class: a worker cannot find it. "
            "Move it to the top level of a module, and pass what it needs as arguments. "
            "If a decorator made it, use functools.wraps in the decorator."
        )
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise InvalidJob(f"{place} is a generator: calling it runs nothing. Use a plain function without yield.")
