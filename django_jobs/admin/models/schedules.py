"""The Schedule table: an ordinary ModelAdmin that shows the next five runs."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext_lazy as _

from django_jobs import schedules
from django_jobs.admin.common.audited import AuditedAdmin
from django_jobs.admin.common.permissions import VIEW, may
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.sensitive import Call, hide_all
from django_jobs.exceptions import InvalidArguments, JobsError
from django_jobs.models import Schedule
from django_jobs.models.audit import ObjectKind
from django_jobs.operations.edited import unmask
from django_jobs.serialization.arguments import compact

#: Number of next runs shown, as documented.
NEXT = 5


class StorableJSON(json.JSONDecoder):
    """Reads what can be stored and shown.  JSON can write more: half of a surrogate pair, 1e400, any depth."""

    def decode(self, s: str, *args: Any) -> Any:
        try:
            value = super().decode(s, *args)
            compact(value)
        except (ValueError, RecursionError) as error:
            raise json.JSONDecodeError(str(error), s, 0) from error
        return value


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]  # not subscriptable at run time
    class Meta:
        model = Schedule
        fields = [
            *("name", "job", "cron", "every", "at", "timezone", "args", "kwargs"),
            *("queue", "priority", "expires_in", "missed", "overlap", "jitter", "enabled"),
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "job" not in self.fields:
            return  # the user may only view
        if self.instance.pk:
            self.initial["args"], self.initial["kwargs"] = shown_call(self.instance)
        current = [self.instance.job] if self.instance.job and self.instance.job not in registry.names() else []
        names = [("", "---------"), *((name, name) for name in [*registry.names(), *current])]
        self.fields["job"].widget = forms.Select(choices=names)
        if get_settings().queues.patterns:
            return  # any name may be right: it is typed, and checked like the rest
        queues = [*get_settings().queues]
        queues += [self.instance.queue] if self.instance.queue and self.instance.queue not in queues else []
        self.fields["queue"].widget = forms.Select(choices=[("", "---------"), *((name, name) for name in queues)])

    def clean(self) -> Any:
        """A masked value that was left keeps the stored one; under another job it might be shown.  A field that was
        left empty has no arguments: the form has None for it, which the table does not take."""
        cleaned = super().clean()
        self.cleaned_data |= {
            name: empty for name, empty in (("args", []), ("kwargs", {})) if self.cleaned_data.get(name, "") is None
        }
        args, kwargs = self.cleaned_data.get("args"), self.cleaned_data.get("kwargs")
        if self.instance.pk and isinstance(args, list) and isinstance(kwargs, dict):
            row = self.instance
            shown = shown_call(row) if self.cleaned_data.get("job") == row.job else None
            try:
                call = unmask((row.args, row.kwargs), shown, [args, kwargs])
            except InvalidArguments as error:
                raise forms.ValidationError({"kwargs": str(error)}) from error
            self.cleaned_data["args"], self.cleaned_data["kwargs"] = call
        return cleaned


def shown_call(schedule: Schedule) -> Call:
    """Return the arguments with the sensitive ones hidden; of an unknown job, with all of them hidden."""
    if not isinstance(schedule.args, list) or not isinstance(schedule.kwargs, dict):
        return [], {}
    definition = registry.find(schedule.job)
    return (definition.hide if definition else hide_all)(schedule.args, schedule.kwargs)


class ScheduleAdmin(AuditedAdmin):
    audit_kind = ObjectKind.SCHEDULE
    #: Arguments may be sensitive.
    audit_hidden = frozenset({"args", "kwargs"})
    form = ScheduleForm
    list_display = ["name", "job", "when", "zone", "enabled", "next_run"]
    list_filter = ["enabled", "job"]
    search_fields = ["name", "job"]
    readonly_fields = ["next_runs"]
    change_list_template = "admin/django_jobs/schedule/change_list.html"
    formfield_overrides = {
        models.JSONField: {"widget": forms.Textarea(attrs={"rows": 3, "cols": 60}), "decoder": StorableJSON}
    }

    class Media:
        css: ClassVar = {"all": ["django_jobs/console.css"]}

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {"may_view_jobs": may(request, VIEW), **(extra_context or {})})

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if obj else []

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is not None and not self.has_change_permission(request, row):
            row.args, row.kwargs = shown_call(row)  # it is shown as it is, and not saved
        return row

    def audit_subject(self, row: models.Model) -> str:
        return f"db:{row.pk}"  # as the pages of the console call it

    @admin.display(description=_("When"))
    def when(self, schedule: Schedule) -> str:
        return schedule.entry().cron

    @admin.display(description=_("time zone"))
    def zone(self, schedule: Schedule) -> str:
        return schedule.entry().timezone

    @admin.display(description=_("next run"))
    def next_run(self, schedule: Schedule) -> str:
        return self._runs(schedule, 1)

    @admin.display(description=_("next runs"))
    def next_runs(self, schedule: Schedule) -> SafeString | str:
        return self._runs(schedule, NEXT)

    def _runs(self, schedule: Schedule, n: int) -> SafeString | str:
        """Return the next runs in the schedule's time zone, for comparison with its expression."""
        if not schedule.enabled:
            return "—"
        try:
            entry = schedule.entry()
            runs = schedules.next_runs(entry, n)
        except JobsError as error:
            return str(error)
        if not runs:
            return "—"
        lines = ((f"{localtime(run, entry.zone):%Y-%m-%d %H:%M:%S %Z}",) for run in runs)
        return format_html_join("\n", "<div>{}</div>" if n > 1 else "{}", lines)
