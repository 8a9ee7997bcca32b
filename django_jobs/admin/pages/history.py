"""The console's entries in the admin's own log: who did what."""

from __future__ import annotations

from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.core.paginator import Paginator
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_jobs.admin.common.console import Console
from django_jobs.models import Dashboard

ENTRIES = 50
#: Longest list of users to choose from.
USERS = 500


def history(console: Console) -> HttpResponse:
    """Show every change made in the console, latest first, of everybody or of one user.  Needs only the database."""
    kind = ContentType.objects.get_for_model(Dashboard)
    entries = LogEntry.objects.filter(content_type=kind).select_related("user").order_by("-action_time", "-pk")
    name = get_user_model().USERNAME_FIELD
    users = entries.order_by(f"user__{name}").values_list(f"user__{name}", flat=True).distinct()[:USERS]
    if who := console.request.GET.get("user", "")[:254]:
        entries = entries.filter(**{f"user__{name}": who})
    page = Paginator(entries, ENTRIES).get_page(console.request.GET.get("p"))
    return console.render("history.html", _("History"), {"page": page, "users": users, "who": who}, here="history")


def logged_object(console: Console, about: str) -> HttpResponse:
    """Redirect to the history: the admin's "recent actions" link here."""
    return HttpResponseRedirect(console.url("history"))
