"""The options of `@job`: their defaults and allowed values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from django_jobs.core.values import MAX_PRIORITY
from django_jobs.exceptions import InvalidArguments, InvalidJob

Backoff = tuple[float, ...] | Callable[[int, BaseException], float]
UNIQUE_MODES = ("queued", "running", "success")
CONFLICTS = ("skip", "replace", "debounce", "raise")
#: Parent processes enforce time limits; they check too rarely to keep a shorter one.
SHORTEST_TIMEOUT = 0.01
#: Ten years.  A larger number is more likely a wrong unit.
LONGEST = 3650 * 86_400.0
#: Most tags of one job, and characters of one tag: they are stored with each job.
MOST_TAGS = 8
LONGEST_TAG = 64
#: No spaces and no quotes, so that scripts and addresses need no second form of a tag.
TAG = r"[A-Za-z0-9_][A-Za-z0-9_.:/@+=-]{0,63}"
_TAG = re.compile(TAG)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Every option of `@job`, checked.  Durations are seconds."""

    queue: str = "default"
    priority: int = 0
    max_attempts: int = 10
    #: None: the formula of core/outcome.py.
    backoff: Backoff | None = None
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    discard_on: tuple[type[BaseException], ...] = ()
    on_exhausted: str = "dead"
    timeout: float | None = None
    #: `should_stop` becomes true after this time, and an `async def` is cancelled.
    soft_timeout: float | None = None
    expires_in: float | None = None
    delivery: str = "at_least_once"
    max_concurrency: int = 0
    concurrency_key: str | Callable[..., Any] | None = None
    #: None, one of UNIQUE_MODES, or a period in seconds.
    unique: str | float | None = None
    unique_on: tuple[str, ...] | None = None
    on_conflict: str = "skip"
    keep_result: float | None = None
    takes_context: bool = False
    api: bool = False
    sensitive: tuple[str, ...] = ()
    cron: str | None = None
    #: what to do if a model instance among the arguments no longer exists when the job starts: "fail" | "discard".
    on_missing: str = "fail"
    #: words to find and count jobs by; `using(tags=…)` adds more.
    tags: tuple[str, ...] = ()


NAMES = tuple(f.name for f in fields(JobOptions))
#: What `@job` takes: these options, and what JobDefinition keeps for itself.
KNOWN = frozenset(NAMES) | {"name", "aliases"}
#: What a project may set for all its jobs.  The other options belong to one function.
DEFAULTABLE = frozenset(NAMES) - {"concurrency_key", "unique_on", "takes_context", "cron"}
DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(JobOptions) if f.default is not MISSING}


def check_options(given: Mapping[str, Any], owner: str, known: frozenset[str] = KNOWN) -> dict[str, Any]:
    """Return `given` in the form that JobOptions stores.  Raises InvalidJob with `owner`, the value and the remedy."""
    checked = {}
    for name, value in given.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known options: {', '.join(sorted(known))}."
            raise InvalidJob(f"{owner}: unknown option {name!r}. {hint}")
        try:
            checked[name] = _CHECKS[name](value)
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


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"use a whole number from {least} to {most}.")
        return value

    return check


def seconds(value: Any, *, least: float = 0.001) -> float:
    """Return a duration (seconds or timedelta) in seconds.  Raises ValueError below `least` or above ten years."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError("use seconds (a number) or a timedelta.")
    if not least <= number <= LONGEST:
        raise ValueError(f"use a duration from {least:g} s to {LONGEST:.0f} s (ten years).")
    return float(number)


def _duration(least: float = 0.001) -> Callable[[Any], float | None]:
    return lambda value: None if value is None else seconds(value, least=least)


def _one_of(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"use one of {', '.join(map(repr, choices))}.")
        return value

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("use text that is not empty.")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("use True or False.")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) and name for name in value):
        raise ValueError("use a list of parameter names, as in ['order_id'].")
    return tuple(value)


def _exceptions(value: Any) -> tuple[type[BaseException], ...]:
    classes = (value,) if isinstance(value, type) else tuple(value)
    if not all(isinstance(c, type) and issubclass(c, Exception) for c in classes):
        raise ValueError("use a tuple of exception classes, as in (OSError, TimeoutError).")
    return classes


def _backoff(value: Any) -> Any:
    if value is None or callable(value):
        return value
    if isinstance(value, int | float | timedelta):
        value = [value]
    if isinstance(value, str) or not (pauses := tuple(seconds(pause, least=0) for pause in value)):
        raise ValueError("use a list of seconds, as in [10, 60, 600], or callable(attempt, error) -> seconds.")
    return pauses


def _unique(value: Any) -> Any:
    if value is None or value in UNIQUE_MODES:
        return value
    if not isinstance(value, timedelta):
        raise ValueError(f"use one of {', '.join(map(repr, UNIQUE_MODES))}, or a timedelta.")
    return seconds(value)


def _key(value: Any) -> Any:
    if value is None or callable(value) or (isinstance(value, str) and value):
        return value
    raise ValueError("use the name of a parameter, or a callable that takes the job's arguments.")


# -- tags ------------------------------------------------------------------------


def check_tags(value: Any) -> tuple[str, ...]:
    """Return the tags, each once, in their order.  Raises ValueError with what is wrong and the remedy."""
    if not isinstance(value, list | tuple):
        example = f"({value!r:.80},)" if isinstance(value, str) and _TAG.fullmatch(value) else "('billing',)"
        raise ValueError(f"use a tuple or a list of words, as in tags={example}.")
    return _within_limit(tuple(dict.fromkeys(map(_checked, value))))


def merged(tags: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Return these tags and more, each once.  Raises ValueError if they are too many for one job."""
    return _within_limit(tuple(dict.fromkeys([*tags, *more])))


def tags_of_call(name: str, tags: Sequence[str], more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tags of one call, and more of them.  Raises InvalidArguments with the value and the remedy."""
    try:
        return merged(check_tags(tags), check_tags(more))
    except ValueError as error:
        raise InvalidArguments(f"{name}: tags={[*tags, *more]!r:.800}: {error}") from error


def _within_limit(tags: tuple[str, ...]) -> tuple[str, ...]:
    if len(tags) > MOST_TAGS:
        raise ValueError(
            f"these are {len(tags)} tags ({' '.join(tags):.600}), and a job has at most {MOST_TAGS}. Leave some out."
        )
    return tags


def _checked(tag: Any) -> str:
    if not isinstance(tag, str):
        raise ValueError(f"the tag {tag!r:.80} is not text. Write it as text, as in 'customer:42'.")
    if not tag:
        raise ValueError("a tag is empty. Leave it out.")
    if len(tag) > LONGEST_TAG:
        raise ValueError(
            f"the tag {tag!r:.80} has {len(tag)} characters, and a tag has at most {LONGEST_TAG}. Shorten it."
        )
    if not _TAG.fullmatch(tag):
        raise ValueError(
            f"the tag {tag!r} cannot be used. Use the letters A to Z and a to z, digits and _ . : / @ + = - "
            "(the first a letter, a digit or _), without spaces and commas."
        )
    return tag


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": _text,
    "priority": _whole(-MAX_PRIORITY, MAX_PRIORITY),
    "max_attempts": _whole(1, 1_000_000),
    "backoff": _backoff,
    "retry_on": _exceptions,
    "discard_on": _exceptions,
    "on_exhausted": _one_of("dead", "discard"),
    "timeout": _duration(SHORTEST_TIMEOUT),
    "soft_timeout": _duration(SHORTEST_TIMEOUT),
    "expires_in": _duration(),
    "delivery": _one_of("at_least_once", "at_most_once"),
    "max_concurrency": _whole(0, 1_000_000),
    "concurrency_key": _key,
    "unique": _unique,
    "unique_on": lambda value: None if value is None else _names(value),
    "on_conflict": _one_of(*CONFLICTS),
    "keep_result": _duration(least=0),
    "takes_context": _truth,
    "api": _truth,
    "sensitive": _names,
    "cron": lambda value: None if value is None else _text(value),
    "on_missing": _one_of("fail", "discard"),
    "tags": check_tags,
}
