"""All actions of operators: admin, API and commands call these.  Every verb returns which jobs it moved."""

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
    edit_and_retry,
    kill,
    pause,
    reschedule,
    resume,
    retry,
    retry_as_seen,
)

__all__ = [
    "BATCH",
    "VERBS",
    "Done",
    "act",
    "cancel",
    "check_queue",
    "command_worker",
    "delete",
    "edit",
    "edit_and_retry",
    "kill",
    "pause",
    "reschedule",
    "resume",
    "retry",
    "retry_as_seen",
]
