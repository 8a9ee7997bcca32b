"""API tokens and remote job types: ordinary ModelAdmins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_jobs import remote
from django_jobs.admin.common.audited import AuditedAdmin
from django_jobs.models import ApiToken, RemoteJobType
from django_jobs.models.audit import ObjectKind
from django_jobs.models.token import Scope

#: How long the old secret of a token stays valid.
OVERLAP = timedelta(days=1)


class NamesField(forms.CharField):
    """A list of names, written one per line."""

    widget = forms.Textarea(attrs={"rows": 4, "cols": 60})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return str(value or "").split()


class ApiTokenForm(forms.ModelForm):  # type: ignore[type-arg]
    scopes = forms.MultipleChoiceField(
        label=capfirst(_("scopes")), choices=Scope.choices, widget=forms.CheckboxSelectMultiple, initial=[Scope.ENQUEUE]
    )
    jobs = NamesField(
        label=capfirst(_("job names")),
        required=False,
        help_text=_("Only these jobs, one name per line. Leave it empty for all jobs that the API offers."),
    )

    class Meta:
        model = ApiToken
        fields = ["name", "scopes", "jobs", "expires_at", "per_minute"]


class ApiTokenAdmin(AuditedAdmin):
    """Shows the secret only once, in the message after the token was created."""

    audit_kind = ObjectKind.TOKEN
    form = ApiTokenForm
    list_display = ["name", "scope_names", "job_names", "created_at", "last_used_at", "expires_at", "revoked_at"]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter)]
    search_fields = ["name"]
    actions = ["rotate", "revoke"]

    class Media:
        css: ClassVar = {"all": ["django_jobs/console.css"]}

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> list[str]:
        return ["created_at", "last_used_at", "old_until", "revoked_at"] if obj is not None else []

    @admin.display(description=_("scopes"))
    def scope_names(self, token: ApiToken) -> str:
        return ", ".join(token.scopes)

    @admin.display(description=_("job names"))
    def job_names(self, token: ApiToken) -> str:
        return ", ".join(token.jobs) or str(_("all"))

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        if unknown := obj.unknown_jobs():
            doubt = _(
                "No job is named %(names)s. Check the spelling, unless you will create a remote job type of that name."
            )
            self.message_user(request, doubt % {"names": ", ".join(unknown)}, messages.WARNING)
        if change:
            super().save_model(request, obj, form, change)
            return
        issued, secret = ApiToken.objects.issue(obj.name, obj.scopes, obj.jobs, obj.expires_at, obj.per_minute)
        obj.pk, obj.digest, obj.created_at = issued.pk, issued.digest, issued.created_at
        obj._state.adding = False
        self.audit(request, "create", obj, changes=self.audit_changes(form))
        text = _("The token is %(secret)s. Write it down: it cannot be shown again.") % {"secret": secret}
        self.message_user(request, text, messages.WARNING)

    @admin.action(description=_("New secrets for selected tokens"), permissions=["change"])
    def rotate(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        for token in queryset.filter(revoked_at=None):
            secret = token.rotate(OVERLAP)
            self.log_change(request, token, str(_("New secret.")))
            self.audit(request, "rotate", token)
            text = _("The new secret of %(name)s is %(secret)s. The old one is valid for another day.")
            self.message_user(request, text % {"name": token.name, "secret": secret}, messages.WARNING)

    @admin.action(description=_("Revoke selected tokens"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        tokens = list(queryset.filter(revoked_at=None))
        for token in tokens:
            token.revoke()
            self.log_change(request, token, str(_("Revoked.")))
            self.audit(request, "revoke", token)
        text = ngettext("%(count)d token was revoked.", "%(count)d tokens were revoked.", len(tokens))
        self.message_user(request, text % {"count": len(tokens)})


class RemoteJobTypeAdmin(AuditedAdmin):
    """Workers apply a change within five seconds."""

    audit_kind = ObjectKind.JOB_TYPE
    #: A URL may contain a password.
    audit_hidden = frozenset({"url", "credentials"})
    list_display = ["name", "queue", "handover", "delivery_strategy", "attempts", "concurrency", "timeout"]
    list_filter = ["queue", "delivery_strategy"]
    search_fields = ["name", "url"]

    @admin.display(description=_("handover"))
    def handover(self, kind: RemoteJobType) -> str:
        return str(_("posted to the URL")) if kind.url else str(_("claimed by workers"))

    def get_readonly_fields(self, request: HttpRequest, obj: RemoteJobType | None = None) -> list[str]:
        # Waiting jobs carry the name: after a change they would be unknown.
        return ["name"] if obj is not None else []

    def save_model(self, request: HttpRequest, obj: RemoteJobType, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        remote.forget()
