"""A new workflow goes to the store: whole or not at all, now or when the transaction commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import monotonic

from django.utils.module_loading import import_string

from django_jobs import outbox
from django_jobs.conf import get_settings
from django_jobs.core.values import State
from django_jobs.enqueueing import commits, membership, submit
from django_jobs.enqueueing import request as new_job
from django_jobs.enqueueing.sending import end_late, settings_of
from django_jobs.exceptions import InvalidArguments, InvalidWorkflow, QueueFull
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores import get_store
from django_jobs.workflows import engine
from django_jobs.workflows.encoding import Planned, fields_of
from django_jobs.workflows.handle import WorkflowHandle
from django_jobs.workflows.packing import Start, first_steps, later


def send(name: str, plan: Sequence[Planned], on_commit: bool | None) -> WorkflowHandle:
    """Enqueue a workflow now, or when the transaction commits.  Raises the errors of Workflow.enqueue."""
    settings = get_settings()
    if (batch := membership.current.get()) is not None:
        raise InvalidWorkflow(
            f"Workflow {name!r} is enqueued inside `with batch:` of batch {batch.id}, and a batch consists of jobs. "
            "Enqueue the workflow outside."
        )
    if on_commit is not None and not isinstance(on_commit, bool):
        raise InvalidArguments(f"on_commit={on_commit!r}: use True, False, or None for the setting ON_COMMIT.")
    id = f"w{new_job.new_id(new_job.now_ms())}"
    fields, starts = fields_of(id, name, plan)
    _check_fits(starts)
    handle = WorkflowHandle(id, name)
    entry = None
    if submit.is_kept(on_commit, settings):
        now = new_job.now_ms()
        entry = outbox.Entry(outbox.EntryKind.WORKFLOW, id, name, fields=fields, at=now, token=new_job.new_id(now))
    if entry is not None or submit.waits_for_commit(on_commit, settings):
        kept = None if entry is None else outbox.Kept(entry.token, settings.database)
        handle.deferred(kept, [(start.queue, start.new.id) for start in starts])
        asked_at = monotonic()
        commits.after_commit(
            lambda: _send_now(handle, *later(fields, starts, int((monotonic() - asked_at) * 1000))),
            f"workflow {name!r} ({id})",
            settings,
            entry,
        )
    else:
        _send_now(handle, fields, starts)
    return handle


def _send_now(handle: WorkflowHandle, fields: outbox.Fields, starts: Sequence[Start]) -> None:
    if handle.is_dropped(at_commit=True):
        return
    if get_settings().eager:
        # Execution is a layer above; only eager mode calls upwards, and only here.
        run = import_string("django_jobs.execution.eager.run_workflow")
        handle.sent(run(handle.id, fields, starts))
        return
    _check_room(starts)
    _add(handle.id, fields)
    handle.sent()
    engine.start_first(get_store(), handle.id, starts)


def _add(id: str, fields: outbox.Fields) -> None:
    get_store().add_workflow(id, fields, check_in=engine.CHECK_SOON)
    if ACTIVE:
        crashpoint("workflow.added")


def send_kept(entry: outbox.Entry) -> None:
    """Send a workflow from the outbox; a second time, this changes nothing.  Raises QueueFull and StoreError."""
    elapsed = max(0, new_job.now_ms() - entry.at)
    fields, starts = later(entry.fields, first_steps(entry.fields), elapsed)
    try:
        _check_room(starts)
    except QueueFull:
        if get_store().workflow_fields(entry.key, ["kind"]) == [None]:
            raise  # otherwise it was accepted before, and its own steps may fill the queue
    _add(entry.key, fields)
    engine.start_first(get_store(), entry.key, starts)


def _check_room(starts: Sequence[Start]) -> None:
    """Raise QueueFull if a queue has no room for the first steps.  Later steps are never refused.  Raises as
    `_check_fits`: a limit may have changed since."""
    for name, number, most in _check_fits(starts):
        while _waiting(name) + number > most:
            if not end_late(name):
                raise QueueFull(name, most)


def _waiting(queue: str) -> int:
    counts = get_store().stats([queue])[0].counts
    return counts["queued"] + counts["blocked"]


def _check_fits(starts: Sequence[Start]) -> list[tuple[str, int, int]]:
    """Return each queue with a limit, how many steps are queued there at once, and the limit.  Raises InvalidWorkflow
    if there can never be room for them."""
    settings, now = get_settings(), new_job.now_ms()
    at_once = Counter(start.queue for start in starts if new_job.state_of(start.new, now) is State.QUEUED)
    limited = [(name, number, settings_of(name, settings).max_length) for name, number in at_once.items()]
    for name, number, most in limited:
        if most and number > most:
            raise InvalidWorkflow(
                f"The workflow begins with {number} steps in queue {name!r}, whose MAX_LENGTH is {most}: there is "
                "never room for all of them. Let some come after others, or use a queue with more room."
            )
    return [each for each in limited if each[2]]
