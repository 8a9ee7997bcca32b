"""A project that is all jobs and no pages; what differs between tests comes as JSON in the environment."""

import json
import os
import time

#: seconds by which this machine's clock is wrong.
if wrong := float(os.environ.get("SURVIVAL_CLOCK", "0")):
    right = time.time
    time.time = lambda: right() + wrong
    time.time_ns = lambda: int(time.time() * 1e9)

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
