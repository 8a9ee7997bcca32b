"""Template tags and filters of the console: times, labels, addresses, the overview.

The console itself is imported when it is used: Django loads this module in projects without the admin, too.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import template
from django.contrib.admin import AdminSite
from django.contrib.admin.sites import all_sites, site
from django.core.exceptions import ImproperlyConfigured

from django_jobs.core.definition import LONGEST_NAME
from django_jobs.core.values import State
from django_jobs.exceptions import StoreCorrupt, StoreError
from django_jobs.formatting import duration, elapsed, exact, moment, number

register = template.Library()


register.filter(moment)
register.filter(elapsed)
register.filter(exact)
register.filter(duration)
register.filter(number)


@register.filter
def state_count(counts: dict[str, int], state: str) -> int:
    """Return the number of jobs in one state."""
    return counts.get(state, 0)


@register.filter
def severity(of_finding: str) -> Any:
    """Return the label of a finding's severity."""
    from django_jobs.admin.common.labels import SEVERITIES

    return SEVERITIES[of_finding]


@register.filter
def state_label(state: str) -> Any:
    """Return the label of a state."""
    from django_jobs.admin.common.labels import STATES

    return STATES[State(state)]


@register.simple_tag(takes_context=True)
def console_url(context: template.Context, name: str, *parts: str) -> str:
    """Return the address of a page of the console; its parts may contain any character."""
    return str(context["console"].url(name, *parts))


@register.simple_tag(takes_context=True)
def type_url(context: template.Context, name: str) -> str:
    """Return the address of the page of a job type; "" for a text that cannot be the name of one."""
    return str(context["console"].url("type", name)) if 0 < len(name) <= LONGEST_NAME else ""


@register.simple_tag(takes_context=True)
def tag_url(context: template.Context, state: str, tag: str) -> str:
    """Return the address of the jobs of one state with this tag."""
    return f"{context['console'].url('jobs', state)}?{urlencode({'tag': tag})}"


@register.simple_tag(takes_context=True)
def jobs_overview(context: template.Context) -> dict[str, Any]:
    """Return the overview for the app's own index page; {} for users who may not see it."""
    from django_jobs.admin.common import permissions
    from django_jobs.admin.common.console import Console
    from django_jobs.admin.common.navigation import navigation
    from django_jobs.admin.pages import overview

    request = context["request"]
    if not permissions.may(request, permissions.VIEW):
        return {}
    console = Console(request, current_site(getattr(request, "current_app", "admin")))
    try:
        return {
            "console": console,
            "sections": navigation(console.url, console.counted.counts, "overview"),
            **overview.overview_context(console),
        }
    except (StoreError, ImproperlyConfigured) as error:
        return {"console": console, "error": error, "damaged": isinstance(error, StoreCorrupt)}


def current_site(name: str) -> AdminSite:
    """Return the admin site with that name."""
    return next((each for each in all_sites if each.name == name), site)
