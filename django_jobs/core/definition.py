"""What is known of a job before it is enqueued: its function, its names, its options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from django_jobs.conf import Settings, get_settings
from django_jobs.core.options.declared import DEFAULTABLE, JobOptions, OptionAttributes, check_limits, check_options
from django_jobs.core.sensitive import HIDDEN, words_for
from django_jobs.core.values import DEFAULT_OPTIONS, PLAIN, Controls, Job, Options
from django_jobs.exceptions import InvalidArguments, InvalidJob
from django_jobs.formatting import sentence

#: Length of the longest name that a job can have.
LONGEST_NAME = 200
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.:/-]{{0,{LONGEST_NAME - 1}}}")


class JobDefinition(OptionAttributes):
    """One registered job.  Calling it runs the function at once, in this process.

    `name` is the name on the wire; `aliases` are older names that still work, the oldest first; `origin` is the dotted
    path of the function.
    `identity` is the first name that the type ever had.  Whatever its jobs share is stored under it: limits, unique
    keys, pauses, counts, its schedule.  So old and new code share them, too.
    All options of `@job` are attributes; durations are seconds.
    """

    #: Templates call every callable: without this, `{% if job %}` would run the job.
    do_not_call_in_templates = True
    #: Signals for which `tell` is called, in addition to their receivers (events/signal_events.py).
    told_of: frozenset[str] = frozenset()
    #: If true, the stored result of a success names the worker process that ran it.
    keeps_worker = False
    #: If true, a job that runs alone in its process runs on the main thread, which alone a timer can interrupt.
    on_main_thread = False
    #: Its module was imported after the project had started, for example by a view.  Workers may not know it.
    is_late = False

    def __init__(
        self, func: Callable[..., Any], *, name: str | None = None, aliases: Sequence[str] = (), **options: Any
    ) -> None:
        self.func = func
        self.is_async = inspect.iscoroutinefunction(func)
        self.origin = f"{func.__module__}.{func.__qualname__}"
        self.name = name if name is not None else self.origin
        if isinstance(aliases, str):
            raise InvalidJob(f"{self.origin}: aliases={aliases!r}: use a list of names.")
        self.aliases = tuple(aliases)
        for each in (self.name, *self.aliases):
            check_name(each, self.origin)
        self.identity = self.aliases[0] if self.aliases else self.name
        self.given: Mapping[str, Any] = check_options(options, self.origin)
        self.signature = _signature(func, bool(self.given.get("takes_context")), self.origin)
        if self.given.get("delivery") == "at_most_once" and self.given.get("max_attempts", 1) != 1:
            raise InvalidJob(
                f"{self.origin}: max_attempts={self.given['max_attempts']} contradicts delivery='at_most_once', "
                "which never starts a job twice. Leave max_attempts out."
            )
        self._check_parameters()
        self._read: tuple[Settings, JobOptions, Options, Controls] | None = None
        self._limits = _positional_limits(self.signature)
        self.__doc__, self.__module__ = func.__doc__, func.__module__
        self.__name__, self.__qualname__, self.__wrapped__ = func.__name__, func.__qualname__, func

    def __repr__(self) -> str:
        return f"<job {self.name}>"

    def tell(self, signal_event: Any) -> None:
        """Called when a signal in `told_of` is sent about a job of this definition (see events/signal_events.py)."""

    # -- options -------------------------------------------------------------

    @property
    def options(self) -> JobOptions:
        """The options in force.  JOB_DEFAULTS is read late: jobs are defined before the settings are complete."""
        return self.resolved()[1]

    @property
    def stored_options(self) -> Options:
        """The part of the options that is stored with each job."""
        return self.resolved()[2]

    @property
    def stored_controls(self) -> Controls:
        """The controls that stores get with each job of this definition, before those that depend on its arguments."""
        return self.resolved()[3]

    def resolved(self) -> tuple[Settings, JobOptions, Options, Controls]:
        """Return the settings, and the `options`, `stored_options` and `stored_controls` that follow from them."""
        settings = get_settings()
        read = self._read
        if read is None or read[0] is not settings:
            defaults = check_options(settings.job_defaults, "DJANGO_JOBS['JOB_DEFAULTS']", DEFAULTABLE)
            route = settings.route(self.name)
            chosen = {**defaults, **({} if route is None else {"queue": route}), **self.given}
            if chosen.get("delivery") == "at_most_once":
                chosen["max_attempts"] = 1
            check_limits(chosen, self.origin)
            options = JobOptions(**chosen)
            stored = _stored_options(options, self.signature, self.identity if self.identity != self.name else "")
            read = self._read = (settings, options, stored, _stored_controls(options))
        return read

    def placed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, int]:
        """Return the queue and the priority of a call that names neither."""
        return self.options.queue, self.options.priority

    # -- arguments -----------------------------------------------------------

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """Return the arguments by parameter name, without the context.  Raises InvalidArguments."""
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{self.name}{self.signature} cannot be called like this: {sentence(error)}"
            raise InvalidArguments(message) from error

    def check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise InvalidArguments unless the function can be called like this.  Has a fast path."""
        if kwargs or self._limits is None or not self._limits[0] <= len(args) <= self._limits[1]:
            self.bind(args, kwargs)

    def as_sent(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as the function gets them if a call passes these."""
        return list(args), dict(kwargs)

    def hide(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with HIDDEN in place of the sensitive ones, to show them to people."""
        if not (sensitive := self.sensitive):
            return list(args), dict(kwargs)
        shown: list[Any] = []
        for i, value in enumerate(args):
            shown.append(HIDDEN if self._parameter_at(i) in sensitive else value)
        # An extra keyword belongs to **kwargs, whose own name may be sensitive too.
        extra = next((p.name for p in self.signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)
        known = self.signature.parameters
        return shown, {
            key: HIDDEN if key in sensitive or (key not in known and extra in sensitive) else value
            for key, value in kwargs.items()
        }

    def with_names(self, text: str) -> str:
        """Return an error's text with the parameter's name added after the first `args[0]`."""
        return re.sub(r"\bargs\[(\d+)\]", lambda at: f"{at[0]} ({self._parameter_at(int(at[1]))})", text, count=1)

    def _parameter_at(self, index: int) -> str:
        for i, parameter in enumerate(self.signature.parameters.values()):
            if parameter.kind is parameter.VAR_POSITIONAL or i == index:
                return parameter.name
        return ""

    def _check_parameters(self) -> None:
        """Check that options which name parameters name existing ones."""
        parameters = self.signature.parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        key = self.given.get("concurrency_key")
        for option, names in (
            ("sensitive", self.given.get("sensitive", ())),
            ("unique_on", self.given.get("unique_on") or ()),
            ("concurrency_key", [key] if isinstance(key, str) else ()),
        ):
            for name in names:
                if name not in parameters and not open_ended:
                    has = ", ".join(parameters) or "none"
                    raise InvalidJob(f"{self.origin}: {option} names {name!r}. The parameters are: {has}.")


def check_name(name: Any, owner: str) -> None:
    """Raise InvalidJob unless this is a valid job name: it appears in keys, addresses and records."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidJob(
            f"{owner}: the name {name!r} cannot be used. "
            f"Use up to {LONGEST_NAME} letters, digits and _ . : / - (the first a letter, a digit or _)."
        )


def _signature(func: Callable[..., Any], takes_context: bool, owner: str) -> inspect.Signature:
    signature = inspect.signature(func)
    if not takes_context:
        return signature
    first, *others = signature.parameters.values() or [None]
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise InvalidJob(f"{owner}: takes_context=True needs a first parameter, as in def job(ctx, order_id).")
    return signature.replace(parameters=[p for p in others if p is not None])


@lru_cache(maxsize=1_000)
def positional_names(signature: inspect.Signature) -> tuple[str, ...]:
    """Return the names of the parameters that take positional arguments, in order."""
    parameters = signature.parameters.values()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _positional_limits(signature: inspect.Signature) -> tuple[int, int] | None:
    """Return the least and most number of positional arguments; None if only a full bind can find out."""
    parameters = signature.parameters.values()
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    most = 10**9 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
    return sum(p.default is p.empty for p in positional), most


def _stored_options(options: JobOptions, signature: inspect.Signature, type: str) -> Options:
    stored = Options(
        max_attempts=options.max_attempts,
        timeout=None if options.timeout is None else round(options.timeout * 1000),
        on_exhausted=options.on_exhausted,
        retried=options.delivery == "once_unless_failed",
        sensitive=words_for(options.sensitive, signature),
        tags=" ".join(options.tags),
        type=type,
    )
    return DEFAULT_OPTIONS if stored == DEFAULT_OPTIONS else stored


def with_changes(changed: Mapping[str, Any], options: Options, controls: Controls) -> tuple[Options, Controls]:
    """Return what is stored with a job whose call changes these options of its type (CHANGEABLE).  None means: as by
    default, whatever the type has; for `keep_result`, as HISTORY says."""
    if "timeout" in changed:
        options = replace(options, timeout=_ms(changed["timeout"]))
        controls = replace(controls, alone=changed["timeout"] is not None)
    if "soft_timeout" in changed:
        options = replace(options, soft_timeout=_ms(changed["soft_timeout"]) or 0)
    if "backoff" in changed:
        pauses = changed["backoff"]
        options = replace(options, backoff=_FORMULA if pauses is None else " ".join(str(_ms(each)) for each in pauses))
    if "keep_result" in changed:
        options = replace(options, result=changed["keep_result"] != 0)
        controls = replace(controls, keep_result=_ms(changed["keep_result"]) or None)
    if called := {name: changed[name] for name in ("on_end", "on_dead") if name in changed}:
        controls = replace(controls, **called)
    return options, controls


#: What Options.backoff has for a call that asks for the pauses of a job type without `backoff`.
_FORMULA = "formula"
_PAUSES = re.compile(r"\d{1,15}( \d{1,15})*")


def soft_timeout_of(job: Job, options: OptionAttributes) -> float | None:
    """Return the soft limit of a job in seconds: that of its call, or that of its type; None = none."""
    ms = job.options.soft_timeout
    return options.soft_timeout if ms is None else ms / 1000 if ms > 0 else None


def backoff_of(job: Job, backoff: Any) -> Any:
    """Return the pauses of a job: those of its call, or `backoff`, those of its type."""
    text = job.options.backoff
    if text == _FORMULA:
        return None
    return tuple(int(ms) / 1000 for ms in text.split(" ")) if _PAUSES.fullmatch(text) else backoff


def stores_result(job: Job, options: OptionAttributes) -> bool:
    """Return whether a result of this job is stored at all."""
    return job.options.result and not (options.keep_result == 0 and job.controls.keep_result is None)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _stored_controls(options: JobOptions) -> Controls:
    stored = Controls(
        priority=options.priority,
        alone=options.timeout is not None,
        at_most_once=options.delivery != "at_least_once",
        # 0 stores no result, so there is nothing to keep: such a job stays as long as HISTORY says.
        keep_result=round(options.keep_result * 1000) if options.keep_result else None,
        on_end=options.on_end,
        on_dead=options.on_dead,
    )
    return PLAIN if stored == PLAIN else stored
