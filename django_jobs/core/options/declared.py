"""The options of `@job`: each is declared once, in `OptionAttributes`.

The declaration gives the attributes of a job, the checks, the keywords for type checkers (enqueueing/keywords.py), the
options of tasks, `help(job)` and the tables of docs/reference/job-options.md; `make docs` writes the two files again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from django_jobs.core.options import checks
from django_jobs.core.options.checks import Backoff
from django_jobs.exceptions import InvalidJob

T = TypeVar("T")

CONFLICTS = ("skip", "replace", "debounce", "raise")
#: Highest and lowest `priority` inside a queue.
MAX_PRIORITY = 100
#: Parent processes enforce time limits; they check too rarely to keep a shorter one.
SHORTEST_TIMEOUT = 0.01


class Option(Generic[T]):
    """One option: what it is by default, what it may be, and what it means.

    As an attribute of a JobDefinition it is the value from `@job`, else from JOB_DEFAULTS, else the default.
    """

    name: str

    def __init__(
        self,
        default: T,
        check: Callable[[Any], T],
        type: str,
        words: str,
        *,
        shown: str = "",
        defaults: bool = True,
        using: bool = False,
        task: str = "",
    ) -> None:
        """`check` returns a value as it is kept, or raises ValueError or TypeError; `type` is the type of what callers
        give, and `words` the meaning, for documents.  `shown`: the default in documents, if not as it is written.

        `defaults`: JOB_DEFAULTS may have it.  `using`: so may `using()`.  `task`: tasks of Django's framework have it,
        for each "call", or only for a "type", in which workers look it up."""
        self.default, self.check, self.type, self.words = default, check, type, words
        self.shown = shown or f"`{default!r}`".replace("'", '"')
        self.defaults, self.using, self.task = defaults, using, task

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, instance: OptionAttributes, owner: type) -> T: ...
    def __get__(self, instance: OptionAttributes | None, owner: type) -> T | Option[T]:
        # JobOptions has its values in its __dict__, where they are found first.
        return self if instance is None else instance.options.__dict__[self.name]


class OptionAttributes:
    """Every option of `@job` as an attribute.  Durations are seconds."""

    if TYPE_CHECKING:

        @property
        def options(self) -> JobOptions: ...

    # fmt: off
    queue = Option("default", checks.text, "str", "must be in `QUEUES`, or fit a pattern there", using=True)
    priority = Option(
        0, checks.whole(-MAX_PRIORITY, MAX_PRIORITY), "int",
        "−100…100 inside its queue, higher first; equal priorities in order of arrival", using=True,
    )
    max_attempts = Option(
        10, checks.whole(1, 1_000_000), "int", "all attempts; 1 = never retried", using=True, task="call",
    )
    backoff = Option[Backoff](
        None, checks.backoff, "Duration | Sequence[Duration] | Callable[[int, BaseException], float] | None",
        "a list of seconds, or `callable(attempt, error) -> seconds`; for one call, a list", task="type", using=True,
        shown="`n⁴ + 15` s after attempt n and up to `10 · (n + 1)` s of jitter, at most a day",
    )
    retry_on = Option[checks.Errors](
        (Exception,), checks.exceptions, "Errors", task="type", shown="`(Exception,)`",
        words="exception classes after which the job is tried again; after others it goes to dead",
    )
    discard_on = Option[checks.Errors](
        (), checks.exceptions, "Errors", "exception classes that end the job as cancelled", task="type",
    )
    on_exhausted = Option(
        "dead", checks.one_of("dead", "discard"), 'Literal["dead", "discard"]', task="call",
        words='or `"discard"`: after the last attempt, end as cancelled',
    )
    timeout = Option(
        None, checks.duration(SHORTEST_TIMEOUT), "Duration | None", task="call", using=True,
        words="seconds for one attempt; enforced by ending the process, so no job can run longer",
    )
    soft_timeout = Option(
        None, checks.duration(SHORTEST_TIMEOUT), "Duration | None", task="type", using=True,
        words='seconds after which `ctx.should_stop` is true, with `ctx.stop_reason == "timeout"`, and an `async def` '
        "is cancelled, which counts as a failed attempt; must be less than `timeout`. A plain function gets no "
        "exception: it has to check `ctx.should_stop`",
    )
    expires_in = Option(
        None, checks.duration(), "Duration | None", task="call",
        words="seconds after which a job that has not started is expired, counted from when it could first run, by the "
        "store's clock. A job that has started is retried, however late it is",
    )
    delivery = Option(
        "at_least_once", checks.one_of("at_least_once", "at_most_once", "once_unless_failed"), task="call",
        type='Literal["at_least_once", "at_most_once", "once_unless_failed"]',
        words='or `"at_most_once"`: never started twice, one attempt; or `"once_unless_failed"`: retried if its '
        "function fails, but never started again because its worker was lost or its time limit was over",
    )
    max_concurrency = Option(
        0, checks.whole(0, 1_000_000), "int", task="type",
        words="jobs that run at the same time, over all processes and machines; `0` = no limit",
    )
    concurrency_key = Option[str | Callable[..., Any] | None](
        None, checks.key, "str | Callable[..., Any] | None", defaults=False, task="type",
        words="an argument's name, or a callable of the arguments: `max_concurrency` then counts per value",
    )
    #: in seconds, if it is a period.
    unique = Option[str | float | None](
        None, checks.unique, 'Literal["queued", "running", "success"] | timedelta | None', using=True, task="call",
        words='`"queued"` (while it waits), `"running"` (until it ends), `"success"` (until it succeeds or is dead), '
        "or a `timedelta`",
    )
    unique_on = Option(
        None, checks.or_none(checks.names), "Sequence[str] | None", defaults=False, using=True, task="call",
        shown="all",
        words="names of the arguments that count, for `unique` and for `enqueue_unique`",
    )
    on_conflict = Option(
        "skip", checks.one_of(*CONFLICTS), 'Literal["skip", "replace", "debounce", "raise"]', using=True,
        words='or `"replace"` (arguments), `"debounce"` (arguments and time), `"raise"` (`DuplicateJob`): if an equal '
        "job waits",
    )
    keep_result = Option(
        None, checks.duration(least=0), "Duration | None", task="call", using=True,
        words="seconds to keep the return value; by default as long as `HISTORY` says; `0` = it is never stored",
    )
    on_end = Option[str | None](
        None, checks.or_none(checks.job_name), "str | Callable[..., Any] | None", defaults=False, using=True,
        words="a job, or its name: it is enqueued once for each end of a job, with "
        "[one argument](../howto/jobs.md#a-job-for-each-end)",
    )
    on_dead = Option[str | None](
        None, checks.or_none(checks.job_name), "str | Callable[..., Any] | None", defaults=False, using=True,
        words="the same, if the job is dead",
    )
    takes_context = Option(False, checks.truth, "bool", "the first argument is a `JobContext`", defaults=False)
    api = Option(False, checks.truth, "bool", "may be enqueued over HTTP")
    sensitive = Option[tuple[str, ...]](
        (), checks.names, "Sequence[str]", "names of arguments whose values are shown as `••••` wherever they appear",
        task="type",
    )
    cron = Option(
        None, checks.or_none(checks.text), "str | None", defaults=False,
        words="a schedule: five fields, or six with the seconds first",
    )
    tags = Option[tuple[str, ...]](
        (), checks.check_tags, "tuple[str, ...] | list[str]", using=True, task="call",
        words="words to find and count jobs by; `using(tags=…)` adds more",
    )
    on_missing = Option(
        "fail", checks.one_of("fail", "discard"), 'Literal["fail", "discard"]',
        'what happens if a model instance among the arguments no longer exists: `"fail"`, or `"discard"`',
    )
    # fmt: on


class JobOptions(OptionAttributes):
    """Options in force: a value for each."""

    def __init__(self, **chosen: Any) -> None:
        self.__dict__.update(_DEFAULTS, **chosen)


OPTIONS: Mapping[str, Option[Any]] = {k: v for k, v in vars(OptionAttributes).items() if isinstance(v, Option)}
#: What `@job` takes and JobDefinition keeps for itself.
NAMING: Mapping[str, Option[Any]] = {
    "name": Option("module.function", checks.text, "str", "the name that is stored with the job"),
    "aliases": Option(
        (), checks.names, "Sequence[str]", "older names, the oldest first: see [another name](#another-name)"
    ),
}
KNOWN = frozenset(OPTIONS) | frozenset(NAMING)
#: What a project may set for all its jobs.  The other options belong to one function.
DEFAULTABLE = frozenset(name for name, option in OPTIONS.items() if option.defaults)
#: Options of a type that one call may change.  Its job stores them.
CHANGEABLE = frozenset({"timeout", "soft_timeout", "backoff", "keep_result", "on_end", "on_dead"})
#: What `using` takes too.
SHARED = frozenset(name for name, option in OPTIONS.items() if option.using)
_DEFAULTS = {name: option.default for name, option in OPTIONS.items()}


def described(options: Mapping[str, Option[Any]]) -> str:
    """Return a list of these options, their defaults and what they mean, for `help()`."""
    return "\n".join(f"- `{name}` ({option.shown}): {option.words}" for name, option in options.items())


def check_options(given: Mapping[str, Any], owner: str, known: frozenset[str] = KNOWN) -> dict[str, Any]:
    """Return `given` in the form that JobOptions stores.  Raises InvalidJob with `owner`, the value and the remedy."""
    checked = {}
    for name, value in given.items():
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known options: {', '.join(sorted(known))}."
            raise InvalidJob(f"{owner}: unknown option {name!r}. {hint}")
        try:
            checked[name] = OPTIONS[name].check(value)
        except (ValueError, TypeError) as error:
            raise InvalidJob(f"{owner}: {name}={value!r}: {error}") from error
    check_limits(checked, owner)
    return checked


def check_limits(options: Mapping[str, Any], owner: str) -> None:
    """Raise InvalidJob unless `soft_timeout` is shorter than `timeout`."""
    soft, hard = options.get("soft_timeout"), options.get("timeout")
    if soft is not None and hard is not None and soft >= hard:
        raise InvalidJob(
            f"{owner}: soft_timeout={soft:g} is not less than timeout={hard:g}, at which the process is ended. "
            "Use a smaller soft_timeout, so that the job has time to clean up."
        )
