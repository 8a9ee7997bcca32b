"""What operators see and do, for your own code: admin, API and commands call these functions.

The acts on jobs that are named by their ids are here.  The rest is imported when it is asked for, because workers do
without it.
"""

from typing import TYPE_CHECKING, Any

from django_jobs.operations.actions import (
    BATCH,
    VERBS,
    Done,
    act,
    cancel,
    check_queue,
    command_worker,
    delete,
    edit,
    edit_and_revive,
    kill,
    pause,
    reschedule,
    resume,
    revive,
    revive_as_seen,
    verb_of,
    word_of,
)
from django_jobs.operations.staying import has_begun_once, may_have_started, taken_text
from django_jobs.operations.workflow_acts import (
    cancel_workflow,
    restarted_steps,
    retry_held,
    retry_workflow,
    staying_steps,
)

if TYPE_CHECKING:
    from django_jobs.operating import (
        acknowledge,
        apply,
        archived_jobs,
        bulk_operations,
        charts,
        counts,
        decide,
        delete_entries,
        error,
        errors,
        find,
        findings,
        history,
        job,
        jobs,
        outbox,
        pause_schedule,
        paused,
        queues,
        report,
        resume_schedule,
        retry,
        run_schedule,
        run_times,
        schedules,
        send_entries,
        steps,
        tags,
        why,
        withdraw,
        workers,
        workflow,
        workflows,
    )

__all__ = [
    "BATCH",
    "VERBS",
    "Done",
    "acknowledge",
    "act",
    "apply",
    "archived_jobs",
    "bulk_operations",
    "cancel",
    "cancel_workflow",
    "charts",
    "check_queue",
    "command_worker",
    "counts",
    "decide",
    "delete",
    "delete_entries",
    "edit",
    "edit_and_revive",
    "error",
    "errors",
    "find",
    "findings",
    "has_begun_once",
    "history",
    "job",
    "jobs",
    "kill",
    "may_have_started",
    "outbox",
    "pause",
    "pause_schedule",
    "paused",
    "queues",
    "report",
    "reschedule",
    "restarted_steps",
    "resume",
    "resume_schedule",
    "retry",
    "retry_held",
    "retry_workflow",
    "revive",
    "revive_as_seen",
    "run_schedule",
    "run_times",
    "schedules",
    "send_entries",
    "staying_steps",
    "steps",
    "tags",
    "taken_text",
    "verb_of",
    "why",
    "withdraw",
    "word_of",
    "workers",
    "workflow",
    "workflows",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # those that are not above are there
        from django_jobs import operating

        return getattr(operating, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
