"""ModelAdmins whose permissions are decided as those of the console are, for any model of users, or none."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.options import ModelAdmin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from django_jobs.admin.common.permissions import may


class GuardedAdmin(ModelAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    """Asks `permissions.may` where a ModelAdmin asks the user."""

    def _may(self, request: HttpRequest, verb: str) -> bool:
        return may(request, f"{verb}_{self.opts.model_name}")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return True in self.get_model_perms(request).values()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, "view") or self._may(request, "change")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, "change")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, "delete")

    # -- the admin's own log needs a row of the table of users; the audit log has the change in any case.

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        return super().log_addition(request, obj, message) if request.user.pk else None

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        return super().log_change(request, obj, message) if request.user.pk else None

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return super().log_deletions(request, queryset) if request.user.pk else None
