"""Where the site has the API."""

from django.urls import include, path

urlpatterns = [path("jobs/", include("django_jobs.api.urls"))]
