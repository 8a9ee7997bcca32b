"""A new job like an existing one: a form that is filled in, a page that shows what will be enqueued, and the job."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_jobs import browse, operations
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs.forms import AnotherForm
from django_jobs.admin.jobs.page import gone
from django_jobs.core import registry
from django_jobs.core.values import Added, Job, JobInfo
from django_jobs.enqueueing.request import NewJobRequest
from django_jobs.exceptions import (
    CorruptRecord,
    InvalidArguments,
    PayloadError,
    QueueFull,
    UnknownJob,
    UnknownQueue,
)
from django_jobs.models.audit import ObjectKind
from django_jobs.operations import copying
from django_jobs.serialization import payloads
from django_jobs.serialization.masking import shown_call
from django_jobs.serialization.record import decode
from django_jobs.stores import get_store


def another_page(console: Console, queue: str, id: str) -> HttpResponse:
    """GET: show the form.  POST: show what will be enqueued; with `confirmed`, enqueue it."""
    queue, id = unquote(queue), unquote(id)
    console.require(permissions.ENQUEUE)
    console.require(permissions.ARGUMENTS)
    info = get_store().get(queue, id)
    if info is None:
        return gone(console, queue, id)
    try:
        job = decode(id, queue, info.record)
    except CorruptRecord as error:
        return console.back(console.url("job", queue, id), messages.WARNING, str(error))
    call = shown_call(job)
    if call is None or registry.find(job.name) is None:
        said = _(
            "No job like this can be enqueued here: this process does not know its type, or cannot read its arguments."
        )
        return console.back(console.url("job", queue, id), messages.WARNING, said)
    data = console.request.POST
    initial = {
        "arguments": json.dumps(call, indent=2, ensure_ascii=False),
        "queue": queue,
        "priority": job.controls.priority,
        "form": copying.new_form(),
    }
    form = AnotherForm(data or None, initial=initial, queues=browse.usable_queues())
    request = checked(form, info, job) if console.request.method == "POST" else None
    if request is not None and "confirmed" in data:
        response = enqueue(console, form, info, request)
        if response is not None:
            return response
    shown = request if form.is_valid() and "change" not in data else None
    return console.render("another.html", _("Enqueue another like this"), context_of(form, info, job, shown))


def checked(form: AnotherForm, info: JobInfo, job: Job) -> NewJobRequest | None:
    """Return the request that the form makes; None if something in it is wrong, which the form then says."""
    if not form.is_valid():
        return None
    given = form.cleaned_data
    if operations.has_begun_once(info) and not given["start_again"]:
        form.add_error("start_again", _("Without this, no job like it is enqueued."))
        return None
    try:
        return copying.copy_request(
            job, given["arguments"], queue=given["queue"], priority=given["priority"], form=given["form"]
        )
    except (InvalidArguments, PayloadError, UnknownJob, UnknownQueue) as error:
        form.add_error("arguments", str(error))
        return None


def enqueue(console: Console, form: AnotherForm, info: JobInfo, request: NewJobRequest) -> HttpResponse | None:
    """Enqueue the job, log it, and show its page; None if it was refused, which the form then says."""
    try:
        id, added = copying.enqueue_copy(request)
    except QueueFull as error:
        form.add_error("arguments", str(error))
        return None
    here = console.url("job", info.queue, info.id)
    if added in labels.EQUAL_WAITS:
        said = str(labels.EQUAL_WAITS[added])
    elif added is None:
        said = _("The job will be enqueued as job %(id)s after the commit.") % {"id": id}
    else:
        here, said = console.url("job", request.queue, id), _("The job was enqueued.")
    if added is Added.EXISTS:
        said = _("This job was enqueued before, with the same form. Nothing was enqueued a second time.")
    if is_new := added in (None, Added.ADDED, Added.REPLACED):
        ids = [] if added is Added.REPLACED else [[request.queue, id]]
        console.log(
            "enqueue", ObjectKind.JOB, request.queue, ids=ids, job=[info.queue, info.id], name=request.name, moved=1
        )
    return console.back(here, messages.SUCCESS if is_new else messages.WARNING, said)


def context_of(form: AnotherForm, info: JobInfo, job: Job, request: NewJobRequest | None) -> dict[str, Any]:
    """Return the context of the form, or of the page that asks for confirmation of `request`."""
    definition = registry.find(job.name)
    new = copying.as_stored(request) if request is not None else None
    return {
        "form": form,
        "info": info,
        "job": job,
        "new": new,
        "arguments": payloads.named_arguments(new) if new is not None else [],
        "signature": str(definition.signature) if definition else "",
        "once": operations.has_begun_once(info),
        "workflow": job.controls.workflow or browse.workflow_of(job.id),
    }
