"""A project with tasks of Celery's kind, for real workers."""
