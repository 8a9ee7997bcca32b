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
from django_jobs.operations.workflows import (
    cancel_workflow,
    restarted_steps,
    retry_held,
    retry_workflow,
    staying_steps,
)

if TYPE_CHECKING:
    from django_jobs.operating import (
        apply,
        counts,
        find,
        findings,
        job,
        jobs,
        paused,
        queues,
        report,
        retry,
        run_times,
        schedules,
        why,
        workers,
    )

__all__ = [
    "BATCH",
    "VERBS",
    "Done",
    "act",
    "apply",
    "cancel",
    "cancel_workflow",
    "check_queue",
    "command_worker",
    "counts",
    "delete",
    "edit",
    "edit_and_revive",
    "find",
    "findings",
    "has_begun_once",
    "job",
    "jobs",
    "kill",
    "may_have_started",
    "pause",
    "paused",
    "queues",
    "report",
    "reschedule",
    "restarted_steps",
    "resume",
    "retry",
    "retry_held",
    "retry_workflow",
    "revive",
    "revive_as_seen",
    "run_times",
    "schedules",
    "staying_steps",
    "taken_text",
    "verb_of",
    "why",
    "word_of",
    "workers",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # those that are not above are there
        from django_jobs import operating

        return getattr(operating, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
