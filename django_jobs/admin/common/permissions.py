"""The permission that each change needs.  Every page needs `view_jobs`, every change its own one as well; arguments and
results are shown with `view_arguments`."""

from __future__ import annotations

from django.http import HttpRequest

VIEW = "view_jobs"
ARGUMENTS = "view_arguments"
PAUSE = "pause_queues"
WORKERS = "manage_workers"
SCHEDULES = "run_schedules"
ENQUEUE = "enqueue_jobs"
#: verb of operations.VERBS → permission.
VERBS = {
    "revive": "retry_jobs",
    "reschedule": "retry_jobs",
    "edit": "retry_jobs",
    "cancel": "delete_jobs",
    "kill": "delete_jobs",
    "delete": "delete_jobs",
}


def may(request: HttpRequest, permission: str) -> bool:
    return request.user.is_active and request.user.has_perm(f"django_jobs.{permission}")
