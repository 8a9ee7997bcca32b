"""Acknowledge a finding for a time, or let it count again."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.console import Console
from django_jobs.formatting import exact
from django_jobs.models.audit import ObjectKind
from django_jobs.operations import diagnosis

#: Hours → what a button says.
HOURS = {"1": gettext_lazy("1 hour"), "24": gettext_lazy("1 day"), "72": gettext_lazy("3 days")}


class AcknowledgeForm(forms.Form):
    hours = forms.ChoiceField(label=gettext_lazy("For"), choices=list(HOURS.items()))
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=500)


def acknowledge_page(console: Console) -> HttpResponse:
    """GET: ask for how long and why.  POST: acknowledge the finding of this key, or withdraw the acknowledgement."""
    console.require(permissions.PAUSE)
    data = console.request.POST if console.request.method == "POST" else None
    key = (data or console.request.GET).get("key", "")
    report = diagnosis.check()
    known = [each for each, _ in report.acknowledged if each.key == key]
    found = [each for each in report.findings if each.key == key] or known
    overview = console.url("dashboard_changelist")
    if not found:
        return console.back(overview, messages.WARNING, _("This finding is over."))
    subject = f"{found[0].kind} {found[0].subject}"[:200]
    if data and "withdraw" in data:
        if not known:
            return console.back(overview, messages.WARNING, labels.unchanged("withdraw"))
        diagnosis.withdraw([key])
        console.log("withdraw", ObjectKind.FINDING, subject)
        return console.back(overview, messages.SUCCESS, _("The finding counts again."))
    form = AcknowledgeForm(data)
    if data is None or not form.is_valid():
        context = {"finding": found[0], "form": form, "key": key}
        return console.render("acknowledge.html", _("Acknowledge"), context, here="overview")
    reason, until = form.cleaned_data["reason"], report.at + int(form.cleaned_data["hours"]) * 3_600_000
    diagnosis.acknowledge(found, until, by=console.user, reason=reason)
    console.log("acknowledge", ObjectKind.FINDING, subject, reason=reason, until=until)
    return console.back(overview, messages.SUCCESS, _("Acknowledged until %(time)s.") % {"time": exact(until)})
