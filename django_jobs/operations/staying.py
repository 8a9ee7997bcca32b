"""Jobs that a retry by hand leaves where they are, and why."""

from __future__ import annotations

from collections.abc import Mapping

from django_jobs.core.values import MAY_HAVE_STARTED, JobInfo, State
from django_jobs.exceptions import DuplicateJob
from django_jobs.serialization.record import job_in
from django_jobs.stores import get_store

#: A sentence names so many jobs.
NAMED = 20


def may_have_started(info: JobInfo) -> bool:
    """Return whether this job is delivered at most once, has ended, and may have been started."""
    return info.state in MAY_HAVE_STARTED and _at_most_once(info)


def _at_most_once(info: JobInfo) -> bool:
    job = job_in(info)
    return job is not None and job.controls.at_most_once


def has_begun_once(info: JobInfo) -> bool:
    """Return whether this job is delivered at most once, and may have been started: a copy of it would start again."""
    return (info.state in {State.RUNNING, State.SUCCEEDED} and _at_most_once(info)) or may_have_started(info)


def check_key(queue: str, id: str, record: bytes) -> None:
    """Raise DuplicateJob, which names the other job, if another job holds the unique key in this record."""
    if holder := get_store().key_holders(queue, {id: record}).get(id):
        raise DuplicateJob(f"Job {id!r} was not queued: job {holder!r} has its unique key. Wait until that has ended.")


def taken_text(taken: Mapping[str, str]) -> str:
    """Return why jobs were not queued again, with the ids; "" if there are none."""
    names = ", ".join(f"{id} (by {holder})" for id, holder in [*taken.items()][:NAMED])
    more = f" and {len(taken) - NAMED} more" if len(taken) > NAMED else ""
    return f"Not queued, because another job holds their unique key: {names}{more}." if taken else ""
