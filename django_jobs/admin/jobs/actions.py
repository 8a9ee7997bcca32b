"""Actions on the jobs chosen in a list: confirm if necessary, act, report the result, write a log entry."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs import operations
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs.forms import KillForm, RescheduleForm
from django_jobs.browse import PAGE, Match
from django_jobs.core.values import State
from django_jobs.operations import bulk

FORMS: dict[str, type[forms.Form]] = {"reschedule": RescheduleForm, "kill": KillForm}
#: More ticked boxes than two searches can show did not come from one page.
MOST = 4 * PAGE
#: A bulk operation runs this long (s) in the request that starts it: small ones end before the page is shown.
FIRST_STRETCH = 1.0


def post(console: Console, state: State, match: Match, *, only: tuple[str, str] | None = None) -> HttpResponse:
    """Apply a verb to the ticked jobs, to all that match, or to the one job `only` (queue, id)."""
    data = console.request.POST
    verb = data.get("verb", "")
    if verb not in operations.VERBS or state not in operations.VERBS[verb]:
        return HttpResponseBadRequest(_("There is no such action for these jobs."), content_type="text/plain")
    console.require(permissions.VERBS[verb])
    here = console.request.get_full_path()
    chosen = [only] if only else references(data.getlist("job")[:MOST])
    everything = only is None and data.get("scope") == "all"
    if not chosen and not everything:
        return console.back(here, messages.WARNING, _("Select the jobs first, then an action."))
    form = FORMS[verb](data if "confirmed" in data else None) if verb in FORMS else None
    asks = everything or form is not None or labels.VERBS[verb].destructive
    if asks and ("confirmed" not in data or (form is not None and not form.is_valid())):
        return confirm(console, state, match, verb, chosen, everything, form)
    details = form.cleaned_data if form is not None else {}
    if everything:
        return start_bulk(console, state, match, verb, details)
    return act(console, verb, chosen, details)


def references(values: list[str]) -> list[tuple[str, str]]:
    """Return (queue, id) of each ticked box."""
    pairs = (value.partition("/") for value in values)
    return [(unquote(queue), unquote(id)) for queue, slash, id in pairs if slash]


def confirm(
    console: Console,
    state: State,
    match: Match,
    verb: str,
    chosen: list[tuple[str, str]],
    everything: bool,
    form: forms.Form | None,
) -> HttpResponse:
    """Show the page that asks for confirmation."""
    if everything:
        total = total_of(console, state, match)
        said = ngettext("%(n)d job in state “%(state)s”.", "%(n)d jobs in state “%(state)s”.", total)
        what = said % {"n": total, "state": labels.STATES[state]}
    else:
        what = ngettext("%(n)d job is selected.", "%(n)d jobs are selected.", len(chosen)) % {"n": len(chosen)}
    context: dict[str, Any] = {
        "verb": verb,
        "words": labels.VERBS[verb],
        "label": labels.verb_label(verb, state),
        "what": what,
        "match": match,
        "narrowed": everything and match.needs_scan,
        "chosen": console.request.POST.getlist("job")[:MOST] if not everything else [],
        "shown": chosen[:20] if not everything else [],
        "everything": everything,
        "form": form,
        "back": console.request.get_full_path(),
    }
    return console.render("confirm.html", str(labels.VERBS[verb].question), context, here=state.value)


def total_of(console: Console, state: State, match: Match) -> int:
    """Return how many jobs the bulk operation will check."""
    if match.queue:
        return console.counted.queues[match.queue].counts[state] if match.queue in console.counted.queues else 0
    return console.counted.counts[state]


def act(console: Console, verb: str, chosen: list[tuple[str, str]], details: dict[str, Any]) -> HttpResponse:
    """Apply the verb to the ticked jobs, queue by queue."""
    moved: list[str] = []
    asked: list[str] = []
    for queue in dict.fromkeys(queue for queue, _id in chosen):
        ids = [id for each, id in chosen if each == queue]
        done = operations.act(verb, queue, ids, run_at=details.get("run_at", 0), reason=reason(console, details))
        moved += done.moved
        asked += done.asked
    said = labels.report(verb, len(moved), len(asked))
    where = ", ".join(dict.fromkeys(queue for queue, _id in chosen))
    console.log(said, about=where, ids=moved + asked, deletion=verb == "delete")
    left = len(chosen) - len(moved) - len(asked)
    if left:
        more = ngettext(
            "%(n)d job had changed its state and was skipped.",
            "%(n)d jobs had changed their state and were skipped.",
            left,
        )
        said = f"{said} {more % {'n': left}}"
    level = messages.SUCCESS if moved or asked else messages.WARNING
    return console.back(console.request.get_full_path(), level, said)


def reason(console: Console, details: dict[str, Any]) -> str:
    """Return the reason for the log of a killed job."""
    by = _("Killed by %(user)s") % {"user": console.request.user.get_username()}
    return f"{by}: {details['reason']}" if details.get("reason") else by


def start_bulk(console: Console, state: State, match: Match, verb: str, details: dict[str, Any]) -> HttpResponse:
    """Start a bulk operation, run it for a moment, and show its progress."""
    operation = bulk.start(
        verb,
        state,
        match,
        user=console.request.user.get_username(),
        run_at=details.get("run_at", 0),
        reason=reason(console, details),
    )
    said = _("%(verb)s: all matching jobs in state “%(state)s” (operation %(id)s).")
    shown = {"verb": labels.verb_label(verb, state), "state": labels.STATES[state], "id": operation.id}
    number = ngettext("%(n)d job.", "%(n)d jobs.", operation.total) % {"n": operation.total}
    console.log(f"{said % shown} {number}", about=match.queue or _("all queues"), deletion=verb == "delete")
    bulk.drive(operation.id, FIRST_STRETCH)
    return console.back(console.url("bulk_operation", operation.id), messages.INFO, _("The operation has started."))
