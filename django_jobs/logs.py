"""The line of a job that ended; and for your LOGGING setting, the job's id on every record logged inside a job."""

from __future__ import annotations

import logging
from typing import NamedTuple

from django_jobs.core.context import current_job

logger = logging.getLogger("django_jobs.worker")


class Ended(NamedTuple):
    """How one attempt ended, or a job that had none (attempt 0).  Arguments are never logged."""

    name: str
    id: str
    queue: str
    attempt: int
    wait_ms: int = 0
    run_ms: int = 0
    why: str = ""

    def log(self, state: str, level: int = logging.INFO) -> None:
        """The one line of its end."""
        if logger.isEnabledFor(level):
            logger.log(
                level,
                "%s %s on %s: %s, attempt %d, waited %d ms, ran %d ms%s",
                *self[:3],
                state,
                self.attempt,
                # The clocks of two machines may differ; a run that never was takes -1.
                max(self.wait_ms, 0),
                max(self.run_ms, 0),
                self.why and f": {self.why}",
                extra=self._extra(),
            )

    def log_death(self) -> None:
        """The same as `log("dead")`, and an error for those whose alerts listen for errors: nobody wanted it dead."""
        self.log("dead")
        text = "%s %s on %s runs no more after attempt %d (%s). See `manage.py jobs show %s`"
        logger.error(text, *self[:4], self.why, self.id, extra=self._extra())

    def _extra(self) -> dict[str, str | int]:
        return dict(zip(("job_name", "job_id", "job_queue", "job_attempt"), self, strict=False))


class JobContextFilter(logging.Filter):
    """Adds `job_id`, `job_name`, `job_queue` and `job_attempt` to each record; "-" and 0 outside of a job.

    Use it on a handler: `"filters": {"job": {"()": "django_jobs.logs.JobContextFilter"}}`.  A record that says for
    itself which job it is about keeps that.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "job_id"):
            job = current_job()
            if job is None:
                record.job_id = record.job_name = record.job_queue = "-"
                record.job_attempt = 0
            else:
                record.job_id, record.job_name = job.id, job.name
                record.job_queue, record.job_attempt = job.queue, job.attempt
        return True
