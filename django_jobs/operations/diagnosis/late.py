"""Schedules that are not as they should be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from django_jobs import schedules
from django_jobs.exceptions import JobsError, StoreError
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import latest_runs
from django_jobs.schedules.entry import ScheduleEntry, check_entry
from django_jobs.schedules.missed import LATE
from django_jobs.stores import get_store


class LateSchedule(NamedTuple):
    """A schedule that did not run, cannot, skipped its last run, or is paused."""

    name: str
    #: ms: the scheduled time for which no job was enqueued; 0 = it cannot run.
    missed: int = 0
    problem: str = ""
    #: ms: its last scheduled time, if that was skipped because the job of an earlier one had not ended.
    skipped: int = 0
    #: ms: since when it is paused.
    paused: int = 0


def late_schedules(entries: Sequence[ScheduleEntry], now: int) -> tuple[list[LateSchedule], int]:
    """Return the schedules that are not as they should be, and the number of those that are on and not paused."""
    state = schedule_state.read_state(get_store())
    late: list[LateSchedule] = []
    active = 0
    for entry in entries:
        if not entry.enabled:
            continue
        name = entry.label or entry.id
        if (paused := state.paused_at(entry)) is not None:
            late.append(LateSchedule(name, paused=paused))
            continue
        active += 1
        try:
            check_entry(entry)
            if missed := missed_run(entry, state, now):
                late.append(LateSchedule(name, missed))
            elif (skipped := state.passed_over(entry)) > state.last_run(entry).at:
                late.append(LateSchedule(name, skipped=skipped))
        except StoreError:
            raise
        except JobsError as error:
            late.append(LateSchedule(name, problem=str(error)))
    return late, active


def missed_run(entry: ScheduleEntry, state: schedule_state.ScheduleState, now: int) -> int:
    """Return the last scheduled time (ms) that passed longer than LATE ago without a job and was not skipped; 0 = none.

    A schedule that no worker has ever seen has no scheduled times yet."""
    since = state.since(entry)
    if since is None:
        return 0
    cursor = schedules.from_ms(max(since, state.last_run(entry).at, state.passed_over(entry)))
    until = schedules.from_ms(now) - LATE
    runs = latest_runs(entry.cron, cursor, until, entry.zone, 1) if until - cursor > timedelta() else []
    return schedules.to_ms(runs[0]) if runs else 0
