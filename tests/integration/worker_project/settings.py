"""The survival project with a few more jobs, for the tests of single behaviours of `runworkers`."""

import os
from importlib.util import find_spec

import django

from tests.survival.project.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.integration.worker_project"]  # noqa: F405

if port := os.environ.get("SILENT_DATABASE"):
    #: somebody listens there, and never says a word.
    DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "x", "HOST": "127.0.0.1", "PORT": port}}

if django.VERSION >= (6, 0) or find_spec("django_tasks"):
    DJANGO_JOBS = {**DJANGO_JOBS, "MODULES": ["jobs", "background"]}  # noqa: F405
    TASKS = {"default": {"BACKEND": "tests.integration.worker_project.background.Backend"}}
