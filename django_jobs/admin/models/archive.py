"""The archive: an ordinary ModelAdmin, read-only."""

from __future__ import annotations

from itertools import repeat
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db.models import QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _

from django_jobs.admin.common.labels import STATES
from django_jobs.admin.common.permissions import ARGUMENTS, may
from django_jobs.admin.models.archive_list import (
    LISTED,
    DayFilter,
    FirstRows,
    FirstRowsList,
    QueueFilter,
    StateFilter,
    TagFilter,
    TypeFilter,
    first,
    searched,
)
from django_jobs.admin.models.looked_at import LookedAtAdmin, readable
from django_jobs.archive import info_of
from django_jobs.archive.values import text as as_text
from django_jobs.browse import Match
from django_jobs.core.attempt import counted
from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import InvalidQuery
from django_jobs.formatting import duration
from django_jobs.models import ArchivedJob
from django_jobs.operations.archived import rows_of, unchosen
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import job_payload
from django_jobs.serialization.record import tags_of


class ArchivedJobAdmin(LookedAtAdmin):
    """Finished jobs.  Sensitive arguments are masked as on all pages."""

    list_display = ["name", "state", "error_line", "ended_at", "queue", "attempt_count", "job_id"]
    list_filter = [TagFilter, StateFilter, DayFilter, "ended_at", TypeFilter, QueueFilter]
    search_fields = ["=job_id", "name", "error"]
    search_help_text = _(
        "Text is searched for in id, name and error. Terms choose exactly: name: queue: state: error: tag: scope: id: "
        "worker: release: before: after: and arg.customer_id=42."
    )
    ordering = ["-ended_at", "-id"]
    #: By any other column, the database would sort all rows.
    sortable_by = ["ended_at"]
    paginator = FirstRows
    of_arguments = ("shown_arguments", "shown_result")
    #: They count the rows of each choice of each filter.
    show_facets = admin.ShowFacets.NEVER
    fields = [
        "name", "job_id", "queue", "state", "tag_links", "shown_arguments", "shown_result", "attempt_count",
        "run_time", "worker", "enqueued_at", "ended_at", "error_type", "shown_error", "shown_log",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[ArchivedJob]:
        rows: QuerySet[ArchivedJob] = super().get_queryset(request)
        return rows.annotate(hides_arguments=Value(not may(request, ARGUMENTS)))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ArchivedJob], search_term: str
    ) -> tuple[QuerySet[ArchivedJob], bool]:
        try:
            match = Match(arguments=may(request, ARGUMENTS)).asked(search_term, archived=True)
        except InvalidQuery as wrong:
            messages.error(request, str(wrong))
            return queryset.none(), False
        rows = rows_of(queryset, match)
        if unchosen(match):
            return searched(request, rows, match), False
        if match.text and not (same_id := rows.filter(job_id=as_text(match.text))).exists():
            if not match.arguments:  # the column of errors has what this reader must not find
                return searched(request, rows, match), False
            return super().get_search_results(request, rows, match.text)
        return same_id if match.text else rows, False

    def get_changelist(self, request: HttpRequest, **more: Any) -> type[FirstRowsList]:
        return FirstRowsList

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[ArchivedJob], *args: Any, **more: Any
    ) -> HttpResponse | None:
        if request.POST.get("select_across", "0") != "0":  # all that the page has counted, and no more
            queryset = queryset.filter(pk__in=first(queryset)[:LISTED])
        return super().response_action(request, queryset, *args, **more)

    @admin.display(description=_("state"))
    def state(self, row: ArchivedJob) -> str:
        return str(STATES[State(row.status)]) if row.status in set(State) else row.status

    @admin.display(description=_("tags"))
    def tag_links(self, row: ArchivedJob) -> str:
        address = reverse(f"{self.admin_site.name}:django_jobs_archivedjob_changelist")
        tags = ((address, urlencode({"tag": tag}), tag) for tag in tags_of(bytes(row.record)))
        return format_html_join(" ", '<a href="{}?{}">{}</a>', tags) or "–"

    @admin.display(description=_("attempts"))
    def attempt_count(self, row: ArchivedJob) -> int:
        return row.failures + row.crashes + (row.status == "succeeded")

    @admin.display(description=_("error"))
    def error_line(self, row: ArchivedJob) -> str:
        return f"{row.error_type.removeprefix('builtins.')}: {self.shown_error(row)}".strip(": ")[:80]

    @admin.display(description=_("error"))
    def shown_error(self, row: ArchivedJob) -> str:
        attempts = shown(row).attempts
        return attempts[-1].error if attempts else row.error

    @admin.display(description=_("result"))
    def shown_result(self, row: ArchivedJob) -> str:
        return (shown(row).result or b"").decode(errors="replace")

    @admin.display(description=_("run time"))
    def run_time(self, row: ArchivedJob) -> str:
        return duration(row.run_ms)

    @admin.display(description=_("arguments"))
    def shown_arguments(self, row: ArchivedJob) -> str:
        payload = job_payload(shown(row))
        return readable([payload.get("args"), payload.get("kwargs")] if "args" in payload else payload.get("raw"))

    @admin.display(description=_("log"))
    def shown_log(self, row: ArchivedJob) -> str:
        info = shown(row)
        attempts = list(zip(info.attempts, counted(info), repeat(""), strict=False))[::-1]
        log = render_to_string("admin/django_jobs/dashboard/_log.html", {"attempts": attempts})
        return format_html('<div class="jobs">{}</div>', log) if attempts else "–"


def shown(row: ArchivedJob) -> JobInfo:
    """Return the job as the reader of this row may see it."""
    return masked(info_of(row), arguments=not getattr(row, "hides_arguments", False))
