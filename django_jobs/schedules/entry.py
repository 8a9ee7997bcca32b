"""One periodic job from any source: a frozen value, and the check of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.options.declared import OPTIONS
from django_jobs.exceptions import InvalidSchedule, JobsError
from django_jobs.schedules import cron
from django_jobs.serialization import arguments

#: What happens to scheduled times that passed while no worker ran.
MISSED = ("one", "skip", "all")
#: What happens when the job of the last run has not ended.
OVERLAP = ("allow", "skip")
#: Longest jitter, seconds: a day.
MAX_JITTER = 86_400
_JOB_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """One schedule.  `id` starts with its source: "job:", "settings:" or "db:"."""

    id: str
    job: str
    #: when it runs: a cron expression, or a text of interval.py.
    cron: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    timezone: str = "UTC"
    missed: str = "one"
    overlap: str = "allow"
    #: each run is delayed by 0 … this many seconds, the same in every process.
    jitter: float = 0
    #: of its jobs; "" and None: as their type has it.
    queue: str = ""
    priority: int | None = None
    #: seconds after which a job that has not started is expired; None: as its type has it.
    expires_in: float | None = None
    enabled: bool = True
    #: "job" (a decorator) | "settings" | "database"
    source: str = "settings"
    label: str = ""

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of its wall-clock times."""
        return ZoneInfo(self.timezone)

    @property
    def times(self) -> str:
        """Identifies the sequence of scheduled times: it differs for another expression or zone."""
        return hashlib.sha256(f"{self.cron} {self.timezone}".encode()).hexdigest()[:8]

    def job_id(self, scheduled: int) -> str:
        """Return the id of the job of one scheduled time (ms), the same in every process."""
        plain = f"cron:{self.id}:{scheduled}"
        if _JOB_ID.fullmatch(plain):
            return plain
        return f"cron:{hashlib.sha256(self.id.encode()).hexdigest()[:32]}:{scheduled}"


def check_entry(entry: ScheduleEntry) -> None:
    """Raise InvalidSchedule with the option, the value and the remedy if the schedule cannot run."""
    try:
        cron.parse(entry.cron)
    except JobsError as error:
        raise InvalidSchedule(str(error), "cron") from error
    _check_zone(entry.timezone)
    _check_choice("missed", entry.missed, MISSED)
    _check_choice("overlap", entry.overlap, OVERLAP)
    if (
        isinstance(entry.jitter, bool)
        or not isinstance(entry.jitter, int | float)
        or not 0 <= entry.jitter <= MAX_JITTER
    ):
        raise InvalidSchedule(f"jitter is {entry.jitter!r}. Write seconds, from 0 to {MAX_JITTER}.", "jitter")
    if not isinstance(entry.enabled, bool):
        raise InvalidSchedule(f"enabled is {entry.enabled!r}. Write True or False.", "enabled")
    if entry.queue and not (isinstance(entry.queue, str) and entry.queue in get_settings().queues):
        known = ", ".join(get_settings().queues.written)
        raise InvalidSchedule(f"queue is {entry.queue!r}, which is not in QUEUES. Write one of {known}.", "queue")
    for option in ("priority", "expires_in"):
        if (value := getattr(entry, option)) is not None:
            try:
                OPTIONS[option].check(value)
            except (ValueError, TypeError) as error:
                raise InvalidSchedule(f"{option} is {value!r}: {error}", option) from error
    _check_call(entry)


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InvalidSchedule(f"timezone is {name!r}. Write a name such as 'Europe/Paris'.", "timezone") from error


def _check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise InvalidSchedule(f"{option} is {value!r}. Write one of {listed}.", option)


def _check_call(entry: ScheduleEntry) -> None:
    # Pages show these texts, and arguments may be sensitive: neither quotes a value.
    if isinstance(entry.args, str) or not isinstance(entry.args, Sequence):
        raise InvalidSchedule(f"args is of type {_type(entry.args)}. Write a list of positional arguments.", "args")
    if not isinstance(entry.kwargs, Mapping):
        message = f"kwargs is of type {_type(entry.kwargs)}. Write a dictionary of keyword arguments."
        raise InvalidSchedule(message, "kwargs")
    if wrong := [_type(key) for key in entry.kwargs if not isinstance(key, str)]:
        raise InvalidSchedule(f"kwargs has a key of type {wrong[0]}. Write the names of parameters.", "kwargs")
    try:
        definition = registry.get(entry.job)
    except JobsError as error:
        raise InvalidSchedule(str(error), "job") from error
    try:
        definition.check_call(entry.args, entry.kwargs)
        arguments.dump(list(entry.args), dict(entry.kwargs))
    except JobsError as error:
        raise InvalidSchedule(str(error), "kwargs" if entry.kwargs and not entry.args else "args") from error


def _type(value: object) -> str:
    return type(value).__name__
