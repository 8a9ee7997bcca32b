"""A job as users and programs see it: JobInfo → plain JSON values.  Loads no model and runs no job code.

Sensitive values are masked (masking.py), so that no page, command or endpoint can omit it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_jobs.core import registry
from django_jobs.core.attempt import counted
from django_jobs.core.context import RunningJob
from django_jobs.core.definition import positional_names
from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.values import FINISHED, NOT_READY, Attempt, Job, JobInfo, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.checked import loaded
from django_jobs.serialization.display import readable
from django_jobs.serialization.holders import shown
from django_jobs.serialization.masking import masked, shown_call
from django_jobs.serialization.record import decode, name_of
from django_jobs.serialization.results import why_missing, without_worker, worker_of

__all__ = ["HIDDEN", "job_payload", "meta_of", "named_arguments", "searchable_text"]

#: Entries of `meta` that distinguish a second call with the same id from one call that was sent twice.
OWN_META = frozenset({"nonce", "put"})


def job_payload(info: JobInfo, *, show_arguments: bool = True) -> dict[str, Any]:
    """Return one job as the HTTP API and `jobs show --json` give it.  Times are ISO 8601 in UTC, durations seconds.

    Values of sensitive arguments are masked wherever they occur.  For a record that cannot be read, `corrupt` is the
    reason and `raw` its bytes as text."""
    info = masked(info)
    payload: dict[str, Any] = {
        "id": info.id,
        "name": name_of(info.record),
        "queue": info.queue,
        "state": info.state.value,
    }
    try:
        job = decode(info.id, info.queue, info.record)
    except CorruptRecord as error:
        payload |= {"corrupt": str(error)}
        if show_arguments:
            payload["raw"] = info.record.decode(errors="backslashreplace")
    else:
        payload |= record_part(job, show_arguments)
        payload["ready_at"] = iso(ready_ms(info, job))
    return payload | progress_part(info, show_arguments)


def record_part(job: Job, show_arguments: bool) -> dict[str, Any]:
    """Return the facts that were fixed when the job was enqueued."""
    part: dict[str, Any] = {
        "priority": job.controls.priority,
        "max_attempts": job.options.max_attempts,
        "tags": list(job.tags),
        "enqueued_at": iso(job.enqueued_at),
        "expires_at": iso(job.controls.expires_at or 0),
    }
    if show_arguments:
        call = shown_call(job)
        part["args"], part["kwargs"] = call if call else (None, None)
        part["meta"] = meta_of(job)
    return part


def ready_ms(info: JobInfo, job: Job) -> int:
    """Return since when the job can run, or could before its last attempt (ms); 0 while it cannot."""
    return 0 if info.state in NOT_READY else max(info.since, job.enqueued_at)


def meta_of(job: Job | RunningJob) -> dict[str, Any] | None:
    """Return the job's meta without the entries that this package adds."""
    return {key: value for key, value in (job.meta or {}).items() if key not in OWN_META} or None


def progress_part(info: JobInfo, show_arguments: bool) -> dict[str, Any]:
    """Return the facts that changed since the job was enqueued."""
    at = iso(info.at)
    last = info.attempts[-1] if info.attempts else None
    part: dict[str, Any] = {
        "attempts": info.failures + info.crashes + (info.state in {State.RUNNING, State.SUCCEEDED}),
        "failures": info.failures,
        "crashes": info.crashes,
        "run_at": at if info.state in {State.SCHEDULED, State.RETRY} else None,
        "started_at": at if info.state is State.RUNNING else None,
        "finished_at": at if info.state in FINISHED else None,
        "run_time": info.run_ms / 1000 if info.run_ms >= 0 else None,
        "worker": worker_name(info) or None,
        "checkin": info.checkin,
        "error": f"{last.error_name}: {last.error}".strip(": ") if last else None,
        "log": [attempt_payload(*line) for line in zip(info.attempts, counted(info), strict=True)],
    }
    if show_arguments:
        why = why_missing(info.result)
        part["result"] = as_json(info.result) if why is None else None
        part["result_missing"] = why
    return part


def worker_name(info: JobInfo) -> str:
    """Return the worker that runs the job, or ran it last; "" if it has none."""
    last = info.attempts[-1].worker if info.attempts else ""
    return shown(info.worker) or worker_of(info.result or b"") or last


def attempt_payload(attempt: Attempt, counts: bool) -> dict[str, Any]:
    """Return one line of the attempts log."""
    payload = attempt._asdict()
    payload["counted"] = counts
    payload["at"] = iso(attempt.at)
    payload["run_time"] = attempt.run_ms / 1000 if attempt.run_ms >= 0 else None
    del payload["run_ms"]
    return payload


def named_arguments(job: Job) -> list[tuple[str, str]] | None:
    """Return the arguments by parameter name, as text for people; None if they are not a valid call."""
    call = shown_call(job)
    if call is None:
        return None
    args, kwargs = call
    definition = registry.find(job.name)
    positional = positional_names(definition.signature) if definition else ()
    names = [*positional, *(str(i + 1) for i in range(len(positional), len(args)))]
    return [(name, readable(value)) for name, value in [*zip(names, args, strict=False), *kwargs.items()]]


def searchable_text(info: JobInfo, *, arguments: bool = True) -> str:
    """Return the text in which a search looks for this job: id, name, tags, arguments and last error as they are shown,
    so that a search finds nothing that is hidden."""
    info = masked(info, arguments=arguments)
    last = info.attempts[-1] if info.attempts else None
    error = f"{last.error_type} {last.error}" if last else ""
    try:
        job = decode(info.id, info.queue, info.record)
    except CorruptRecord:
        return "\n".join((info.id, info.record.decode(errors="replace"), error))
    shown = named_arguments(job)
    values = [f"{name}={value}" for name, value in shown or ()]
    return "\n".join((info.id, job.name, *job.tags, *values, error))


def as_json(data: bytes | None) -> Any:
    """Return the JSON value, or the text if it is not valid JSON."""
    if not data:
        return None
    data = without_worker(data)
    return loaded(data, data.decode(errors="backslashreplace"))


def iso(ms: int) -> str | None:
    """Return a stored time for programs; None for 0 and for times that no calendar can represent."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms else None
    except (ValueError, OverflowError, OSError):
        return None
