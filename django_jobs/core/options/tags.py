"""Tags: words on a job by which people find it and count it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django_jobs.exceptions import InvalidArguments

#: Most tags of one job, and characters of one tag: they are stored with each job.
MOST_TAGS = 8
LONGEST_TAG = 64
#: No spaces and no quotes, so that scripts and addresses need no second form of a tag.
TAG = r"[A-Za-z0-9_][A-Za-z0-9_.:/@+=-]{0,63}"
_TAG = re.compile(TAG)


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
