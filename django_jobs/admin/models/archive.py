"""The archive: an ordinary ModelAdmin, read-only."""

from __future__ import annotations

import json

from django.contrib import admin
from django.contrib.admin.options import ModelAdmin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_jobs.archive import info_of
from django_jobs.models import ArchivedJob
from django_jobs.serialization.payloads import job_payload


class ArchivedJobAdmin(ModelAdmin):  # type: ignore[type-arg]
    """Finished jobs.  Sensitive arguments are masked as on all pages."""

    list_display = ["name", "status", "error_line", "ended_at", "queue", "attempt_count", "job_id"]
    list_filter = ["status", "queue", "ended_at"]
    search_fields = ["=job_id", "name", "error"]
    search_help_text = _("Search by id, name and error text")
    date_hierarchy = "ended_at"
    ordering = ["-ended_at", "-id"]
    list_per_page = 50
    # Counting all rows of a long history would cost more than the rest of the page.
    show_full_result_count = False
    fields = [
        "name", "job_id", "queue", "status", "shown_arguments", "result", "attempt_count", "run_time", "worker",
        "enqueued_at", "ended_at", "error_type", "error", "shown_log",
    ]  # fmt: skip

    @admin.display(description=_("attempts"))
    def attempt_count(self, row: ArchivedJob) -> int:
        return row.failures + row.crashes + (row.status == "succeeded")

    @admin.display(description=_("error"))
    def error_line(self, row: ArchivedJob) -> str:
        return f"{row.error_type.removeprefix('builtins.')}: {row.error}".strip(": ")[:80]

    @admin.display(description=_("run time"))
    def run_time(self, row: ArchivedJob) -> str:
        return f"{row.run_ms / 1000:.3f} s" if row.run_ms >= 0 else "–"

    @admin.display(description=_("arguments"))
    def shown_arguments(self, row: ArchivedJob) -> str:
        payload = job_payload(info_of(row))
        return readable([payload.get("args"), payload.get("kwargs")] if "args" in payload else payload.get("raw"))

    @admin.display(description=_("log"))
    def shown_log(self, row: ArchivedJob) -> str:
        return readable(job_payload(info_of(row))["log"])

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: ArchivedJob | None = None) -> bool:
        return False


def readable(value: object) -> str:
    """Return JSON as text; the admin escapes it."""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)
