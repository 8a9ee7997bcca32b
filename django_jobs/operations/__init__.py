"""The only way operators act: admin, API and commands come here.  Every verb says what it moved."""

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
