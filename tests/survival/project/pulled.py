"""A project for remote workers: the API without an archive, a store and a database that the environment names."""

from tests.integration.api import project
from tests.integration.api.project import (
    ALLOWED_HOSTS,
    DATABASES,
    DEBUG,
    INSTALLED_APPS,
    MIDDLEWARE,
    ROOT_URLCONF,
    SECRET_KEY,
    TEMPLATES,
    USE_TZ,
)

__all__ = [
    "ALLOWED_HOSTS",
    "DATABASES",
    "DEBUG",
    "INSTALLED_APPS",
    "MIDDLEWARE",
    "ROOT_URLCONF",
    "SECRET_KEY",
    "TEMPLATES",
    "USE_TZ",
]
DJANGO_JOBS = {
    **project.DJANGO_JOBS,
    "QUEUES": {"pull": {}, "once": {}},
    "LEASE": 2,
    "HISTORY": {"succeeded": 200_000},
    "ARCHIVE": None,
}
