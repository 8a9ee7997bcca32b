"""Django's own tasks framework on this engine; as BACKEND use "django_jobs.tasks_backend.JobsBackend"."""

from __future__ import annotations

from django_jobs.tasks_backend.backend import JobsBackend

__all__ = ["JobsBackend"]
