"""Projects that were written for Celery."""
