from django.urls import include, path

urlpatterns = [path("ops/", include("django_jobs.admin.urls"))]
