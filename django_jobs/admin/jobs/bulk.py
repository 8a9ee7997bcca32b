"""Bulk operations: list, progress, continue, stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _

from django_jobs import browse
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs.filters import times_text
from django_jobs.models.audit import ObjectKind
from django_jobs.operations import bulk

#: The page runs an operation for this long (s) before it is shown again.
STRETCH = 1.0


def bulk_list(console: Console) -> HttpResponse:
    rows = [row(console, operation) for operation in bulk.operations_list()]
    return console.render(
        "bulk_list.html", _("Bulk operations"), {"rows": rows, "unreadable": bulk.unreadable()}, here="bulk"
    )


def row(console: Console, operation: bulk.Operation) -> dict[str, Any]:
    match, arguments = operation.match, console.sees_arguments or not operation.match.arguments
    report = labels.report(operation.verb, operation.moved, operation.asked, operation.held, operation.taken)
    if operation.stopped:
        stopped = _("It was stopped.") if operation.finished else _("It stops after the current batch.")
        report = f"{report} {stopped}"
    shown = {"text": match.text, "error": match.error, "terms": match.terms}
    return {
        "operation": replace(operation, match=replace(match, **browse.readable_by(shown, arguments=arguments))),
        "label": labels.verb_label(operation.verb, operation.state),
        "state": labels.STATES[operation.state],
        "times": times_text(operation.state, operation.match),
        "report": report,
    }


def bulk_page(console: Console, id: str) -> HttpResponse:
    """GET: show the progress.  POST: run it for a moment (workers do this in the background, too), or stop it."""
    operation = bulk.get(unquote(id))
    if operation is None:
        raise Http404
    if console.request.method == "POST":
        return post(console, operation)
    context = row(console, operation) | {"may": console.may(permissions.VERBS[operation.verb])}
    return console.render("bulk.html", _("Bulk operation"), context, here="bulk")


def post(console: Console, operation: bulk.Operation) -> HttpResponse:
    """Continue or stop the operation; both need the permission for its verb."""
    console.require(permissions.VERBS[operation.verb])
    url = console.url("bulk_operation", operation.id)
    stops = console.request.POST.get("do") == "stop"
    if stops and not bulk.stop(operation.id):
        return console.back(url, messages.WARNING, labels.unchanged("stop"))
    said = console.log("stop", ObjectKind.BULK, operation.id) if stops else ""
    bulk.drive(operation.id, STRETCH)  # one that is stopped ends here, unless a worker is at it
    bulk.tell_ended()
    if stops:
        return console.back(url, messages.SUCCESS, said)
    response = HttpResponse(status=303)
    response["Location"] = url
    return response
