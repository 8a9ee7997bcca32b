"""All alarms at one moment, with what could not be checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse
from django.utils.translation import override

from django_jobs.alarms.facts import Facts, Unchecked, measure
from django_jobs.alarms.rules import Alarm, alarms_of
from django_jobs.alarms.texts import link_of, text_of, unchecked_text
from django_jobs.serialization.payloads import iso


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` found."""

    #: ms by the store's clock.
    at: int
    alarms: Sequence[Alarm]
    unchecked: Sequence[Unchecked]

    @property
    def is_well(self) -> bool:
        """True only if everything was checked and there is no alarm."""
        return not self.alarms and not self.unchecked

    @property
    def unchecked_texts(self) -> list[str]:
        """A sentence about each thing that could not be checked, in the language of the reader."""
        return [unchecked_text(each) for each in self.unchecked]

    def as_json(self) -> dict[str, Any]:
        """Return it for programs; texts are English."""
        with override("en"):
            return {
                "well": self.is_well,
                "checked_at": iso(self.at),
                "alarms": [described(alarm) for alarm in self.alarms],
                "unchecked": [{"what": each.what, "text": unchecked_text(each)} for each in self.unchecked],
            }


def check(facts: Facts | None = None) -> Report:
    """Measure, and return every alarm.  Raises StoreUnavailable."""
    facts = measure() if facts is None else facts
    return Report(facts.now, alarms_of(facts), facts.unchecked)


def described(alarm: Alarm) -> dict[str, Any]:
    """Return one alarm for programs."""
    return {
        "kind": alarm.kind,
        "severity": alarm.severity.value,
        "since": iso(alarm.since) if alarm.since else None,
        "queue": alarm.queue or None,
        "text": text_of(alarm),
        "reason": alarm.reason or None,
        "link": address(alarm),
    }


def address(alarm: Alarm) -> str | None:
    """Return the address of the alarm's page in the admin; None if this project has no admin."""
    name, parts, query = link_of(alarm)
    try:
        return reverse(f"admin:django_jobs_{name}", args=[quote(part) for part in parts]) + query
    except NoReverseMatch:
        return None
