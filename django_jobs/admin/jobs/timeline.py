"""The timeline on the page of a job: what the store keeps of it, and what people did, with a bar for each span."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFault
from django.db import router
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_jobs.admin.common import acts, labels
from django_jobs.admin.common.console import Console
from django_jobs.admin.common.labels import Text
from django_jobs.browse.timeline import TimelineItem, timeline, unkept
from django_jobs.core.values import Job, JobInfo, State
from django_jobs.enqueueing.request import now_ms
from django_jobs.formatting import number
from django_jobs.models.audit import AuditEntry, ObjectKind
from django_jobs.runtime.savepoint import savepoint
from django_jobs.serialization.holders import shown

#: Acts of people that are shown, the first ones.
ACTS = 50
#: The scale of the bars, and the narrowest bar, in units of their drawing.
SCALE, NARROWEST = 1000, 6
#: Clocks of web servers, which date acts, may differ from the store's clock by so much (ms).
CLOCKS = 60_000

#: kind of a part → what it says, and the colour of its bar.
_TEXTS: dict[str, tuple[Text, str]] = {
    "enqueued": (gettext_lazy("Enqueued"), "wait"),
    "waited": (gettext_lazy("Waited"), "wait"),
    "held": (gettext_lazy("Could not run yet, or was handed back by a worker"), "wait"),
    "unclear": (gettext_lazy("Waited, and ran for an unknown time"), "wait"),
    "succeeded": (gettext_lazy("Succeeded"), "good"),
    "waits": (gettext_lazy("Waits for a worker"), "wait"),
    "runs": (gettext_lazy("Running"), "busy"),
    "blocked": (gettext_lazy("Waited; now blocked"), "wait"),
    "note": (gettext_lazy("Note"), "bad"),
}


class TimelineRow(NamedTuple):
    at: int
    text: str
    #: the outcome of an attempt, or the user who acted.
    badge: str = ""
    #: a worker, an error, a reason.
    more: str = ""
    #: ms; -1: unknown, or a moment.
    length: int = -1
    css: str = "wait"
    #: the bar, in units of SCALE.
    x: int = 0
    width: int = 0
    #: the moment at which a span that is not over may end; 0: none.
    until: int = 0


class Timeline(NamedTuple):
    """The rows in their order, and what is not known."""

    rows: list[TimelineRow]
    notes: list[str]


def timeline_of(console: Console, info: JobInfo, job: Job) -> Timeline:
    """Return the timeline of a job; `info` and `job` are masked already.  Asks the store nothing."""
    now = now_ms()
    parts = timeline(info, job, now)
    begin, end = parts[0].start, max(part.start if part.kind == "due" else part.end for part in parts)
    end = max(end, now) if parts[-1].kind == "due" else end
    rows = [_row(part, info, begin, end) for part in parts]
    entries, notes = acts_on(info, job)
    rows += [_act(entry, console.sees_arguments, begin, end) for entry in entries]
    rows.sort(key=lambda row: row.at)  # stable: parts that begin at the same time keep their order
    if missing := unkept(info):
        text = ngettext(
            "%(n)s earlier attempt is no longer in the log.",
            "%(n)s earlier attempts are no longer in the log.",
            missing,
        )
        notes.insert(0, text % {"n": number(missing)})
    notes.append(_("Snoozes, pauses and jobs that a worker handed back leave no entry: they are part of a wait."))
    return Timeline(rows, notes)


def acts_on(info: JobInfo, job: Job) -> tuple[list[AuditEntry], list[str]]:
    """Return what people did to the job, oldest first, and what is not known of it.

    One query: of the entries since the job was enqueued, which an index finds, the text of each is searched."""
    using = router.db_for_read(AuditEntry)
    since = datetime.fromtimestamp(max(0, job.enqueued_at - CLOCKS) / 1000, UTC)
    mine = [info.queue, info.id]
    try:
        with savepoint(using):
            entries = AuditEntry.objects.filter(
                at__gte=since, kind__in=[ObjectKind.JOB, ObjectKind.BULK], details__icontains=info.id
            ).order_by("at", "pk")
            found = list(entries[: ACTS + 1])
    except (DatabaseFault, ImproperlyConfigured):
        return [], [_("The audit log cannot be read: what people did is missing.")]
    notes = [_("Actions on more than 200 jobs are shown for the first 200 only.")]
    if len(found) > ACTS:
        notes.insert(0, _("More was done than is shown: see the history."))
    return [
        entry for entry in found[:ACTS] if tuple(mine) in acts.ids_of(entry) or entry.details.get("job") == mine
    ], notes


def _row(part: TimelineItem, info: JobInfo, begin: int, end: int) -> TimelineRow:
    x, width = bar(part.start, min(part.end, end), begin, end)
    length = part.end - part.start if part.end > part.start else -1
    if part.attempt is not None:
        attempt = part.attempt
        text = str(_TEXTS["note"][0])
        if part.kind == "attempt":
            text = _("Attempt %(n)s") % {"n": attempt.attempt}
            text = text if part.counts else f"{text} ({_('not counted')})"
        error = ": ".join(each for each in (attempt.error_name, attempt.error) if each)
        more = " · ".join(each for each in (attempt.worker, error) if each)
        length = attempt.run_ms if part.kind == "attempt" else -1
        return TimelineRow(part.start, text, attempt.outcome, more, length, "bad", x, width)
    if part.kind == "due":
        text = _("Waits for its next attempt") if info.state is State.RETRY else _("Scheduled")
        return TimelineRow(part.start, text, x=x, width=width, until=part.end)
    if part.kind == "ended":
        css = "bad" if info.state is State.DEAD else "wait"
        return TimelineRow(part.start, str(labels.STATES[info.state]), css=css, x=x, width=width)
    said, css = _TEXTS[part.kind]
    if part.kind == "succeeded" and info.run_ms >= 0:
        length = info.run_ms
    more = shown(info.worker) if part.kind in {"runs", "succeeded"} else ""
    return TimelineRow(part.start, str(said), more=more, length=length, css=css, x=x, width=width)


def _act(entry: AuditEntry, arguments: bool, begin: int, end: int) -> TimelineRow:
    at = int(entry.at.timestamp() * 1000)
    more = " ".join([acts.sentence(entry, arguments=arguments), *acts.facts(entry, arguments=arguments)])
    x, width = bar(at, at, begin, end)
    return TimelineRow(at, acts.verb_label(entry.verb), entry.actor, more, css="busy", x=x, width=width)


def bar(start: int, stop: int, begin: int, end: int) -> tuple[int, int]:
    """Return the place and width of a bar, within the drawing whatever the times are."""
    whole = max(1, end - begin)
    x = min(max(0, round((start - begin) * SCALE / whole)), SCALE - NARROWEST)
    return x, min(max(NARROWEST, round((stop - start) * SCALE / whole)), SCALE - x)
