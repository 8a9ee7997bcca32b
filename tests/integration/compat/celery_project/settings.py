"""The survival project, with tasks.py modules of Celery's kind."""

from tests.survival.project.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "django_jobs.compat.celery", "tests.integration.compat.celery_project"]  # noqa: F405
CELERY_IMPORTS = ["tests.integration.compat.celery_project.more"]
