"""All findings at one moment, with what could not be checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.admin.utils import quote
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, override

from django_jobs.formatting import exact, number, plain
from django_jobs.operations.diagnosis import rules, work, workers
from django_jobs.operations.diagnosis.acknowledging import Acknowledged
from django_jobs.operations.diagnosis.facts import Facts, Unchecked, measure
from django_jobs.operations.diagnosis.finding import Finding, Severity
from django_jobs.serialization.payloads import iso

#: Findings of one cause in a text for people, who are told how many more there are.
LINES = 5
RULES = (*rules.RULES, *work.RULES, workers.workers)
#: What `as_alarms` calls severities, and causes that it does not tell apart.
SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "warning", Severity.NOTICE: "notice"}
OLD_NAMES = {"held_work": "paused", "old_pause": "paused"}


@dataclass(frozen=True, slots=True)
class Report:
    #: ms by the store's clock.
    at: int
    findings: Sequence[Finding]
    unchecked: Sequence[Unchecked]
    #: findings that count nowhere, because somebody has acknowledged them.
    acknowledged: Sequence[tuple[Finding, Acknowledged]] = ()

    @property
    def is_well(self) -> bool:
        """True only if everything was checked and nothing is wrong."""
        return not self.findings and not self.unchecked and not self.acknowledged

    @property
    def unchecked_texts(self) -> list[str]:
        """A sentence about each thing that could not be checked, in the language of the reader."""
        return [unchecked_text(each) for each in self.unchecked]

    def may_hide(self, key: str) -> bool:
        """Return whether the finding that is told under this key may be there although it is not among `findings`: it
        could not be looked for, or one of a wider cause stands in its place."""
        there = (*self.findings, *(each for each, _ in self.acknowledged))
        return any(each.hides(key) for each in self.unchecked) or any(each.covers(key) for each in there)

    def lines(self) -> list[tuple[Finding, int]]:
        """Return at most LINES findings of each cause, and with the last of them how many more there are."""
        return some_of(self.findings)

    def as_json(self) -> list[dict[str, Any]]:
        """Return errors, warnings and what could not be checked for programs, worst first; texts are English."""
        with override("en"):
            found = [described(each) for each in self.findings if each.severity is not Severity.NOTICE]
            return found + [
                {"kind": "not_checked", "severity": "warning", "subject": each.what, "since": None, "says": text}
                for each, text in zip(self.unchecked, self.unchecked_texts, strict=True)
            ]

    def as_alarms(self) -> dict[str, Any]:
        """Return the findings as alarms, which they were called before there were kinds."""
        with override("en"):
            return {
                "well": self.is_well,
                "checked_at": iso(self.at),
                "alarms": [alarm_of(each) for each in self.findings],
                "unchecked": [{"what": each.what, "text": unchecked_text(each)} for each in self.unchecked],
            }


def some_of(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """Return at most LINES findings of each cause, and with the last of them how many more there are."""
    seen = Counter(each.cause for each in findings)
    told = Counter[str]()
    found = []
    for each in findings:
        told[each.cause] += 1
        if (n := told[each.cause]) <= LINES:
            found.append((each, seen[each.cause] - n if n == LINES else 0))
    return found


def check(facts: Facts | None = None) -> Report:
    """Measure, and return everything that is wrong, worst first.  Raises StoreUnavailable."""
    facts = measure() if facts is None else facts
    known, found = facts.acknowledged, findings_of(facts)
    counting = [each for each in found if each.key not in known]
    return Report(
        facts.now, counting, facts.unchecked, [(each, known[each.key]) for each in found if each.key in known]
    )


def findings_of(facts: Facts) -> list[Finding]:
    """Return every finding, worst first; within a severity in the order of RULES."""
    found = [each for rule in RULES for each in rule(facts)]
    return sorted(found, key=lambda each: list(Severity).index(each.severity))


def described(found: Finding) -> dict[str, Any]:
    """Return one finding for programs, in the language that is active."""
    return {
        "kind": found.kind,
        "severity": found.severity.value,
        "subject": found.subject,
        "since": iso(found.since) if found.since else None,
        "says": told(found),
        "cause": found.cause,
        "queue": found.queue or None,
        "act": found.act or None,
        "link": address(found),
    }


def acknowledged_text(known: Acknowledged) -> str:
    """Return until when a finding is acknowledged, by whom and why."""
    values = {"time": exact(known.until), "user": known.by, "reason": plain(known.reason, 200)}
    return _("Acknowledged by %(user)s until %(time)s: %(reason)s") % values


def told(found: Finding) -> str:
    """Return the sentence, with the reason that somebody else gave."""
    return f"{found.says} ({plain(found.reason, 200)})" if found.reason else found.says


def old_name(found: Finding) -> tuple[str, str]:
    """Return the kind and the severity that a finding had when it was called an alarm."""
    name = OLD_NAMES.get(found.cause, found.cause)
    return name, "notice" if name != found.cause else SEVERITIES[found.severity]


def alarm_of(found: Finding) -> dict[str, Any]:
    """Return one finding as an alarm."""
    kind, severity = old_name(found)
    return {
        "kind": kind,
        "severity": severity,
        "since": iso(found.since) if found.since else None,
        "queue": found.queue or None,
        "text": found.says,
        "reason": found.reason or None,
        "link": address(found),
    }


def address(found: Finding) -> str | None:
    """Return the address of the finding's page, among the console's own (`django_jobs.admin.urls`) rather than in the
    project's admin; None if this project routes neither."""
    name, parts, query = found.link
    if not getattr(settings, "ROOT_URLCONF", None):  # a project that only runs workers
        return None
    try:
        arguments = [quote(part) for part in parts]
        return reverse(f"admin:django_jobs_{name}", args=arguments, current_app="django_jobs") + query
    except (NoReverseMatch, ImproperlyConfigured, ImportError):
        return None


def unchecked_text(each: Unchecked) -> str:
    """Return one sentence about something that could not be checked."""
    if each.number:
        return NUMBERED[each.what](each.number) % {"n": number(each.number)}
    return UNCHECKED[each.what]() % {"why": plain(each.why, 300)}


NUMBERED: dict[str, Callable[[int], str]] = {
    "counts": lambda n: ngettext(
        "%(n)s queue was not counted: its keys are damaged, or there are many queues "
        "and no worker publishes their numbers.",
        "%(n)s queues were not counted: their keys are damaged, or there are many queues "
        "and no worker publishes their numbers.",
        n,
    ),
    "schedules": lambda n: ngettext(
        "%(n)s schedule was not checked.",
        "%(n)s schedules were not checked.",
        n,
    ),
    "work": lambda n: ngettext(
        "%(n)s queue with waiting work was not checked for jobs that hang.",
        "%(n)s queues with waiting work were not checked for jobs that hang.",
        n,
    ),
    "pauses": lambda n: ngettext(
        "The jobs behind %(n)s paused job type were not counted.",
        "The jobs behind %(n)s paused job types were not counted.",
        n,
    ),
    "archive": lambda n: ngettext(
        "Whether the finished jobs of %(n)s queue wait too long for the archive was not checked.",
        "Whether the finished jobs of %(n)s queues wait too long for the archive was not checked.",
        n,
    ),
    "workflows": lambda n: ngettext(
        "%(n)s older workflow was not checked.",
        "%(n)s older workflows were not checked.",
        n,
    ),
    "failures": lambda n: ngettext(
        "The failures of %(n)s queue were not compared with the usual ones.",
        "The failures of %(n)s queues were not compared with the usual ones.",
        n,
    ),
}
UNCHECKED: dict[str, Callable[[], str]] = {
    "pauses": lambda: _("The jobs behind paused job types could not be counted: %(why)s"),
    "names": lambda: _("Whether workers know the names of all jobs could not be checked: %(why)s"),
    "failures": lambda: _("The failures of the last hour could not be read: %(why)s"),
    "server": lambda: _("Memory, eviction and persistence of the store could not be checked: %(why)s"),
    "schedules": lambda: _("The schedules could not be checked: %(why)s"),
    "archive": lambda: _("The archive could not be checked: %(why)s"),
    "outbox": lambda: _("The outbox could not be checked: %(why)s"),
    "work": lambda: _("The jobs that run could not be checked: %(why)s"),
    "notifiers": lambda: _("The callables of NOTIFY could not be checked: %(why)s"),
    "workflows": lambda: _("The workflows could not be checked: %(why)s"),
}
