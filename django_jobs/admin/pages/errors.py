"""The error inbox, and the page of one error with its jobs."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.utils import formats
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import browse
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.charts import SMALL, Chart, Sparkline, failed_text, marked, stacked
from django_jobs.admin.common.console import Console
from django_jobs.core.values import JobInfo
from django_jobs.formatting import number
from django_jobs.models.audit import ObjectKind
from django_jobs.operations import error_inbox
from django_jobs.operations.error_inbox import Error, State
from django_jobs.serialization.masking import masked
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store

#: Errors on a page, days in a chart; of one error, jobs that are listed of each state, and messages.
ERRORS, DAYS, JOBS, MESSAGES = 100, 30, 20, 5
#: What can be done to an error → its state then, and the words of the button.
ACTS: dict[str, tuple[State, Any]] = {
    "resolve": ("resolved", gettext_lazy("Resolve")),
    "ignore": ("ignored", gettext_lazy("Ignore")),
    "reopen": ("new", gettext_lazy("Reopen")),
}
STATES: dict[State, Any] = {
    "new": gettext_lazy("New"),
    "resolved": gettext_lazy("Resolved"),
    "ignored": gettext_lazy("Ignored"),
}
DAY = 86_400_000


class NoteForm(forms.Form):
    note = forms.CharField(
        label=gettext_lazy("Note"),
        required=False,
        max_length=error_inbox.LONGEST_NOTE,
        widget=forms.Textarea({"rows": 2}),
        # A page that is older than somebody's note must not remove it.
        show_hidden_initial=True,
    )


class ErrorRow(NamedTuple):
    error: Error
    url: str
    spark: Sparkline
    acts: list[tuple[str, Any]]


def error_list(console: Console) -> HttpResponse:
    """Show the errors of one state, those seen last first."""
    inbox = error_inbox.inbox(console.counted.names, arguments=console.sees_arguments)
    asked = console.request.GET.get("state", "new")
    chosen = next((state for state in STATES if state == asked), "new")
    found = [each for each in inbox.errors if each.state == chosen]
    today = store_day()
    numbers = {state: sum(each.state == state for each in inbox.errors) for state in STATES}
    context = {
        "rows": [
            ErrorRow(each, console.url("error", each.id), sparkline(each, today), acts(console, each))
            for each in found[:ERRORS]
        ],
        "more": max(0, len(found) - ERRORS),
        "tabs": [(state, STATES[state], numbers[state], state == chosen) for state in STATES],
        "forgotten": inbox.forgotten,
        "left_out": len(inbox.left_out),
        "nothing": {
            "new": _("No new error."),
            "resolved": _("No error is resolved."),
            "ignored": _("No error is ignored."),
        }[chosen],
    }
    return console.render("errors.html", _("Errors"), context, here="errors")


def error_page(console: Console, id: str) -> HttpResponse:
    """GET: show one error with its jobs.  POST: decide about it."""
    error = error_inbox.find(unquote(id), arguments=console.sees_arguments)
    if error is None:
        raise Http404
    if console.request.method == "POST":
        return post(console, error)
    return show(console, error, NoteForm(initial={"note": error.note}))


def show(console: Console, error: Error, form: NoteForm) -> HttpResponse:
    listed = jobs(console, error)
    context = {
        "error": error,
        "messages_of": error.messages or shown_messages(console, [info for part in listed for info in part["jobs"]]),
        "state": STATES[error.state],
        "chart": chart(console, error),
        "jobs": listed,
        "form": form,
        "may_decide": console.may(permissions.PAUSE),
        "acts": acts(console, error),
    }
    return console.render("error.html", error.type, context, here="errors")


def post(console: Console, error: Error) -> HttpResponse:
    """Resolve, ignore or reopen the error, or write its note."""
    console.require(permissions.PAUSE)
    act, form = console.request.POST.get("do", ""), NoteForm(console.request.POST)
    if act not in ACTS and act != "note":
        return HttpResponseBadRequest(_("There is no such action for errors."), content_type="text/plain")
    if not form.is_valid():
        return show(console, error, form)
    wrote = "note" in console.request.POST and ("note" in form.changed_data or "initial-note" not in form.data)
    note = form.cleaned_data["note"] if wrote else None
    decided = error_inbox.decide(error, by=console.user, state=ACTS[act][0] if act in ACTS else None, note=note)
    if changed := decided is not error:
        console.log(act, ObjectKind.ERROR, error.subject, reason=note)
    url = console.url("errors") if "list" in console.request.POST else console.url("error", error.id)
    said = _("The note is kept.") if act == "note" else _("The error is: %(state)s.") % {"state": STATES[decided.state]}
    return console.back(url, messages.SUCCESS if changed else messages.WARNING, said)


def acts(console: Console, error: Error) -> list[tuple[str, Any]]:
    """Return what this user may do to the error, with the words of the buttons."""
    if not console.may(permissions.PAUSE):
        return []
    return [(act, words) for act, (state, words) in ACTS.items() if state != error.state]


def jobs(console: Console, error: Error) -> list[dict[str, Any]]:
    """Return for each state in which jobs have the error: their number, their list, and the newest of them."""
    found = []
    for state in browse.GROUPED:
        match = browse.Match(error=error.id, arguments=console.sees_arguments)
        groups = console.groups(state, match)
        queues = console.counted.names
        newest = get_store().listed(queues, state, JOBS, groups=groups, reverse=True)[0] if groups else []
        found.append(
            {
                "state": state,
                "label": labels.STATES[state],
                "number": sum(group.jobs for group in groups),
                "url": f"{console.url('jobs', state.value)}?error={error.id}",
                "jobs": newest,
                "rows": [job_row(each) for each in newest],
            }
        )
    return found


def shown_messages(console: Console, found: list[JobInfo]) -> list[str]:
    """Return the last messages of these jobs, as far as this user may see them."""
    shown = [masked(info, arguments=console.sees_arguments) for info in found]
    texts = [info.attempts[-1].error for info in shown if info.attempts]
    return [text for text in dict.fromkeys(texts) if text][:MESSAGES]


def job_row(info: JobInfo) -> dict[str, Any]:
    release = info.attempts[-1].release if info.attempts else ""
    return {"id": info.id, "queue": info.queue, "name": name_of(info.record), "at": info.at, "release": release}


def by_day(error: Error, today: date) -> tuple[list[date], list[int]]:
    """Return the last days (UTC), oldest first, and how many attempts failed on each."""
    days = [today - timedelta(days=n) for n in reversed(range(DAYS))]
    return days, [error.days.get(day, 0) for day in days]


def store_day() -> date:
    """Return the day (UTC) by the store's clock."""
    return datetime.fromtimestamp(get_store().now() / 1000, UTC).date()


def spell(day: date) -> str:
    return formats.date_format(day, "SHORT_DATE_FORMAT")


def texts(days: list[date], counts: list[int]) -> list[str]:
    return [f"{spell(day)}: {failed_text(n)}" for day, n in zip(days, counts, strict=True)]


def sparkline(error: Error, today: date) -> Sparkline:
    days, counts = by_day(error, today)
    drawn, _top = stacked([("bad", counts)], texts(days, counts), SMALL)
    return Sparkline(drawn, f"{_('Last 30 days')}: {failed_text(sum(counts))}", *SMALL)


def chart(console: Console, error: Error) -> Chart:
    days, counts = by_day(error, store_day())
    drawn, top = stacked([("bad", counts)], texts(days, counts))
    title, sums = _("Failed attempts per day (UTC)"), [("bad", failed_text(sum(counts)))]
    made = Chart(title, sums, drawn, number(int(top)), spell(days[0]), spell(days[-1]), False)
    first = int(datetime.combine(days[0], time(), UTC).timestamp() * 1000)
    return marked([made], console.releases, first, first + DAYS * DAY, "week")[0]
