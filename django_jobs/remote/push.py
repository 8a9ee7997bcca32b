"""Posts one job to its URL.  Its claim then waits for the report without holding a thread."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import sleep, time
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core.context import RunningJob, current_job
from django_jobs.core.outcome import HandedOver, SnoozeFor
from django_jobs.exceptions import JobsError
from django_jobs.remote.data import plain
from django_jobs.remote.posting import Answer, NotAnswered, post
from django_jobs.remote.signatures import delivery_id, headers_for
from django_jobs.runtime.per_minute import counted
from django_jobs.serialization.arguments import dump_value
from django_jobs.serialization.holders import remote_holder
from django_jobs.serialization.payloads import meta_of

logger = logging.getLogger("django_jobs.remote")
#: Seconds before each further try when the other side answers 503 or cannot be reached.  They add up to one second,
#: because a thread is held meanwhile; after that the attempt fails, and its retry waits without a thread.
PAUSES = (0.1, 0.3, 0.6)
UNAVAILABLE, TOO_MANY, GONE = 503, 429, 410
#: Seconds until a job is posted again that was refused with 429 without Retry-After; and the longest wait that a
#: receiver may ask for.
LATER, LONGEST_WAIT = 30.0, 3600.0


class NotAccepted(JobsError):
    """The URL of a remote job did not accept it."""


def push(
    url: str, credentials: str, timeout: float, data: Any, per_minute: int | None = None
) -> HandedOver | SnoozeFor:
    """Post the running job to `url`; it then has `timeout` seconds to report.  Raises NotAccepted.

    `per_minute`: posts to this receiver; a job beyond them waits as one that the receiver has put off.

    A receiver that asks to wait, with 429 or with 503 and Retry-After, has not begun the job: it waits, uncounted.
    With 410, it wants no more jobs: their type is paused.  If no answer comes, the receiver may have begun the job, so
    the job waits for its report as if it had been accepted."""
    job = current_job()
    if job is None:
        raise NotAccepted("Only a worker can run a remote job: this process has no claim to hand over.")
    settings = get_settings().api or {}
    elsewhere = HandedOver(f"{remote_holder()}:{job.id}", round(timeout * 1000))
    try:
        headers, hosts = Headers(job, credentials), settings.get("REMOTE_HOSTS", ())
        answer = _post_patiently(url, body_of(job, data), headers, hosts, partial(_turn, job.name, per_minute))
    except NotAnswered as error:
        logger.warning("%s %s: %s did not answer (%s). The job waits for its report.", job.name, job.id, url, error)
        return elsewhere
    if answer.status == TOO_MANY or (answer.status == UNAVAILABLE and answer.retry_after is not None):
        wait = LATER if answer.retry_after is None else answer.retry_after
        return SnoozeFor(round(min(max(wait, 1.0), LONGEST_WAIT) * 1000), begun=False)
    if answer.status == GONE:
        reason = "The receiver answered 410: it takes no more jobs. Set another URL, then resume the job type."
        logger.warning("%s in queue %s is paused. %s", job.name, job.queue, reason)
        return SnoozeFor(round(LATER * 1000), reason, begun=False)
    if not 200 <= answer.status < 300:
        raise NotAccepted(
            f"{url} answered {answer.status}: it must answer 2xx to accept a job. Redirects are not followed."
        )
    return elsewhere


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
        # A job that was deleted may have had the same id; a try that the receiver put off has another token.
        self.id = delivery_id(job.id, job.enqueued_ms, job.attempt)
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
        if not str(entry["token"]).isprintable():  # http.client would quote it in its error, which the job keeps
            raise NotAccepted(
                "The token in DJANGO_JOBS['API']['CREDENTIALS'] is not one line. If it was read from a file, strip it."
            )
        return {"Authorization": f"Bearer {entry['token']}"}
    if "user" in entry:
        basic = b64encode(f"{entry['user']}:{entry.get('password', '')}".encode()).decode()
        return {"Authorization": f"Basic {basic}"}
    return {}


def _turn(name: str, per_minute: int | None) -> float:
    """Count a post.  Return the seconds until it may be made; 0 = now.

    Those that must wait get different times, as far apart as the limit asks: at one time, most would wait again."""
    beyond, seconds = counted(f"url:{name}", per_minute)
    return seconds + (beyond - 1) * 60 / (per_minute or 1) if beyond else 0.0


def _post_patiently(url: str, body: bytes, headers: Headers, trusted_hosts: Any, turn: Callable[[], float]) -> Answer:
    for pause in (*PAUSES, None):
        if wait := turn():
            return Answer(TOO_MANY, wait)
        try:
            answer = post(url, body, headers.of(body), trusted_hosts)
        except ConnectionRefusedError as error:
            # Like 503: the other side has certainly not received it, so a retry is safe even for at-most-once jobs.
            if pause is None:
                raise NotAccepted(f"{url} cannot be reached: {error}") from error
        except OSError as error:
            raise NotAccepted(f"{url} cannot be reached: {type(error).__name__}: {error}") from error
        else:
            if answer.status != UNAVAILABLE or answer.retry_after is not None or pause is None:
                return answer
        sleep(pause)
    raise AssertionError("the last round returns or raises")
