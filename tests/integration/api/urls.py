"""The API as a project mounts it."""

from django.urls import include, path

urlpatterns = [path("jobs/", include("django_jobs.api.urls"))]
