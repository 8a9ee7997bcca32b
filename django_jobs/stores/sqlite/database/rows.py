"""Rows of table `jobs` as values, and values as rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_jobs.core.values import Controls

#: value of column `lane` for a suspect; 1 is alone.
SUSPECT = 2
#: value of column `blocked_by` of a running job that waits for `Store.begin`.
BEGIN = "begin"


class Row(NamedTuple):
    """One row of table `jobs`: the columns that transitions need for their decisions."""

    job: int
    id: str
    name: str
    state: str
    lane: int
    seq: int
    since: int
    at: int | None
    token: int
    holder: str | None
    stop: int
    failures: int
    crashes: int
    parked_at: int
    priority: int
    alone: int
    at_most_once: int
    expires_at: int | None
    lock: str | None
    lock_mode: str
    lock_for: int
    limit_key: str | None
    slots: int
    keep_for: int | None
    blocked_by: str | None


COLUMNS = ", ".join(f"jobs.{field}" for field in Row._fields)


def control_columns(controls: Controls) -> dict[str, Any]:
    """Return controls as columns of table `jobs`."""
    return {
        "priority": controls.priority,
        "alone": int(controls.alone),
        "at_most_once": int(controls.at_most_once),
        "expires_at": controls.expires_at,
        "lock": controls.unique,
        "lock_mode": controls.unique_mode,
        "lock_for": controls.unique_for,
        "limit_key": controls.limit_key,
        "slots": controls.limit,
        "keep_for": controls.keep_result,
    }
