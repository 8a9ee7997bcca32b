"""The HTTP API (extra `api`): `path("jobs/", include("django_jobs.api.urls"))`.  A thin layer over enqueue, browse
and operations; it refuses all requests until DJANGO_JOBS["API"] is set."""

from __future__ import annotations

from importlib.util import find_spec

from django.core.exceptions import ImproperlyConfigured

if find_spec("ninja") is None:
    raise ImproperlyConfigured("The HTTP API needs django-ninja: pip install 'django-jobs-redis[api]'.")
