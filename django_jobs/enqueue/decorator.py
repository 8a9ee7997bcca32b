"""`@job`: turns a module-level function into one that can be enqueued."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.context import JobContext
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options import NAMES, check_options, merged
from django_jobs.enqueue.call_options import check_id, check_patience, moment
from django_jobs.enqueue.handle import V
from django_jobs.enqueue.keywords import JobKeywords, UsingKeywords
from django_jobs.enqueue.methods import Calls
from django_jobs.enqueue.request import unknown_queue
from django_jobs.exceptions import InvalidArguments, InvalidJob

P = ParamSpec("P")
#: The parameters of the function itself: those of P, after a JobContext if it takes one.
C = ParamSpec("C")
R = TypeVar("R")

#: Options of `using` that `@job` has too.
_SHARED = frozenset({"queue", "priority", "max_attempts", "unique", "unique_on", "on_conflict", "tags"})
#: What `__module__` of a function is in a script, in IPython, and in the shell of Django.
_NO_MODULES = ("__main__", "__console__", "builtins", None)
_OF_ONE_CALL = ("job_id", "run_at", "expires_at", "on_commit", "block_timeout", "meta")


class AllCalls(Calls[P, V]):
    """Every call that enqueues, and `using`, which changes the options of the next one."""

    def using(self, **options: Unpack[UsingKeywords]) -> Using[P, V]:
        """Return a copy that enqueues with other options, for any call.

        `queue`, `priority`, `max_attempts`, `unique`, `unique_on`, `on_conflict` as for `@job`; `tags` (added to those
        of the job); `job_id` (text: a second job with that id is not added), `run_at` and `expires_at` (aware
        datetimes), `on_commit` (bool), `block_timeout` (seconds to wait for room in a queue with ON_FULL "block"),
        `meta` (dict of JSON values).
        Raises InvalidArguments, InvalidJob or UnknownQueue; each error names the wrong value.
        """
        new = _overrides(self._definition, options)
        if "tags" in new:
            new["tags"] = _all_tags(self._definition, self._overrides.get("tags", self._definition.tags), new["tags"])
        return Using(self._definition, {**self._overrides, **new})


class Using(AllCalls[P, V]):
    """A job with options for the next call, as `using` returns it.  It can be used for any number of calls."""

    def __init__(self, definition: JobDefinition, overrides: Mapping[str, Any]) -> None:
        self._definition, self._overrides = definition, overrides

    def __repr__(self) -> str:
        return f"<{self._definition!r} using {dict(self._overrides)!r}>"


class JobFunction(JobDefinition, AllCalls[P, V], Generic[P, C, R, V]):
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

    The options, with their defaults; durations are seconds or a timedelta:

    - `name` ("module.function"): the name that is stored; `aliases` ([]): older names that still work
    - `queue` ("default"), `priority` (0; -100 to 100, higher first)
    - `max_attempts` (10), `backoff` (growing pauses; a list, or callable(attempt, error) -> seconds)
    - `retry_on` ((Exception,)), `discard_on` (()), `on_exhausted` ("dead", or "discard")
    - `timeout`, `soft_timeout`, `expires_in` (None): limits of one attempt, and of the time before the first
    - `delivery` ("at_least_once", or "at_most_once")
    - `max_concurrency` (0 = no limit), `concurrency_key` (None; a parameter's name, or a callable of the arguments)
    - `unique` (None; "queued", "running", "success" or a timedelta), `unique_on` (all parameters)
    - `on_conflict` ("skip", or "replace", "debounce", "raise"): if an equal job waits
    - `keep_result` (None: as HISTORY says; 0: never)
    - `takes_context` (False): the first argument is a JobContext
    - `api` (False): may be enqueued over HTTP; `sensitive` (()): parameters whose values are masked
    - `tags` (()): words to find and count jobs by; `using(tags=…)` adds more
    - `cron` (None): five fields, or six with the seconds first
    - `on_missing` ("fail", or "discard"): what if a model instance among the arguments is gone

    Raises InvalidJob at import of the module; the error says what to do.
    """
    if func is None:
        return lambda function: _define(function, options)
    return _define(func, options)


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


def _overrides(definition: JobDefinition, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked options of `using` as fields of NewJobRequest."""
    shared = {name: value for name, value in options.items() if name not in _OF_ONE_CALL}
    if lasting := sorted(shared.keys() & frozenset(NAMES) - _SHARED):
        raise InvalidJob(
            f"{definition.name}.using(): {lasting[0]} applies to every call of a job. Write it as @job({lasting[0]}=…)."
        )
    fields = check_options(shared, f"{definition.name}.using()", _SHARED | frozenset(_OF_ONE_CALL))
    settings = get_settings()
    if "queue" in fields and fields["queue"] not in settings.queues:
        raise unknown_queue(fields["queue"], settings)
    if fields.get("max_attempts", 1) != 1 and definition.delivery == "at_most_once":
        raise InvalidJob(f"{definition.name}.using(): max_attempts contradicts delivery='at_most_once'. Leave it out.")
    for name in _OF_ONE_CALL:
        if name in options:
            field, check = _CHECKS[name]
            fields[field] = check(options[name])
    return fields


def _all_tags(definition: JobDefinition, tags: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    try:
        return merged(tags, more)
    except ValueError as error:
        raise InvalidJob(f"{definition.name}.using(): tags={tuple(more)!r}: {error}") from error


def _on_commit(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise InvalidArguments(f"on_commit={value!r}: use True, False, or None for the setting ON_COMMIT.")


def _meta(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise InvalidArguments(f"meta={value!r}: use a dict of JSON values.")


_CHECKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "job_id": ("id", lambda value: None if value is None else check_id(value)),
    "run_at": ("run_at", lambda value: 0 if value is None else moment(value, "run_at")),
    "expires_at": ("expires_at", lambda value: None if value is None else moment(value, "expires_at")),
    "on_commit": ("on_commit", _on_commit),
    "block_timeout": ("block_timeout", check_patience),
    "meta": ("meta", _meta),
}
