"""A minimal Django project with the jobs; the store comes from the environment."""

import os

SECRET_KEY = "bench"
USE_TZ = True
DEBUG = False
INSTALLED_APPS = ["django_jobs", "bench"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DJANGO_JOBS = {
    "STORE": os.environ.get("BENCH_STORE", "memory"),
    "QUEUES": {
        f"q{i}": {"MAX_CONCURRENCY": int(os.environ.get("BENCH_LIMIT", "0"))}
        for i in range(int(os.environ.get("BENCH_QUEUES", "5")))
    },
    "ON_COMMIT": False,
}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING", "handlers": []}}
