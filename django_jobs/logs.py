"""The log line of a job that ended, and a filter for LOGGING that adds the job's id to every record logged in a job."""

from __future__ import annotations

import logging
from typing import NamedTuple

from django_jobs.core.context import current_job
from django_jobs.core.sensitive import Scrub

logger = logging.getLogger("django_jobs.worker")


class JobEnd(NamedTuple):
    """How one attempt ended, or a job that had no attempt (attempt 0).  Arguments are never logged."""

    name: str
    id: str
    queue: str
    attempt: int
    wait_ms: int = 0
    run_ms: int = 0
    why: str = ""
    #: of the job, separated by spaces.
    tags: str = ""

    def log(self, state: str, level: int = logging.INFO) -> None:
        """Log the line for the end of the attempt."""
        if logger.isEnabledFor(level):
            logger.log(
                level,
                "%s %s on %s: %s, attempt %d, waited %d ms, ran %d ms%s",
                *self[:3],
                state,
                self.attempt,
                # The clocks of two machines may differ, and a job that never ran has -1.
                max(self.wait_ms, 0),
                max(self.run_ms, 0),
                self.why and f": {self.why}",
                extra=self._extra(),
            )

    def log_death(self) -> None:
        """Do the same as `log("dead")`, and log an error for alerts: no user killed this job."""
        self.log("dead")
        text = "%s %s on %s is dead after attempt %d (%s). See `manage.py jobs show %s`"
        logger.error(text, *self[:4], self.why, self.id, extra=self._extra())

    def _extra(self) -> dict[str, str | int]:
        return {
            "job_name": self.name,
            "job_id": self.id,
            "job_queue": self.queue,
            "job_attempt": self.attempt,
            "job_tags": self.tags or "-",
        }


class JobContextFilter(logging.Filter):
    """Adds `job_id`, `job_name`, `job_queue`, `job_tags` (separated by spaces, "-" for none) and `job_attempt` to each
    record; outside a job they are "-" and 0.

    Values of the job's sensitive arguments are taken out of the message and the traceback.

    Use it on a handler: `"filters": {"job": {"()": "django_jobs.logs.JobContextFilter"}}`.  A record that already has
    these attributes keeps them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "job_id"):
            job = current_job()
            if job is None:
                record.job_id = record.job_name = record.job_queue = record.job_tags = "-"
                record.job_attempt = 0
            else:
                record.job_id, record.job_name = job.id, job.name
                record.job_queue, record.job_attempt = job.queue, job.attempt
                record.job_tags = job.tag_words or "-"
                scrub = job.scrubber() if job.scrubber else None
                if scrub is not None:
                    _scrub(record, scrub)
        return True


def _scrub(record: logging.LogRecord, scrub: Scrub) -> None:
    record.msg, record.args = scrub(record.getMessage()), ()
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    if record.exc_text:
        record.exc_text = scrub(record.exc_text)  # formatters print this instead of the exception
    if record.stack_info:
        record.stack_info = scrub(record.stack_info)
