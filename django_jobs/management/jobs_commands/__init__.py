"""The subcommands of `manage.py jobs`, by name."""

from __future__ import annotations

from django_jobs.management.jobs_commands import (
    acting,
    alarms,
    archived,
    doctor,
    enqueueing,
    health,
    history,
    looking,
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
    "tags": looking.TAGS,
    "retry": acting.RETRY,
    "delete": acting.DELETE,
    "cancel": acting.CANCEL,
    "pause": queues.PAUSE,
    "resume": queues.RESUME,
    "schedules": schedules.SCHEDULES,
    "run": schedules.RUN,
    "workflows": workflows.WORKFLOWS,
    "workflow": workflows.WORKFLOW,
    "enqueue": enqueueing.ENQUEUE,
    "edit": enqueueing.EDIT,
    "token": token.TOKEN,
    "alarms": alarms.ALARMS,
    "doctor": doctor.DOCTOR,
    "health": health.HEALTH,
    "history": history.HISTORY,
    "archived": archived.ARCHIVED,
}
