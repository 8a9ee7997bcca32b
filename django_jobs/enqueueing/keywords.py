"""The options of `@job` and of `using` with their types: editors and type checkers find a misspelt one.

Made by `make docs` from core/options/declared.py and enqueueing/call_options.py; do not edit it by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID

#: Seconds, or a timedelta.
Duration = float | timedelta
Errors = type[Exception] | Sequence[type[Exception]]


class SharedKeywords(TypedDict, total=False):
    """What `@job` and `using` both take."""

    queue: str
    priority: int
    max_attempts: int
    backoff: Duration | Sequence[Duration] | Callable[[int, BaseException], float] | None
    timeout: Duration | None
    soft_timeout: Duration | None
    unique: Literal["queued", "running", "success"] | timedelta | None
    unique_on: Sequence[str] | None
    on_conflict: Literal["skip", "replace", "debounce", "raise"]
    keep_result: Duration | None
    on_end: str | Callable[..., Any] | None
    on_dead: str | Callable[..., Any] | None
    tags: tuple[str, ...] | list[str]


class JobKeywords(SharedKeywords, total=False):
    """What `@job` takes, without `takes_context`."""

    name: str
    aliases: Sequence[str]
    retry_on: Errors
    discard_on: Errors
    on_exhausted: Literal["dead", "discard"]
    expires_in: Duration | None
    delivery: Literal["at_least_once", "at_most_once", "once_unless_failed"]
    max_concurrency: int
    concurrency_key: str | Callable[..., Any] | None
    api: bool
    sensitive: Sequence[str]
    cron: str | None
    on_missing: Literal["fail", "discard"]


class UsingKeywords(SharedKeywords, total=False):
    """What `using` takes."""

    job_id: str | UUID | None
    run_at: datetime | None
    expires_at: datetime | None
    on_commit: bool | None
    outbox: bool
    block_timeout: float | None
    meta: dict[str, Any]
