"""Workflows and their steps as the HTTP API and `manage.py jobs … --json` give them.  Times are ISO 8601 in UTC."""

from __future__ import annotations

from typing import Any

from django_jobs.core.values import JobInfo
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import iso
from django_jobs.serialization.record import name_of
from django_jobs.workflows.reading import StepInfo, WorkflowInfo


def workflow_payload(info: WorkflowInfo) -> dict[str, Any]:
    """Return one workflow or batch.  `closed` and `callbacks` are null for a workflow."""
    is_batch = info.kind == "batch"
    return {
        "id": info.id,
        "kind": info.kind,
        "name": info.name,
        "state": info.state,
        "created_at": iso(info.created_at),
        "changed_at": iso(info.touched_at),
        "ended_at": iso(info.ended_at or 0),
        "total": info.total,
        "counts": info.counts,
        "progress": round(info.progress, 4),
        "stopped_by": info.stopped_by,
        "closed": info.closed if is_batch else None,
        "callbacks": info.callbacks if is_batch else None,
    }


def step_payload(step: StepInfo, job: JobInfo | None) -> dict[str, Any]:
    """Return one step of a workflow, or one job of a batch.  `job` is what is stored of its job now, if there is one.

    `number`, `after` and `if_dead` are null in a batch."""
    is_step = step.job != ""
    return {
        "number": step.number if is_step else None,
        "name": step.name,
        "job": step.job or (name_of(job.record) if job is not None else None),
        "queue": step.queue,
        "job_id": step.job_id,
        "state": step.state,
        "job_state": job.state.value if job is not None else None,
        "error": error_of(job) if job is not None else None,
        "after": list(step.after) if is_step else None,
        "if_dead": step.if_dead if is_step else None,
    }


def error_of(job: JobInfo, *, arguments: bool = True) -> str | None:
    """Return the last error of a job, without the values of sensitive arguments; without `arguments`, of any."""
    if not job.attempts:
        return None
    last = masked(job, arguments=arguments).attempts[-1]
    return f"{last.error_name or last.outcome}: {last.error}".strip(": ")
