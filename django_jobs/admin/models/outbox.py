"""The outbox: an ordinary ModelAdmin.  Its entries can be sent again and deleted, and not changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.text import Truncator
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from django_jobs.admin.common import labels
from django_jobs.admin.common.permissions import VERBS, VIEW, may, user_name
from django_jobs.admin.models.archive_list import QueueFilter, TypeFilter
from django_jobs.admin.models.looked_at import LookedAtAdmin, readable
from django_jobs.conf import get_settings
from django_jobs.formatting import number
from django_jobs.models import OutboxEntry, audit
from django_jobs.operations import kept

#: Entries that the page names that asks.
SHOWN = 20


class OutboxEntryAdmin(LookedAtAdmin):
    """What was enqueued in a transaction and is not in the store.  Sensitive arguments are masked as on all pages."""

    change_form_template = "admin/django_jobs/outboxentry/change_form.html"
    # The id comes late: it is long, and on a phone nothing behind it is seen.
    list_display = ["shown_name", "status", "short_reason", "created", "queue", "key", "kind", "batch"]
    list_filter = ["is_held", "kind", TypeFilter, QueueFilter]
    search_fields = ["=key", "name"]
    ordering = ["pk"]
    actions = ["send_again"]
    fields = ["key", "kind", "name", "queue", "batch", "created", "status", "shown_reason", "shown_arguments"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxEntry]:
        found: QuerySet[OutboxEntry] = kept.rows().defer("data")
        return found

    @admin.display(description=_("name"), ordering="name")
    def shown_name(self, row: OutboxEntry) -> str:
        return row.name or row.get_kind_display()  # a workflow may have none

    @admin.display(description=_("status"))
    def status(self, row: OutboxEntry) -> str:
        return gettext("held") if row.is_held else gettext("waiting")

    @admin.display(description=_("reason"))
    def short_reason(self, row: OutboxEntry) -> str:
        return Truncator(row.reason).chars(100) or "–"

    @admin.display(description=_("reason"))
    def shown_reason(self, row: OutboxEntry) -> str:
        return kept.entry_payload(row)["reason"] or "–"

    @admin.display(description=_("arguments"))
    def shown_arguments(self, row: OutboxEntry) -> str:
        payload = kept.entry_payload(row)
        return "–" if payload["args"] is None else readable([payload["args"], payload["kwargs"]])

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context.update(may_send=self.has_send_permission(request), checkbox=ACTION_CHECKBOX_NAME)
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.action(description=_("Send selected entries again"), permissions=["send"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[OutboxEntry]) -> HttpResponse | None:
        """Send them.  Asks first if some may run twice."""
        is_confirmed = "confirmed" in request.POST
        chosen = list(queryset)
        if not is_confirmed and (old := [row for row in chosen if kept.is_old(row)]):
            return self._ask(request, len(chosen), old)
        done = kept.send([row.pk for row in chosen], run_twice=is_confirmed).done
        self._record(request, "send", kept.waits_for_somebody(done))
        self.message_user(request, labels.outbox_report("send", len(done)))
        return None

    def _ask(self, request: HttpRequest, chosen: int, old: list[OutboxEntry]) -> HttpResponse:
        doubt = ngettext(
            "%(old)s of %(all)s entries is older than IDEMPOTENCY, so the store may have forgotten its id. If it was "
            "sent before, it runs twice. Find out first whether it did run.",
            "%(old)s of %(all)s entries are older than IDEMPOTENCY, so the store may have forgotten their ids. If they "
            "were sent before, they run twice. Find out first whether they did run.",
            len(old),
        )
        context = {
            **self.admin_site.each_context(request),
            "title": _("Send these entries again?"),
            "opts": self.opts,
            "doubt": doubt % {"old": number(len(old)), "all": number(chosen)},
            "old": old[:SHOWN],
            "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
            "checkbox": ACTION_CHECKBOX_NAME,
            "across": request.POST.get("select_across", "0"),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_jobs/outboxentry/send_confirmation.html", context)

    def delete_model(self, request: HttpRequest, obj: OutboxEntry) -> None:
        self._record(request, "delete", kept.delete([obj.pk]).done)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[OutboxEntry]) -> None:
        self._record(request, "delete", kept.delete(queryset.values_list("pk", flat=True)).done)

    def _record(self, request: HttpRequest, verb: str, done: Any) -> None:
        if done:
            audit.record(user_name(request), audit.Source.ADMIN, audit.outbox_act(verb, done))

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        """Return nothing while OUTBOX is off: then the menu does not name the table."""
        return super().get_model_perms(request) if get_settings().outbox else {}

    def has_view_permission(self, request: HttpRequest, obj: OutboxEntry | None = None) -> bool:
        return may(request, VIEW)

    def has_send_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may send entries: who may retry dead jobs."""
        return may(request, VIEW) and may(request, VERBS["revive"])

    def has_delete_permission(self, request: HttpRequest, obj: OutboxEntry | None = None) -> bool:
        return may(request, VIEW) and may(request, VERBS["delete"])
