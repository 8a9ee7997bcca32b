"""The console without the project's admin: `path("ops/", include("django_jobs.admin.urls"))`.

Its pages are found as those of any admin site are, under the application namespace "admin", so that one name leads to
the page of this site or to that of the project's admin.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.admin import AdminSite
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _

from django_jobs.admin import register
from django_jobs.admin.common import permissions


class ConsoleSite(AdminSite):
    """Lets in whoever may view jobs, and nobody for being staff."""

    site_title = site_header = index_title = _("Background jobs")
    #: The form of the admin refuses users who are not staff.
    login_form = AuthenticationForm

    def has_permission(self, request: HttpRequest) -> bool:
        return permissions.may(request, permissions.VIEW)

    @method_decorator(login_not_required)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Send strangers to the project's own login page, if LOGIN_URL names one; else show this site's page."""
        has_page = settings.is_overridden("LOGIN_URL")  # type: ignore[misc]  # the stubs do not know the method
        if not has_page or resolve_url(settings.LOGIN_URL) == request.path:
            return super().login(request, extra_context)
        if self.has_permission(request):
            return self.index(request)
        if request.user.is_authenticated:
            raise PermissionDenied  # that page might send them back here at once
        return redirect_to_login(request.GET.get(REDIRECT_FIELD_NAME) or reverse("admin:index", current_app=self.name))

    def index(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:  # type: ignore[override]
        return HttpResponseRedirect(reverse("admin:django_jobs_dashboard_changelist", current_app=self.name))


site = ConsoleSite("django_jobs")
register(site)

urlpatterns = [path("", site.urls)]
