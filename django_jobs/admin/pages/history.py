"""The audit log as a page: who did what.  Needs only the database."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.db.models import Min
from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_jobs.admin.common import acts
from django_jobs.admin.common.console import Console
from django_jobs.archive.values import text
from django_jobs.models.audit import AuditEntry, ObjectKind, Source

ENTRIES = 50
#: Longest list of users or actions to choose from.  The address takes any other.
NAMES = 200


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry as shown: a sentence, more facts, where it leads, and its jobs with their addresses."""

    entry: AuditEntry
    source: str
    kind: str
    sentence: str
    facts: list[str]
    url: str
    jobs: list[tuple[str, str]]
    more: int


def history(console: Console) -> HttpResponse:
    """Show what was done in the admin, over HTTP and with `manage.py jobs`, latest first, of everybody or of one."""
    given = {key: text(console.request.GET.get(key, ""))[:254] for key in ("user", "verb", "source")}
    by = {"actor": given["user"], "source": given["source"]}
    entries = AuditEntry.objects.filter(**{field: value for field, value in by.items() if value})
    if given["verb"]:
        kind, _colon, verb = given["verb"].partition(":")
        entries = entries.filter(kind=kind, verb=verb)
    page = Paginator(entries, ENTRIES).get_page(console.request.GET.get("p"))
    offered = [(kind, verb) for verb in different("verb") for kind in different("kind", verb=verb)]
    kept = urlencode({key: value for key, value in given.items() if value})
    context = {
        "page": page,
        "rows": [row(console, entry) for entry in page.object_list],
        "names": different("actor"),
        "verbs": [
            (f"{kind}:{verb}", f"{acts.kind_label(kind)}: {acts.verb_label(verb)}") for kind, verb in sorted(offered)
        ],
        "sources": Source.choices,
        "given": given,
        "kept": f"&{kept}" if kept else "",
    }
    return console.render("history.html", _("History"), context, here="history")


def different(field: str, **given: str) -> list[str]:
    """Return the values of a column, in order, at most NAMES.  An index must begin with the given columns and this one:
    each value is one look into it.  DISTINCT reads all of them, which takes half a second for a million entries."""
    entries, found = AuditEntry.objects.filter(**given), list[str]()
    value = entries.aggregate(first=Min(field))["first"]
    while value is not None and len(found) < NAMES:
        found.append(value)
        value = entries.filter(**{f"{field}__gt": value}).aggregate(first=Min(field))["first"]
    return found


def row(console: Console, entry: AuditEntry) -> AuditRow:
    """Return an entry in the language of the reader.  Arguments are for those who may see arguments."""
    ids = acts.ids_of(entry)
    address = {
        ObjectKind.QUEUE: ("queue", entry.subject),
        ObjectKind.BULK: ("bulk_operation", entry.subject),
        ObjectKind.WORKFLOW: ("workflow", entry.subject),
        ObjectKind.WORKER: ("workers",),
        ObjectKind.SCHEDULE: ("schedules",),
    }.get(ObjectKind(entry.kind) if entry.kind in ObjectKind.values else ObjectKind.JOB)
    if entry.kind == ObjectKind.JOB and entry.subject and ", " not in entry.subject:
        address = ("queue", entry.subject)
    return AuditRow(
        entry=entry,
        source=str(dict(Source.choices).get(entry.source, entry.source)),
        kind=acts.kind_label(entry.kind),
        sentence=acts.sentence(entry, arguments=console.sees_arguments),
        facts=acts.facts(entry, arguments=console.sees_arguments),
        url=console.url(*address) if address else "",
        jobs=[(id, console.url("job", queue, id)) for queue, id in ids[: acts.SHOWN]],
        more=max(0, acts.number_of(entry) - acts.SHOWN) if ids else 0,
    )
