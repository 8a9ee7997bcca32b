"""`crontab`, and the schedule of beat as entries of our schedules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django_jobs.compat.celery.app import send_task, shared_task
from django_jobs.compat.celery.calls import chosen_for, priority_of, queue_of, seconds
from django_jobs.compat.celery.conf import conf
from django_jobs.compat.celery.exceptions import Unsupported
from django_jobs.compat.celery.missing import NAMES, refuse
from django_jobs.core import registry
from django_jobs.schedules.entry import ScheduleEntry

__all__ = ["crontab", "schedule"]


class schedule:
    """Every `run_every` seconds (or a timedelta)."""

    def __init__(self, run_every: float | timedelta, relative: bool = False, **options: Any) -> None:
        if relative or options:
            raise Unsupported("schedule(): use run_every only.")
        self.run_every = run_every

    @property
    def cron(self) -> str:
        """The text of schedules/interval.py.  Raises Unsupported for parts of a second."""
        every = self.run_every.total_seconds() if isinstance(self.run_every, timedelta) else self.run_every
        if every < 1 or not float(every).is_integer():
            raise Unsupported(f"A schedule of every {every:g} s: use whole seconds, at least one.")
        return f"@every {int(every)}s"


class crontab:
    """Times of the wall clock in the zone of CELERY_TIMEZONE, as in Celery: texts, numbers, or lists of numbers."""

    def __init__(
        self,
        minute: Any = "*",
        hour: Any = "*",
        day_of_month: Any = "*",
        month_of_year: Any = "*",
        day_of_week: Any = "*",
        **options: Any,
    ) -> None:
        if options:
            raise Unsupported(f"crontab({', '.join(sorted(options))}): set the time zone in CELERY_TIMEZONE.")
        self.fields = (minute, hour, day_of_month, month_of_year, day_of_week)

    def __repr__(self) -> str:
        return f"<crontab: {self.cron}>"

    @property
    def cron(self) -> str:
        """The expression.  Raises Unsupported if both day fields are restricted: Celery wants both, and cron either."""
        fields = [_field(each) for each in self.fields]
        if fields[2] != "*" and fields[4] != "*":
            raise Unsupported(
                f"crontab with day_of_month={fields[2]} and day_of_week={fields[4]}: Celery runs it if both match, and "
                "cron if either does. Restrict one of them, and check the other in the task."
            )
        return " ".join(fields)


def _field(value: Any) -> str:
    if isinstance(value, str):
        # Of a name such as "sunday", the first three letters count.
        return re.sub("[A-Za-z]+", lambda name: name[0][:3], value.replace(" ", ""))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, Iterable):
        return ",".join(map(str, sorted(value)))
    raise Unsupported(f"crontab: {value!r} is neither text nor a number nor a list of numbers.")


def entries() -> list[ScheduleEntry]:
    """Return the schedule of beat: CELERY_BEAT_SCHEDULE, and what was added to `app.conf.beat_schedule`.

    Raises Unsupported for a schedule that is none."""
    return [_entry(key, dict(options)) for key, options in (conf.beat_schedule or {}).items()]


def _entry(key: str, options: dict[str, Any]) -> ScheduleEntry:
    when = options.pop("schedule", None)
    if isinstance(when, int | float | timedelta) and not isinstance(when, bool):
        when = schedule(when)
    if not isinstance(when, schedule | crontab):
        raise Unsupported(
            f"CELERY_BEAT_SCHEDULE[{key!r}]: schedule={when!r} is no crontab of django_jobs.compat.celery, number of "
            "seconds, or timedelta."
        )
    task = options.pop("task", None)
    if not isinstance(task, str):
        raise Unsupported(f"CELERY_BEAT_SCHEDULE[{key!r}]: task={task!r}: write the name of a task.")
    args, kwargs = list(options.pop("args", None) or ()), dict(options.pop("kwargs", None) or {})
    call = options.pop("options", None) or {}
    options.pop("relative", None)
    if options:
        raise Unsupported(f"CELERY_BEAT_SCHEDULE[{key!r}] has an unknown key {sorted(options)[0]!r}.")
    fields: dict[str, Any] = {}
    chosen = chosen_for(getattr(registry.find(task), "task", None), task, args, kwargs, call)
    if chosen.keys() <= {"queue", "priority", "expires"} and not isinstance(chosen.get("expires"), str | datetime):
        fields = _fields(task, chosen)
    else:
        # An entry has not these options of a call, so a task of ours makes the call.
        args, kwargs, task = [task, args, kwargs, _plain(key, call)], {}, enqueue.name
    return ScheduleEntry(
        id=f"celery:{key}", job=task, cron=when.cron, args=args, kwargs=kwargs,
        timezone=str(conf.timezone or "UTC"), source="celery", label=key, **fields,
    )  # fmt: skip


def _fields(task: str, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call as fields of an entry."""
    return {
        "queue": queue_of(call) or "",
        "priority": priority_of(task, call.get("priority")) or None,
        "expires_in": seconds(call.get("expires")),
    }


def _plain(key: str, call: Mapping[str, Any]) -> dict[str, Any]:
    if unfit := sorted(call.keys() - {"queue", "priority", "expires", "time_limit", "soft_time_limit", "headers"}):
        raise Unsupported(f"CELERY_BEAT_SCHEDULE[{key!r}]: the option {unfit[0]!r} is not kept. Remove it.")
    return dict(call)


@shared_task(name="celery.beat", ignore_result=True, acks_late=True)
def enqueue(name: str, args: list[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> None:
    """Enqueue a task of the schedule that has options of its own.  Its id follows from this job's: it is one job."""
    # An id has 128 characters at most: without "cron:", which the id of each run begins with, there is room.
    send_task(name, args, kwargs, task_id=f"{str(enqueue.request.id)[-123:]}.call", **options)


def __getattr__(name: str) -> Any:
    return refuse(__name__, name, NAMES)
