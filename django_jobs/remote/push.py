"""Posts one job to its URL.  Its claim then waits for the report without holding a thread."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import HTTPException
from time import sleep
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core.context import RunningJob, current_job
from django_jobs.core.outcome import HandedOver
from django_jobs.exceptions import JobsError
from django_jobs.remote.data import plain
from django_jobs.remote.posting import post
from django_jobs.serialization.arguments import dump_value

#: A holder whose name starts with this reports over HTTP; no parent process renews its lease.
HOLDER = "remote:"
#: Seconds before each further try when the other side answers 503 or cannot be reached.  They add up to one second,
#: because a thread is held meanwhile; after that the attempt fails, and its retry waits without a thread.
PAUSES = (0.1, 0.3, 0.6)
UNAVAILABLE = 503


class NotAccepted(JobsError):
    """The URL of a remote job did not accept it."""


def push(url: str, credentials: str, timeout: float, data: Any) -> HandedOver:
    """Post the running job to `url`; it then has `timeout` seconds to report.  Raises NotAccepted."""
    job = current_job()
    if job is None:
        raise NotAccepted("Only a worker can run a remote job: this process has no claim to hand over.")
    settings = get_settings().api or {}
    status = _post_patiently(url, body_of(job, data), authorization(credentials), settings.get("REMOTE_HOSTS", ()))
    if not 200 <= status < 300:
        raise NotAccepted(f"{url} answered {status}: it must answer 2xx to accept a job. Redirects are not followed.")
    return HandedOver(HOLDER + job.id, round(timeout * 1000))


def body_of(job: RunningJob, data: Any) -> bytes:
    """Return the body that a push worker is sent."""
    described = {"id": job.id, "name": job.name, "data": None, "attempt": job.attempt, "token": job.token}
    return json.dumps({**described, "data": plain(json.loads(dump_value(data)))}).encode()


def authorization(name: str) -> str | None:
    """Return the Authorization header for a name in API["CREDENTIALS"]; None if the type has no credentials."""
    if not name:
        return None
    entry = (get_settings().api or {}).get("CREDENTIALS", {}).get(name)
    if not isinstance(entry, dict) or not ("token" in entry or {"user", "password"} <= entry.keys()):
        raise NotAccepted(
            f"DJANGO_JOBS['API']['CREDENTIALS'][{name!r}] must be {{'token': …}} or {{'user': …, 'password': …}}."
        )
    if "token" in entry:
        return f"Bearer {entry['token']}"
    return "Basic " + b64encode(f"{entry['user']}:{entry['password']}".encode()).decode()


def _post_patiently(url: str, body: bytes, authorization: str | None, trusted_hosts: Any) -> int:
    for pause in (*PAUSES, None):
        try:
            status = post(url, body, authorization, trusted_hosts)
        except ConnectionRefusedError as error:
            # Like 503: the other side has certainly not received it, so a retry is safe even for at-most-once jobs.
            if pause is None:
                raise NotAccepted(f"{url} cannot be reached: {error}") from error
        except (OSError, HTTPException) as error:
            raise NotAccepted(f"{url} did not answer: {type(error).__name__}: {error}") from error
        else:
            if status != UNAVAILABLE or pause is None:
                return status
        sleep(pause)
    raise AssertionError("the last round returns or raises")
