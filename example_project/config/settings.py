"""Settings of the example shop.  The demo sets SHOP_… variables for the places of its files and its partners."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
STATE = Path(os.environ.get("SHOP_STATE") or BASE_DIR / ".state").resolve()
STATE.mkdir(parents=True, exist_ok=True)

DEBUG = True
SECRET_KEY = "only for the example: it signs nothing outside this machine"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TIME_ZONE = "Europe/Berlin"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SILENCED_SYSTEM_CHECKS: list[str] = []

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_jobs",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_jobs.http.QueueFullMiddleware",
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
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": STATE / "shop.sqlite3",
        # Web server and workers write to one file: wait for the lock, and take it at the start of a transaction.
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"},
    }
}
STATIC_URL = "/static/"
MEDIA_URL = "/media/"
MEDIA_ROOT = STATE / "media"

# The demo has a mail server of its own; otherwise mails are printed.
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if 'SHOP_SMTP_PORT' in os.environ else 'console'}.EmailBackend"
EMAIL_HOST = "127.0.0.1"
EMAIL_PORT = int(os.environ.get("SHOP_SMTP_PORT", "2525"))
DEFAULT_FROM_EMAIL = "shop@example.com"

STORE = os.environ.get("SHOP_STORE", "embedded")
# SHOP_STORE=cache:default keeps the jobs in the Redis of this cache.  Without one, each process has its own cache.
REDIS_URL = os.environ.get("REDIS_URL") or ("redis://localhost:6379/0" if STORE.startswith("cache:") else "")
CACHES = {
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL, "KEY_PREFIX": "shop"}
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}

#: The bank and the warehouse; in the demo one small server acts as both.
PARTNER_URL = os.environ.get("SHOP_PARTNER_URL", "http://127.0.0.1:8025")

DJANGO_JOBS = {
    "STORE": f"embedded:{STATE / 'jobs'}" if STORE == "embedded" else STORE,
    "NAMESPACE": os.environ.get("SHOP_NAMESPACE", "shop"),
    "QUEUES": {
        # While payments wait, they are claimed ten times as often as other jobs.
        "payments": {"PRIORITY": 10},
        "mail": {"PRIORITY": 5},
        "webhooks": {"PRIORITY": 5, "MAX_LENGTH": 10_000},
        "media": {"MAX_CONCURRENCY": 4},
        # For a worker in shell (remote/pull_worker.sh): `runworkers` leaves this queue alone.
        "vault": {},
        # For the page at /rehearsal/: jobs can be made slow and unreliable.
        "rehearsal": {},
        "default": {},
    },
    # At /jobs/, for callers with a token.  Jobs are posted to the local picture service (remote/push_worker.py).
    "API": {
        "REMOTE_HOSTS": ["127.0.0.1"],
        "CREDENTIALS": {"pictures": {"user": "shop", "password": "only for the example"}},
    },
    "MIDDLEWARE": ["shop.middleware.log_slow_jobs"],
    "ENQUEUE_MIDDLEWARE": ["shop.middleware.remember_job"],
    "PROCESSES": int(os.environ.get("SHOP_PROCESSES", "2")),
    "THREADS": int(os.environ.get("SHOP_THREADS", "4")),
    "LEASE": float(os.environ.get("SHOP_LEASE", "30")),
    # With six fields, the first is the seconds.
    "SCHEDULES": {"front-page": {"job": "shop.jobs.refresh_front_page", "cron": "*/2 * * * * *", "overlap": "skip"}},
}

TEST_RUNNER = "config.runner.ShopRunner"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"job": {"()": "django_jobs.logs.JobContextFilter"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["job"]}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"django_jobs": {"level": "INFO"}, "shop": {"level": "INFO"}},
}
