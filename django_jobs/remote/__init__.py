"""Jobs that other programs run: known by rows of RemoteJobType, posted to a URL (push) or fetched over HTTP (pull)."""

from __future__ import annotations

from django_jobs.remote.job_types import definition_of, forget, is_pulled, known, pull_queues

__all__ = ["definition_of", "forget", "is_pulled", "known", "pull_queues"]
