"""The store comes from the environment, the version of django_jobs from PYTHONPATH."""

import os

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django_jobs", "upgrade_project"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["UPGRADE_DATABASE"]}}
DJANGO_JOBS = {"STORE": os.environ["UPGRADE_STORE"], "QUEUES": {"default": {}, "other": {}}}
