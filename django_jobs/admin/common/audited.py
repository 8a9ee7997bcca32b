"""Ordinary ModelAdmins whose changes stand in the audit log, beside what is done in the console."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from django_jobs.admin.common.guarded import GuardedAdmin
from django_jobs.admin.common.permissions import user_name
from django_jobs.models import audit


class AuditedAdmin(GuardedAdmin):
    """Writes an entry for each row that is created, changed or deleted."""

    audit_kind: ClassVar[audit.ObjectKind]
    #: fields whose values are not written: only that they changed.
    audit_hidden: ClassVar[frozenset[str]] = frozenset()

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """An address may not filter by a hidden field: whoever can try values finds out what it has."""
        return lookup.partition("__")[0] not in self.audit_hidden and super().lookup_allowed(lookup, value, request)

    def audit(self, request: HttpRequest, verb: str, row: Model, **details: Any) -> None:
        act = audit.Act(verb, self.audit_kind, self.audit_subject(row), {"name": str(row), **details})
        audit.record(user_name(request), audit.Source.ADMIN, act)

    def audit_subject(self, row: Model) -> str:
        """Return how entries name this row."""
        return str(row)

    def audit_changes(self, form: Any) -> dict[str, list[Any]]:
        """Return what the form changed: field → old and new value, or nothing if the field is hidden."""
        return {
            name: [] if name in self.audit_hidden else [form.initial.get(name), form.cleaned_data.get(name)]
            for name in form.changed_data
        }

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self.audit(request, "change" if change else "create", obj, changes=self.audit_changes(form))

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the row.  The entry is written first, because a deleted row has no key; both or neither are kept."""
        self.audit(request, "delete", obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.audit(request, "delete", row)
        super().delete_queryset(request, queryset)
