"""A new job like one that exists: its name and arguments, under a new id.  `edited` changes the job itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.values import Added, Job
from django_jobs.enqueueing.keys import loaded
from django_jobs.enqueueing.request import NewJobRequest, encode, new_id, now_ms, request_for
from django_jobs.enqueueing.submit import submit
from django_jobs.exceptions import InvalidArguments
from django_jobs.operations.edited import unmask
from django_jobs.serialization.arguments import compact
from django_jobs.serialization.masking import shown_call
from django_jobs.serialization.record import decode

_FORM = re.compile(r"[0-9a-f]{32}")


def new_form() -> str:
    """Return the key of a form that enqueues: what is sent twice with the same key is enqueued once."""
    return new_id(now_ms())


def copy_request(job: Job, call: Sequence[Any], *, queue: str, priority: int, form: str) -> NewJobRequest:
    """Return the request for a job like `job` with the arguments `call` (JSON values as `shown_call` shows them).

    A masked value is the stored one, and is masked in the new job, too.  The id is made of `form` (see `new_form`) and
    of the call: the same request, sent twice, adds one job; another request with the same form adds a second one.
    The scope and the tags are those of `job`; if it has no tags, those of its type.  Other options come from the job
    type as it is now; nothing else is copied: neither times, nor `meta`, nor the workflow.

    Raises all errors that do not depend on the store: InvalidArguments, PayloadError, UnknownJob, UnknownQueue."""
    if not _FORM.fullmatch(form):
        raise InvalidArguments("The form has no valid key. Open it again.")
    definition = registry.get(job.name)
    masked = [list(call[0]), dict(call[1])]
    text = compact(unmask(json.loads(job.args), shown_call(job), [list(call[0]), dict(call[1])]))
    _stay_masked(definition, masked)
    definition.check_call(*json.loads(text))
    request = request_for(definition, *loaded(text))
    request.queue, request.priority, request.tags = queue, priority, job.tags or request.tags
    request.scope = job.options.scope
    # A page says now what happened.  It waits for a commit only in the outbox, where nothing is lost or refused.
    request.on_commit, request.block_timeout = bool(get_settings().outbox), 0
    request.on_conflict = "skip" if request.on_conflict == "raise" else request.on_conflict
    same = compact([job.queue, job.id, queue, priority]) + text
    request.id = form[:12] + sha256(form.encode() + same).hexdigest()[:20]
    request.sent = encode(request, get_settings(), now_ms())
    return request


def as_stored(request: NewJobRequest) -> Job:
    """Return the job that this request would store.  Its arguments are not masked: show it through `shown_call`."""
    assert request.sent is not None
    return decode(request.sent.id, request.queue, request.sent.record)


def enqueue_copy(request: NewJobRequest) -> tuple[str, Added | None]:
    """Enqueue it, and return the id of the job, and what happened; None: it waits in the outbox.  Raises what `submit`
    raises: QueueFull if the queue has no room, StoreError."""
    handle = submit(request)
    return handle.id, handle.added


def _stay_masked(definition: JobDefinition, masked: Sequence[Any]) -> None:
    """Refuse masked values that the new job would show, because its type no longer names them as sensitive."""
    args, kwargs = definition.hide([""] * len(masked[0]), dict.fromkeys(masked[1], ""))
    pairs = [*zip(masked[0], args, strict=True), *((value, kwargs[key]) for key, value in masked[1].items())]
    if any(value == HIDDEN != now for value, now in pairs):
        raise InvalidArguments(
            f"A value {HIDDEN} cannot be copied: {definition.name} no longer names its argument as sensitive, and the "
            "new job would show it. Write the value itself."
        )
