"""The schedules from code and settings: `@job(cron=…)` and DJANGO_JOBS["SCHEDULES"]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import check_name
from django_jobs.exceptions import InvalidJob, InvalidSchedule
from django_jobs.schedules.entry import Entry, check_entry

#: The options that an entry of SCHEDULES may have.
OPTIONS = frozenset(each.name for each in fields(Entry)) - {"id", "source", "label"}


def code_entries() -> list[Entry]:
    """Return the schedules from code and settings, unchecked; they change only by a deployment."""
    settings = get_settings()
    decorated = [
        Entry(f"job:{each.name}", each.name, each.cron, timezone=settings.time_zone, source="job", label=each.name)
        for each in registry.all_definitions()
        if each.cron is not None
    ]
    return decorated + [settings_entry(key, options) for key, options in settings.schedules.items()]


def settings_entry(key: str, options: Mapping[str, Any]) -> Entry:
    """Return one entry of SCHEDULES.  Ignores unknown options: the system check reports them."""
    known = {name: value for name, value in options.items() if name in OPTIONS}
    zone = known.pop("timezone", None) or get_settings().time_zone
    given = {"job": "", "cron": "", **known}
    return Entry(id=f"settings:{key}", timezone=zone, source="settings", label=key, **given)


def schedule_problems(key: Any, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence per problem of an entry of SCHEDULES that has a job and a cron, for the system check."""
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
        check_entry(settings_entry(key, options))
    except InvalidSchedule as error:
        yield f"{place}: {error}"
