"""Posts one job to its URL.  Its claim then waits for the report without holding a thread."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from time import sleep, time
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core.context import RunningJob, current_job
from django_jobs.core.outcome import HandedOver, SnoozeFor
from django_jobs.exceptions import JobsError
from django_jobs.remote.data import plain
from django_jobs.remote.posting import Answer, post
from django_jobs.remote.signatures import delivery_id, headers_for
from django_jobs.serialization.arguments import dump_value
from django_jobs.serialization.holders import remote_holder
from django_jobs.serialization.payloads import meta_of

#: Seconds before each further try when the other side answers 503 or cannot be reached.  They add up to one second,
#: because a thread is held meanwhile; after that the attempt fails, and its retry waits without a thread.
PAUSES = (0.1, 0.3, 0.6)
UNAVAILABLE, TOO_MANY = 503, 429
#: Seconds until a job is posted again that was refused with 429 without Retry-After; and the longest wait that a
#: receiver may ask for.
LATER, LONGEST_WAIT = 30.0, 86_400.0


class NotAccepted(JobsError):
    """The URL of a remote job did not accept it."""


def push(url: str, credentials: str, timeout: float, data: Any) -> HandedOver | SnoozeFor:
    """Post the running job to `url`; it then has `timeout` seconds to report.  Raises NotAccepted.

    A receiver that asks to wait, with 429 or with 503 and Retry-After, has not begun the job: it waits, uncounted."""
    job = current_job()
    if job is None:
        raise NotAccepted("Only a worker can run a remote job: this process has no claim to hand over.")
    settings = get_settings().api or {}
    answer = _post_patiently(url, body_of(job, data), Headers(job, credentials), settings.get("REMOTE_HOSTS", ()))
    if answer.status == TOO_MANY or (answer.status == UNAVAILABLE and answer.retry_after is not None):
        wait = LATER if answer.retry_after is None else answer.retry_after
        return SnoozeFor(round(min(max(wait, 1.0), LONGEST_WAIT) * 1000))
    if not 200 <= answer.status < 300:
        raise NotAccepted(
            f"{url} answered {answer.status}: it must answer 2xx to accept a job. Redirects are not followed."
        )
    return HandedOver(f"{remote_holder()}:{job.id}", round(timeout * 1000))


def body_of(job: RunningJob, data: Any) -> bytes:
    """Return the body that a push worker is sent."""
    described = {"id": job.id, "name": job.name, "data": None, "attempt": job.attempt, "token": job.token}
    return json.dumps(
        {**described, "data": plain(json.loads(dump_value(data))), "meta": plain(meta_of(job)), "tags": job.tags}
    ).encode()


class Headers:
    """The headers of one delivery: who sends it, and its signature, which is new for each try."""

    def __init__(self, job: RunningJob, name: str) -> None:
        """`name`: a name in API["CREDENTIALS"]; "" if the type has no credentials.  Raises NotAccepted."""
        entry = (get_settings().api or {}).get("CREDENTIALS", {}).get(name) if name else {}
        if not isinstance(entry, dict) or (name and not entry.keys() & {"token", "user", "secrets"}):
            raise NotAccepted(
                f"DJANGO_JOBS['API']['CREDENTIALS'][{name!r}] must have 'token', 'user' and 'password', or 'secrets'."
            )
        self.id = delivery_id(job.queue, job.id, job.token)
        self.secrets: Sequence[str] = entry.get("secrets", ())
        self.sender = _authorization(entry)

    def of(self, body: bytes) -> dict[str, str]:
        """Return the headers for a post that is made now."""
        try:
            return {**self.sender, **headers_for(body, self.id, int(time()), self.secrets)}
        except ValueError as error:
            raise NotAccepted(f"A secret in DJANGO_JOBS['API']['CREDENTIALS'] cannot be read: {error}") from error


def _authorization(entry: Mapping[str, Any]) -> dict[str, str]:
    if "token" in entry:
        return {"Authorization": f"Bearer {entry['token']}"}
    if "user" in entry:
        basic = b64encode(f"{entry['user']}:{entry.get('password', '')}".encode()).decode()
        return {"Authorization": f"Basic {basic}"}
    return {}


def _post_patiently(url: str, body: bytes, headers: Headers, trusted_hosts: Any) -> Answer:
    for pause in (*PAUSES, None):
        try:
            answer = post(url, body, headers.of(body), trusted_hosts)
        except ConnectionRefusedError as error:
            # Like 503: the other side has certainly not received it, so a retry is safe even for at-most-once jobs.
            if pause is None:
                raise NotAccepted(f"{url} cannot be reached: {error}") from error
        except (OSError, HTTPException) as error:
            raise NotAccepted(f"{url} did not answer: {type(error).__name__}: {error}") from error
        else:
            if answer.status != UNAVAILABLE or answer.retry_after is not None or pause is None:
                return answer
        sleep(pause)
    raise AssertionError("the last round returns or raises")
