"""For your LOGGING setting: the job's id on every record that is logged inside a job."""

from __future__ import annotations

import logging

from django_jobs.context import current_job


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
