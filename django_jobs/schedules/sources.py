"""The schedules from code and settings: `@job(cron=…)` and DJANGO_JOBS["SCHEDULES"]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import check_name
from django_jobs.exceptions import InvalidJob, InvalidSchedule
from django_jobs.schedules.entry import ScheduleEntry, check_entry
from django_jobs.schedules.interval import check_timing, timing

#: The options that an entry of SCHEDULES may have.
OPTIONS = frozenset(each.name for each in fields(ScheduleEntry)) - {"id", "source", "label"} | {"every", "at"}
#: Functions that return further schedules from code.
_further: list[Callable[[], list[ScheduleEntry]]] = []


def add_source(entries: Callable[[], list[ScheduleEntry]]) -> None:
    """Run the schedules that `entries` returns, too.  They must change only by a deployment."""
    if entries not in _further:
        _further.append(entries)


def code_entries() -> list[ScheduleEntry]:
    """Return the schedules from code and settings, unchecked; they change only by a deployment."""
    settings = get_settings()
    decorated = [
        ScheduleEntry(
            f"job:{each.identity}", each.name, each.cron, timezone=settings.time_zone, source="job", label=each.name
        )
        for each in registry.all_definitions()
        if each.cron is not None
    ]
    written = [settings_entry(key, options) for key, options in settings.schedules.items()]
    return [*decorated, *written, *(each for further in _further for each in further())]


def settings_entry(key: str, options: Mapping[str, Any]) -> ScheduleEntry:
    """Return one entry of SCHEDULES.  Ignores unknown options: the system check reports them."""
    known = {name: value for name, value in options.items() if name in OPTIONS}
    zone = known.pop("timezone", None) or get_settings().time_zone
    cron = timing(known.pop("cron", ""), known.pop("every", None), known.pop("at", None))
    given = {"job": "", "cron": cron, **known}
    return ScheduleEntry(id=f"settings:{key}", timezone=zone, source="settings", label=key, **given)


def schedule_problems(key: Any, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence per problem of an entry of SCHEDULES that has a job, for the system check."""
    place = f"DJANGO_JOBS['SCHEDULES'][{key!r}]"
    try:
        check_name(key, place)
    except InvalidJob as error:
        yield str(error)
        return
    for name in options:
        if name not in OPTIONS:
            yield f"{place} has an unknown key {name!r}. Use some of {', '.join(sorted(OPTIONS))}."
    try:
        check_timing(options.get("cron"), options.get("every"), options.get("at"))
        check_entry(settings_entry(key, options))
    except InvalidSchedule as error:
        yield f"{place}: {error}"
