"""A job's progress, for a page."""

from __future__ import annotations

from typing import Any

from django_jobs import JobNotFound, WorkflowNotFound, get_job, get_workflow
from shop.models import SentJob


def of(sent: SentJob) -> dict[str, Any]:
    """Return state, attempts, progress 0…1 and the last check-in; for a job that is not there: see `absent`."""
    try:
        handle = get_job(sent.job_id, queue=sent.queue)
    except JobNotFound:
        state = absent(sent.job_id)
        return {"state": state, "attempts": 0, "progress": float(state != "waiting"), "message": ""}
    checkin = handle.checkin or {}
    done = 1.0 if handle.state == "succeeded" else 0.0
    return {
        "state": str(handle.state),
        "attempts": len(handle.attempts) + (handle.state in ("running", "succeeded")),
        "progress": checkin.get("progress", 0.0) if handle.state == "running" else done,
        "message": str(handle.error or checkin.get("message", "")),
    }


def absent(job_id: str) -> str:
    """Return the state of a job that is not in the store: that of its step in a workflow ("waiting" for the steps
    before it, "not started" if that workflow has ended), or "gone" if it has left the history."""
    try:
        flow = get_workflow(job_id.partition(".")[0])
        step = next((step for step in flow.steps if step.job_id == job_id), None)
        if step is None:
            return "gone"
        return "not started" if step.state == "waiting" and flow.state != "running" else step.state
    except WorkflowNotFound:
        return "gone"
