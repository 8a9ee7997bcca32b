"""A Django project with the admin, for bench.console; store and file of marks come from the environment."""

import os

from bench.django_settings import *  # noqa: F403
from bench.django_settings import DJANGO_JOBS

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{os.environ.get('BENCH_MARKS', 'console')}.sqlite3"}
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_jobs",
    "bench.console",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "bench.console.urls"
STATIC_URL = "/static/"
ALLOWED_HOSTS = ["*"]
QUEUES = {"q0": {}} | {f"tenant-{i:03}": {} for i in range(499)}
DJANGO_JOBS = DJANGO_JOBS | {"QUEUES": QUEUES, "DEAD": {"max": 10_000_000}}
