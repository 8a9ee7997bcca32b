"""The subcommands of `manage.py jobs`, by name."""

from __future__ import annotations

from django_jobs.management.jobs_commands import (
    acting,
    celery,
    doctor,
    enqueueing,
    health,
    history,
    looking,
    outbox,
    queues,
    schedules,
    token,
    workflows,
)
from django_jobs.management.jobs_commands.base import Subcommand

SUBCOMMANDS: dict[str, Subcommand] = {
    "stats": looking.STATS,
    "list": looking.LIST,
    "show": looking.SHOW,
    "why": looking.WHY,
    "workers": looking.WORKERS,
    "times": looking.TIMES,
    "tags": looking.TAGS,
    "retry": acting.RETRY,
    "delete": acting.DELETE,
    "cancel": acting.CANCEL,
    "pause": queues.PAUSE,
    "resume": queues.RESUME,
    "paused": queues.PAUSED,
    "schedules": schedules.SCHEDULES,
    "run": schedules.RUN,
    "workflows": workflows.WORKFLOWS,
    "workflow": workflows.WORKFLOW,
    "enqueue": enqueueing.ENQUEUE,
    "edit": enqueueing.EDIT,
    "token": token.TOKEN,
    "findings": health.FINDINGS,
    "errors": health.ERRORS,
    "acknowledge": health.ACKNOWLEDGE,
    "alarms": health.ALARMS,
    "doctor": doctor.DOCTOR,
    "health": health.HEALTH,
    "history": history.HISTORY,
    "archived": history.ARCHIVED,
    "outbox": outbox.OUTBOX,
    "audit-celery": celery.AUDIT,
}
