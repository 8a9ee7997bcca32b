"""A project for processes of their own: the API, a store and a database that the environment names."""

from __future__ import annotations

import os

from tests.settings import INSTALLED_APPS, MIDDLEWARE, TEMPLATES

SECRET_KEY = "tests"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
USE_TZ = True
ROOT_URLCONF = "tests.integration.api.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("API_DATABASE", ":memory:"),
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
__all__ = ["INSTALLED_APPS", "MIDDLEWARE", "TEMPLATES"]
DJANGO_JOBS = {
    "STORE": os.environ.get("API_STORE", "memory"),
    "NAMESPACE": os.environ.get("API_NAMESPACE", "jobs"),
    "QUEUES": {"default": {}, "push": {}, "pull": {}},
    "LEASE": 3,
    "API": {"REMOTE_HOSTS": ["localhost"], "CREDENTIALS": {"shop": {"user": "jobs", "password": "sesame"}}},
    "ARCHIVE": {"DAYS": 180},
    "HISTORY": {"succeeded": 100_000},
}
