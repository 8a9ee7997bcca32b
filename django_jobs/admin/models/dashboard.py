"""The ModelAdmin of the model without a table: the console's URLs, permission checks, and a page for store errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from django_jobs.admin.common import permissions
from django_jobs.admin.common.console import Console
from django_jobs.admin.common.guarded import GuardedAdmin
from django_jobs.admin.jobs import another, bulk, everywhere, listing
from django_jobs.admin.jobs import page as job_page
from django_jobs.admin.pages import (
    errors,
    findings,
    history,
    overview,
    paused,
    queues,
    schedules,
    store,
    types,
    workers,
    workflows,
)
from django_jobs.exceptions import StoreCorrupt, StoreError

View = Callable[..., HttpResponse]

READ, CHANGE = ["GET", "HEAD"], ["GET", "HEAD", "POST"]

#: (route, view, name, methods) of every URL of the console.  Parts of a route are quoted as the admin quotes keys.
ROUTES: list[tuple[str, View, str, list[str]]] = [
    ("", overview.overview, "dashboard_changelist", READ),
    ("acknowledge/", findings.acknowledge_page, "acknowledge", CHANGE),
    ("queues/", queues.queue_list, "queues", READ),
    ("queues/<str:queue>/", queues.queue_page, "queue", CHANGE),
    ("paused/", paused.paused_list, "paused", READ),
    ("errors/", errors.error_list, "errors", READ),
    ("errors/<str:id>/", errors.error_page, "error", CHANGE),
    ("types/<str:name>/", types.type_page, "type", READ),
    ("jobs/<str:state>/", listing.job_list, "jobs", CHANGE),
    ("search/", everywhere.search_page, "search", READ),
    ("job/<str:queue>/<str:id>/", job_page.job_page, "job", CHANGE),
    ("job/<str:queue>/<str:id>/edit/", job_page.edit_page, "edit", CHANGE),
    ("job/<str:queue>/<str:id>/another/", another.another_page, "another", CHANGE),
    ("workflows/", workflows.workflow_list, "workflows", READ),
    ("workflows/<str:id>/", workflows.workflow_page, "workflow", CHANGE),
    ("workers/", workers.worker_list, "workers", CHANGE),
    ("workers/<str:worker>/", workers.worker_page, "worker", READ),
    ("store/", store.store_page, "store", READ),
    ("schedules/", schedules.schedule_list, "schedules", CHANGE),
    ("schedules/tonight/", schedules.tonight, "tonight", READ),
    ("bulk/", bulk.bulk_list, "bulk", READ),
    ("bulk/<str:id>/", bulk.bulk_page, "bulk_operation", CHANGE),
    ("history/", history.history, "history", READ),
]


class DashboardAdmin(GuardedAdmin):
    """Does not list a table: each of its URLs is a page of the console."""

    def get_urls(self) -> list[URLPattern]:
        return [
            path(route, self.page(view, methods), name=f"django_jobs_{name}") for route, view, name, methods in ROUTES
        ]

    def page(self, view: View, methods: list[str]) -> View:
        """Wrap a view: require a login and `view_jobs`, and show a page if the store cannot be reached."""

        def guarded(request: HttpRequest, **kwargs: Any) -> HttpResponse:
            if not permissions.may(request, permissions.VIEW):
                raise PermissionDenied
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            console = Console(request, self.admin_site)
            try:
                response = view(console, **kwargs)
            except (StoreError, ImproperlyConfigured) as error:
                damaged = isinstance(error, StoreCorrupt)
                title = _("The job store has damaged data") if damaged else _("The job store cannot be reached")
                response = console.render("unavailable.html", title, {"error": error, "damaged": damaged}, status=503)
                response["Retry-After"] = "10"
            response["X-Content-Type-Options"] = "nosniff"
            return response

        return update_wrapper(self.admin_site.admin_view(guarded), view)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return permissions.may(request, permissions.VIEW)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
