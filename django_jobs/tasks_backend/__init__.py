"""Backend for Django's tasks framework; set BACKEND to "django_jobs.tasks_backend.JobsBackend"."""

from __future__ import annotations

from django_jobs.tasks_backend.backend import JobsBackend

__all__ = ["JobsBackend"]
