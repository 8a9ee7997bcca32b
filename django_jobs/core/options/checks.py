"""What the value of an option may be: functions that return it as it is kept, or raise ValueError or TypeError."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from django_jobs.exceptions import InvalidArguments

T = TypeVar("T")
Backoff = tuple[float, ...] | Callable[[int, BaseException], float] | None
Errors = tuple[type[BaseException], ...]
UNIQUE_MODES = ("queued", "running", "success")
#: Ten years.  A larger number is more likely a wrong unit.
LONGEST = 3650 * 86_400.0
#: Most tags of one job, and characters of one tag: they are stored with each job.
MOST_TAGS = 8
LONGEST_TAG = 64
#: No spaces and no quotes, so that scripts and addresses need no second form of a tag.
TAG = r"[A-Za-z0-9_][A-Za-z0-9_.:/@+=-]{0,63}"
_TAG = re.compile(TAG)


def whole(least: int, most: int) -> Callable[[Any], int]:
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


def or_none(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else check(value)


def duration(least: float = 0.001) -> Callable[[Any], float | None]:
    return or_none(lambda value: seconds(value, least=least))


def one_of(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"use one of {', '.join(map(repr, choices))}.")
        return value

    return check


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("use text that is not empty.")
    return value


def job_name(value: Any) -> str:
    return text(getattr(value, "name", value))


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("use True or False.")
    return value


def names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) and name for name in value):
        raise ValueError("use a list of parameter names, as in ['order_id'].")
    return tuple(value)


def exceptions(value: Any) -> Errors:
    classes = (value,) if isinstance(value, type) else tuple(value)
    if not all(isinstance(c, type) and issubclass(c, Exception) for c in classes):
        raise ValueError("use a tuple of exception classes, as in (OSError, TimeoutError).")
    return classes


def backoff(value: Any) -> Any:
    if value is None or callable(value):
        return value
    if isinstance(value, int | float | timedelta):
        value = [value]
    if isinstance(value, str) or not (pauses := tuple(seconds(pause, least=0) for pause in value)):
        raise ValueError("use a list of seconds, as in [10, 60, 600], or callable(attempt, error) -> seconds.")
    return pauses


def unique(value: Any) -> Any:
    if value is None or value in UNIQUE_MODES:
        return value
    if not isinstance(value, timedelta):
        raise ValueError(f"use one of {', '.join(map(repr, UNIQUE_MODES))}, or a timedelta.")
    return seconds(value)


def key(value: Any) -> Any:
    if value is None or callable(value) or (isinstance(value, str) and value):
        return value
    raise ValueError("use the name of a parameter, or a callable that takes the job's arguments.")


# -- tags: words on a job by which people find it and count it ---------------------


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
