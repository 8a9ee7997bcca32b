"""Settings of the test suite; tests say what else they need with override_settings."""

from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "tests"
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_jobs",
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
STATIC_URL = "/static/"
#: The hash of a password takes a second of the processor otherwise, for each test that logs somebody in.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DJANGO_JOBS = {"STORE": "memory"}
TASKS = {
    "default": {"BACKEND": "django_jobs.tasks_backend.JobsBackend", "QUEUES": ["default"]},
    "committed": {
        "BACKEND": "django_jobs.tasks_backend.JobsBackend",
        "QUEUES": ["default"],
        "OPTIONS": {"ENQUEUE_ON_COMMIT": True, "JOB_OPTIONS": {"max_attempts": 3, "backoff": [0]}},
    },
    "once": {
        "BACKEND": "django_jobs.tasks_backend.JobsBackend",
        "QUEUES": ["default"],
        "OPTIONS": {"JOB_OPTIONS": {"delivery": "at_most_once"}},
    },
}
