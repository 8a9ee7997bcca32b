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
from django_jobs.admin.jobs.errors import shown_error
from django_jobs.admin.jobs.filters import times_text
from django_jobs.admin.jobs.forms import AgainForm, KillForm, OnceForm, RescheduleForm
from django_jobs.admin.jobs.rows import row
from django_jobs.browse import PAGE, Match
from django_jobs.core.values import MAY_HAVE_STARTED, State
from django_jobs.formatting import number
from django_jobs.models import audit
from django_jobs.models.audit import ObjectKind
from django_jobs.operations import bulk
from django_jobs.operations.matching import Matching, count_matching
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import grouped

FORMS: dict[str, type[forms.Form]] = {"reschedule": RescheduleForm, "kill": KillForm}
#: More ticked boxes than two searches can show did not come from one page.
MOST = 4 * PAGE
#: Ticked jobs that are named on the page that asks.
SHOWN = 20
#: A bulk operation runs this long (s) in the request that starts it: small ones end before the page is shown.
FIRST_STRETCH = 1.0


def post(console: Console, state: State, match: Match, *, only: tuple[str, str] | None = None) -> HttpResponse:
    """Apply a verb to the ticked jobs, to all that match, or to the one job `only` (queue, id)."""
    data = console.request.POST
    verb = operations.verb_of(data.get("verb", ""))
    if verb not in operations.VERBS or state not in operations.VERBS[verb]:
        return HttpResponseBadRequest(_("There is no such action for these jobs."), content_type="text/plain")
    console.require(permissions.VERBS[verb])
    here = console.request.get_full_path()
    chosen = [only] if only else references(data.getlist("job")[:MOST])
    everything = only is None and data.get("scope") == "all"
    if not chosen and not everything:
        return console.back(here, messages.WARNING, _("Select the jobs first, then an action."))
    once = started_once(verb, state, chosen)
    kind = FORMS.get(verb)
    if verb == "revive" and state in MAY_HAVE_STARTED and (everything or once):
        kind = OnceForm if len(once) == len(chosen) and not everything else AgainForm
    form = kind(data if "confirmed" in data else None) if kind else None
    asks = everything or form is not None or labels.VERBS[verb].destructive
    if asks and ("confirmed" not in data or (form is not None and not form.is_valid())):
        return confirm(console, state, match, verb, chosen, everything, form, once)
    details, as_of = form.cleaned_data if form is not None else {}, shown_at(data.get("as_of", ""))
    if everything:
        return start_bulk(console, state, match, verb, details, as_of=as_of)
    return act(console, state, verb, chosen, details, as_of=as_of)


def started_once(verb: str, state: State, chosen: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the chosen jobs that `revive` may start a second time although they are delivered at most once."""
    if verb != "revive" or state not in MAY_HAVE_STARTED:
        return []
    found = []
    for queue, ids in grouped(chosen).items():
        found += [(queue, info.id) for info in get_store().get_many(queue, ids) if operations.may_have_started(info)]
    return found


def shown_at(text: str) -> int:
    """Return when (ms) the page that asked was made; now if the text does not say so.  It cannot be in the future: only
    jobs that were there at that time are taken."""
    now = get_store().now()
    return min(int(text), now) if text.isascii() and text.isdigit() and len(text) < 16 else now


def references(values: list[str]) -> list[tuple[str, str]]:
    """Return (queue, id) of each ticked box."""
    pairs = (value.partition("/") for value in values)
    return list(dict.fromkeys((unquote(queue), unquote(id)) for queue, slash, id in pairs if slash))


def confirm(
    console: Console,
    state: State,
    match: Match,
    verb: str,
    chosen: list[tuple[str, str]],
    everything: bool,
    form: forms.Form | None,
    once: list[tuple[str, str]],
) -> HttpResponse:
    """Show the page that asks for confirmation.  It carries its time: what comes later was not shown, and stays."""
    as_of = get_store().now()
    counted = count_matching(state, match) if everything else None
    if counted:
        how_many = counted.matching if counted.whole else counted.total
        what = what_matches(state, match, counted)
    else:
        how_many = len(chosen)
        what = ngettext("%(n)s job is selected.", "%(n)s jobs are selected.", how_many) % {"n": number(how_many)}
    words = labels.VERBS[verb]
    context: dict[str, Any] = {
        "verb": operations.word_of(verb),
        "destructive": words.destructive,
        "explained": words.explained % how_many,
        "label": labels.verb_label(verb, state),
        "what": what,
        "sample": [row(info, arguments=console.sees_arguments) for info in counted.sample] if counted else [],
        "notes": counted.notes.texts() if counted else [],
        "match": match,
        "error": shown_error(console, state, match),
        "narrowed": everything and (match.needs_scan or match.span is not None),
        "times": times_text(state, match),
        "chosen": console.request.POST.getlist("job")[:MOST] if not everything else [],
        "shown": chosen[:SHOWN] if not everything else [],
        "more": max(0, len(chosen) - SHOWN) if not everything else 0,
        "everything": everything,
        "as_of": as_of,
        "state": state.value,
        "form": form,
        "once": len(once),
        "perhaps_once": everything and verb == "revive" and state in MAY_HAVE_STARTED,
        "back": console.request.get_full_path(),
    }
    return console.render("confirm.html", words.question % how_many, context, here=state.value)


def what_matches(state: State, match: Match, counted: Matching) -> str:
    """Return how many jobs a bulk operation will take: exactly, or as far as could be counted in a second."""
    values = {
        "n": number(counted.matching),
        "state": labels.STATES[state],
        "seen": number(counted.seen),
        "total": number(counted.total),
    }
    if not match.needs_scan and match.span is None:
        said = ngettext("%(n)s job in state “%(state)s”.", "%(n)s jobs in state “%(state)s”.", counted.matching)
    elif counted.whole:
        said = ngettext(
            "%(n)s job matches, of %(total)s in state “%(state)s”.",
            "%(n)s jobs match, of %(total)s in state “%(state)s”.",
            counted.matching,
        )
    else:
        said = ngettext(
            "At least %(n)s job matches: %(seen)s of %(total)s in state “%(state)s” were checked so far. All will be.",
            "At least %(n)s jobs match: %(seen)s of %(total)s in state “%(state)s” were checked so far. All will be.",
            counted.matching,
        )
    return said % values


def act(
    console: Console, state: State, verb: str, chosen: list[tuple[str, str]], details: dict[str, Any], *, as_of: int
) -> HttpResponse:
    """Apply the verb to the ticked jobs that are as they were shown, queue by queue."""
    done, again = operations.Done(), bool(details.get("start_again"))
    for queue, ids in grouped(chosen).items():
        run_at, why = details.get("run_at", 0), reason(console, details)
        ids = bulk.as_shown(queue, ids, state, as_of)
        done = done.plus(operations.act(verb, queue, ids, run_at=run_at, reason=why, start_again=again))
    numbers = {key: len(getattr(done, key)) for key in ("moved", "asked", "held", "taken")}
    said = labels.report(verb, **numbers, holders=done.taken)
    if done_ids := [(queue, id) for queue, id in chosen if id in {*done.moved, *done.asked}]:
        told = {key: details[key] for key in ("reason", "run_at", "start_again") if details.get(key)}
        where = ", ".join(dict.fromkeys(queue for queue, _id in done_ids))
        console.log(verb, ObjectKind.JOB, where, ids=audit.listed(done_ids), **numbers, **told)
    if left := len(chosen) - sum(numbers.values()):
        more = ngettext(
            "%(n)s job had changed its state and was skipped.",
            "%(n)s jobs had changed their state and were skipped.",
            left,
        )
        said = f"{said} {more % {'n': number(left)}}"
    level = messages.SUCCESS if done.count else messages.WARNING
    return console.back(console.request.get_full_path(), level, said)


def reason(console: Console, details: dict[str, Any]) -> str:
    """Return the reason for the log of a killed job."""
    by = _("Killed by %(user)s") % {"user": console.user}
    return f"{by}: {details['reason']}" if details.get("reason") else by


bulk.ended.add(audit.write_end)


def start_bulk(
    console: Console, state: State, match: Match, verb: str, details: dict[str, Any], *, as_of: int
) -> HttpResponse:
    """Start a bulk operation, run it for a moment, and show its progress."""
    operation = bulk.start(
        verb,
        state,
        match,
        user=console.user,
        run_at=details.get("run_at", 0),
        reason=reason(console, details),
        start_again=bool(details.get("start_again")),
        as_of=as_of,
    )
    bulk.drive(operation.id, FIRST_STRETCH)
    operation = bulk.get(operation.id) or operation
    console.log(verb, ObjectKind.BULK, operation.id, **audit.bulk_details(operation))
    if not operation.finished:
        bulk.follow(operation.id)
    return console.back(console.url("bulk_operation", operation.id), messages.INFO, _("The operation has started."))
