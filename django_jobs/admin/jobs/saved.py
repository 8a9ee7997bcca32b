"""Saved filters: links above a list of jobs, for the user who saved them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db import Error as DatabaseFault
from django.db import router
from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs.filters import Filter
from django_jobs.core.values import State
from django_jobs.formatting import number
from django_jobs.models.saved_filter import NAME, QUERY, SavedFilter
from django_jobs.runtime.savepoint import savepoint

#: Saved filters of one user for one list.
MOST = 20
#: What the buttons send as `do`.
SAVE, FORGET = "save-filter", "forget-filter"


def saved_filters(console: Console, state: State, chosen: Filter) -> dict[str, Any]:
    """Return what the list shows: this user's filters, and whether the present one can be saved.

    Without the table, which a later version brings, the list is shown without them."""
    query = urlencode(chosen.query)
    try:
        with savepoint(router.db_for_read(SavedFilter)):
            mine = [(row.pk, row.name, f"?{row.query}", row.query == query) for row in of(console, state)]
    except DatabaseFault:
        return {"saved": [], "may_save": False}
    return {"saved": mine, "may_save": bool(query), "name_length": NAME}


def of(console: Console, state: State) -> Any:
    """Return the filters of the user of this request for one list."""
    return SavedFilter.objects.filter(owner=str(console.request.user.pk), state=state.value)


def post(console: Console, state: State, chosen: Filter) -> HttpResponse | None:
    """Save the present filter, or forget a saved one.  None if the request is for something else."""
    do = console.request.POST.get("do")
    if do not in (SAVE, FORGET):
        return None
    try:
        with savepoint(router.db_for_write(SavedFilter)):
            level, said = save(console, state, chosen) if do == SAVE else forget(console, state)
    except DatabaseFault as error:
        level, said = messages.ERROR, _("Filters cannot be saved now: %(error)s") % {"error": error}
    return console.back(console.request.get_full_path(), level, said)


def save(console: Console, state: State, chosen: Filter) -> tuple[int, str]:
    """Save the present filter; one of the same name is replaced."""
    name, query = " ".join(console.request.POST.get("name", "").split()), urlencode(chosen.query)
    mine = of(console, state)
    if not query:
        return messages.ERROR, _("This list has no filter to save.")
    if not name or not name.isprintable():
        return messages.ERROR, _("Give the filter a name.")
    if len(name) > NAME:
        return messages.ERROR, _("The name of a filter has at most %(n)s characters.") % {"n": number(NAME)}
    if len(query) > QUERY:
        return messages.ERROR, _("This filter is too long to be saved.")
    if mine.exclude(name=name).count() >= MOST:
        full = _("You have %(n)s saved filters for this list, and no more can be saved. Delete one first.")
        return messages.ERROR, full % {"n": number(MOST)}
    SavedFilter.objects.update_or_create(
        owner=str(console.request.user.pk), state=state.value, name=name, defaults={"query": query}
    )
    return messages.SUCCESS, _("The filter “%(name)s” was saved.") % {"name": name}


def forget(console: Console, state: State) -> tuple[int, str]:
    id = console.request.POST.get("filter", "")
    row = of(console, state).filter(pk=int(id)).first() if id.isascii() and id.isdigit() and len(id) < 19 else None
    if row is None:
        return messages.WARNING, _("There is no such saved filter.")
    row.delete()
    return messages.SUCCESS, _("The filter “%(name)s” was deleted.") % {"name": row.name}
