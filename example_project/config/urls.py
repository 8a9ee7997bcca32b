"""URLs: the shop, its media files, the admin, and the HTTP API of its jobs."""

from importlib.util import find_spec

from django.conf import settings
from django.conf.urls.static import static
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("shop.urls")),
    path("admin/", admin.site.urls),
    # The API needs an extra: pip install 'django-jobs-redis[api]'.
    *([path("jobs/", include("django_jobs.api.urls"))] if find_spec("ninja") else []),
    *static(settings.MEDIA_URL, document_root=settings.MEDIA_ROOT),
]
