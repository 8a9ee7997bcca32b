"""A project that is all jobs and no pages; what differs between tests comes as JSON in the environment."""

import json
import os

SECRET_KEY = "survival"
USE_TZ = True
INSTALLED_APPS = ["django_jobs", "tests.survival.project"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SURVIVAL_DB", ":memory:")}}
LEDGER = os.environ["SURVIVAL_LEDGER"]
#: the name of a job that only some processes know, as while a new version is rolled out.
NEW_JOB = os.environ.get("SURVIVAL_NEW_JOB", "")
DJANGO_JOBS = {
    "QUEUES": {"default": {}},
    "LEASE": 2,
    "SHUTDOWN_TIMEOUT": 3,
    "HISTORY": {"succeeded": 200_000},
    **json.loads(os.environ["SURVIVAL_JOBS"]),
}
LOGGING = {
    "version": 1,
    "formatters": {"plain": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": os.environ.get("SURVIVAL_LOG", "WARNING")},
}
