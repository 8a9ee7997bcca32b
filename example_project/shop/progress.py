"""A job's progress, for a page."""

from __future__ import annotations

from typing import Any

from django_jobs import JobNotFound, get_job
from shop.models import SentJob


def of(sent: SentJob) -> dict[str, Any]:
    """Return state, attempts, progress 0…1 and the last check-in; state "gone" if it has left the history."""
    try:
        handle = get_job(sent.job_id, queue=sent.queue)
    except JobNotFound:
        return {"state": "gone", "attempts": 0, "progress": 1.0, "message": ""}
    checkin = handle.checkin or {}
    done = 1.0 if handle.state == "succeeded" else 0.0
    return {
        "state": str(handle.state),
        "attempts": len(handle.attempts) + (handle.state in ("running", "succeeded")),
        "progress": checkin.get("progress", 0.0) if handle.state == "running" else done,
        "message": str(handle.error or checkin.get("message", "")),
    }
