"""The page of one job: all that is known of it, and the possible actions."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from django_jobs import archive, browse, operations, outbox
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs import actions
from django_jobs.admin.jobs.forms import ArgumentsForm
from django_jobs.admin.jobs.rows import checkin
from django_jobs.admin.jobs.timeline import timeline_of
from django_jobs.browse import Match
from django_jobs.core import registry
from django_jobs.core.attempt import counted
from django_jobs.core.definition import soft_timeout_of
from django_jobs.core.signature import signature
from django_jobs.core.values import FINISHED, WAITING, Job, JobInfo, Pause, State
from django_jobs.exceptions import (
    CorruptRecord,
    DuplicateJob,
    InvalidArguments,
    JobMoved,
    JobNotFound,
    PayloadError,
    UnknownJob,
)
from django_jobs.formatting import exact, plain
from django_jobs.models import ArchivedJob, audit
from django_jobs.models.audit import ObjectKind
from django_jobs.operations import bulk, diagnosis
from django_jobs.operations.error_inbox import remembered
from django_jobs.serialization import payloads
from django_jobs.serialization.display import readable
from django_jobs.serialization.holders import shown
from django_jobs.serialization.masking import masked, shown_call
from django_jobs.serialization.record import decode, name_of
from django_jobs.stores import get_store

#: States in which arguments can be edited: the job is waiting, or can be run again.
EDITABLE = WAITING | operations.VERBS["revive"]
#: At most this many raw bytes are shown of a record that cannot be read.
RAW = 20_000


def job_page(console: Console, queue: str, id: str) -> HttpResponse:
    """GET: show the job.  POST: apply a verb to it."""
    queue, id = unquote(queue), unquote(id)
    if console.request.method == "POST":
        return post(console, queue, id)
    info = get_store().find([queue], id)
    if info is None:
        return elsewhere(console, queue, id) or gone(console, queue, id)
    return console.render("job.html", title_of(info), context_of(console, info), here=info.state.value)


def elsewhere(console: Console, queue: str, id: str) -> HttpResponse | None:
    """Return the way to the page of a job that the store does not have yet, or any more; None if there is none."""
    entry = outbox.find_row("data", kind=outbox.EntryKind.JOB, key=id, queue=queue)
    if entry is not None:
        return HttpResponseRedirect(console.url("outboxentry_change", str(entry.pk)))
    if not console.sees_archive:
        return None
    row = archive.chosen(ArchivedJob.objects.all(), queue=queue, id=id).values_list("pk", flat=True).first()
    return None if row is None else HttpResponseRedirect(console.url("archivedjob_change", str(row)))


def gone(console: Console, queue: str, id: str) -> HttpResponse:
    """Show that there is no such job.  It may have left the history, so this is not an error of the user's."""
    return console.render("gone.html", _("This job does not exist any more"), {"queue": queue, "id": id}, status=404)


def title_of(info: JobInfo) -> str:
    """Return the job's name as title; a job that cannot be read may have none."""
    return name_of(info.record)[:200] or _("Unreadable job")


def post(console: Console, queue: str, id: str) -> HttpResponse:
    """Apply the same actions as in lists to one job; then show its page again, or the list if it is gone."""
    info = get_store().get(queue, id)
    if info is None:
        return gone(console, queue, id)
    verb, state = operations.verb_of(console.request.POST.get("verb", "")), state_shown(console, info)
    applies = verb not in operations.VERBS or {info.state, state} <= operations.VERBS[verb]
    if not applies or not is_as_shown(console, info):
        return console.back(console.url("job", queue, id), messages.WARNING, changed_meanwhile())
    response = actions.post(console, state, Match(queue), only=(queue, id))
    if verb == "delete" and response.status_code == 302:
        response["Location"] = console.url("jobs", info.state.value)
    return response


def state_shown(console: Console, info: JobInfo) -> State:
    """Return the state in which the page showed the job that sent this form."""
    return next((state for state in State if state == console.request.POST.get("state")), info.state)


def is_as_shown(console: Console, info: JobInfo) -> bool:
    """Return whether the job has neither ended nor come back since the page was made that sent this form."""
    as_of = actions.shown_at(console.request.POST.get("as_of", ""))
    return bool(bulk.as_shown(info.queue, [info.id], state_shown(console, info), as_of))


def changed_meanwhile() -> str:
    return _("The job has changed its state in the meantime.")


def context_of(console: Console, info: JobInfo) -> dict[str, Any]:
    raw_info, info = info, masked(info, arguments=console.sees_arguments)
    context: dict[str, Any] = {
        "info": info,
        "worker": shown(info.worker),
        "state": info.state.value,
        "state_label": labels.STATES[info.state],
        "explained": labels.EXPLAINED[info.state],
        "verbs": console.verbs(info.state),
        "checkin": checkin(info) if info.checkin else None,
        "attempts": list(zip(info.attempts, counted(info), errors_of(raw_info), strict=True))[::-1],
        "result": readable(payloads.as_json(info.result)) if info.result is not None else None,
        "finished": info.state in FINISHED,
        "why": why_of(console, raw_info),
        "pause": pause_of_type(console, info),
        "started_once": operations.may_have_started(raw_info),
        "sees_arguments": console.sees_arguments,
    }
    try:
        job = decode(info.id, info.queue, info.record)
    except CorruptRecord as error:
        raw = info.record[:RAW].decode(errors="backslashreplace")
        return context | {"corrupt": str(error), "raw": raw, "size": len(info.record)}
    return context | readable_part(console, info, job)


def why_of(console: Console, info: JobInfo) -> dict[str, Any] | None:
    """Return why a waiting job does not start, or why a running one makes no progress; None for a finished job."""
    if info.state in FINISHED:
        return None
    found = diagnosis.why(info, console.counted, arguments=console.sees_arguments)
    reason = found.reason
    address = {"queue": "queue", "job": "job", "workers": "workers", "queues": "queues"}
    url = console.url(address[reason.link[0]], *reason.link[1:]) if reason.link else ""
    shown = [(each, console.cause(each), left) for each, left in found.lines()]
    return {"text": reason.text(exact), "cause": reason.cause, "since": reason.since, "url": url, "findings": shown}


def errors_of(info: JobInfo) -> list[str]:
    """Return for each attempt the id of its error, if its queue remembers that; "" if not."""
    ids = [browse.error_key(signature(attempt)) for attempt in info.attempts]
    kept = remembered([info.queue]) if ids else ()
    return [id if id in kept else "" for id in ids]


def pause_of_type(console: Console, info: JobInfo) -> Pause | None:
    """Return the pause of the job's type in its queue, while the job has not ended, from the counts of this page."""
    stats = console.counted.queues.get(info.queue)
    return stats.paused_types.get(name_of(info.record)) if stats is not None and info.state not in FINISHED else None


def readable_part(console: Console, info: JobInfo, job: Job) -> dict[str, Any]:
    """Return the part of the context that comes from the record."""
    known = registry.find(job.name)
    arguments = payloads.named_arguments(job)
    sees_call = known is not None and arguments is not None and console.sees_arguments
    return {
        "job": job,
        "known": known is not None,
        "soft_timeout": round(soft * 1000) if known is not None and (soft := soft_timeout_of(job, known)) else None,
        "arguments": arguments,
        "workflow": job.controls.workflow or browse.workflow_of(job.id),
        "raw_arguments": job.args.decode(errors="backslashreplace") if arguments is None else "",
        "meta": [(key, readable(value)) for key, value in (payloads.meta_of(job) or {}).items()],
        "timeline": timeline_of(console, info, job),
        "waited": waited(info, job),
        "made": info.failures + info.crashes + (info.state in {State.RUNNING, State.SUCCEEDED}),
        "may_enqueue": sees_call and console.may(permissions.ENQUEUE),
        "may_edit": sees_call and info.state in EDITABLE and console.may(permissions.VERBS["edit"]),
    }


def waited(info: JobInfo, job: Job) -> int | None:
    """Return how long (ms) the job has waited for a worker, or had waited when the running attempt began."""
    if info.state not in (State.QUEUED, State.RUNNING):
        return None
    until = info.at if info.state is State.RUNNING else get_store().now()
    return max(0, until - payloads.ready_ms(info, job))


def shown_now(info: JobInfo, job: Job) -> dict[str, str]:
    """Return what a form sends back, so that it changes no more than its page showed.  The arguments are keyed: a plain
    digest would let readers guess those that are hidden from them."""
    keyed = salted_hmac(__name__, job.args, algorithm="sha256").hexdigest()
    return {"state": info.state.value, "as_of": str(get_store().now()), "was": keyed}


def edit_page(console: Console, queue: str, id: str) -> HttpResponse:
    """Change the arguments of a job, which then waits as before or runs now.  GET: show the form."""
    queue, id = unquote(queue), unquote(id)
    console.require(permissions.VERBS["edit"])
    console.require(permissions.ARGUMENTS)
    info = get_store().get(queue, id)
    if info is None:
        return gone(console, queue, id)
    try:
        job = decode(id, queue, info.record)
    except CorruptRecord as error:
        raise Http404 from error
    call = shown_call(job)
    if call is None or info.state not in EDITABLE:
        return console.back(
            console.url("job", queue, id), messages.WARNING, _("This job cannot be edited in its current state.")
        )
    text = json.dumps(call, indent=2, ensure_ascii=False)
    data = console.request.POST
    form = ArgumentsForm(data or None, initial={"arguments": text})
    shown = now = shown_now(info, job)
    if console.request.method == "POST":
        shown = {key: data.get(key, value) for key, value in now.items()}
    if console.request.method == "POST" and form.is_valid():
        call, run = form.cleaned_data["arguments"], "wait" not in data
        try:
            if shown["was"] != now["was"] and list(call) != list(shown_call(job) or ()):
                said = _("Somebody has changed the arguments in the meantime. They are now: %(call)s")
                raise JobMoved(said % {"call": plain(json.dumps(shown_call(job), ensure_ascii=False), 1000)})
            if run and not is_as_shown(console, info):
                raise JobMoved(changed_meanwhile())
            if run:
                operations.edit_and_revive(queue, id, *call, start_again=form.cleaned_data["start_again"])
            else:
                operations.edit(queue, id, *call)
        except JobMoved as error:
            form.add_error("arguments", str(error))
            shown = now  # the error says what the page did not show: sent again, it is meant
        except (InvalidArguments, PayloadError, UnknownJob, JobNotFound, DuplicateJob) as error:
            form.add_error("arguments", str(error))
        else:
            details = audit.edit_details(info, call)
            said = console.log("edit", ObjectKind.JOB, queue, ids=[[queue, id]], moved=int(run), **details)
            return console.back(console.url("job", queue, id), messages.SUCCESS, said)
    definition = registry.find(job.name)
    context = {
        "form": form,
        "shown": shown,
        "info": info,
        "job": job,
        "signature": str(definition.signature) if definition else "",
        "may_wait": info.state in WAITING,
        "may_run": info.state in operations.VERBS["revive"],
        "once": operations.may_have_started(info),
    }
    return console.render("edit.html", _("Edit arguments"), context, here=info.state.value)
