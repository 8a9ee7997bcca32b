"""The tabs at the top of every page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from django_jobs.admin.common import labels
from django_jobs.conf import get_settings
from django_jobs.core.values import State

#: Tab → the key that opens it, after "g": see static/django_jobs/keys.js.
SHORTCUTS = {
    "overview": "o",
    "queues": "q",
    "paused": "p",
    State.SCHEDULED: "s",
    State.RUNNING: "r",
    State.RETRY: "t",
    State.DEAD: "d",
    "workflows": "f",
    "workers": "w",
    "schedules": "e",
    "bulk": "b",
    "history": "h",
}


@dataclass(frozen=True, slots=True)
class Section:
    """One tab; `count` is None where a number would be useless."""

    key: str
    label: str
    url: str
    current: bool
    count: int | None = None
    alarm: bool = False
    children: list[Section] = field(default_factory=list)

    @property
    def shortcut(self) -> str:
        """The key that opens it, after "g"; "" for none."""
        return SHORTCUTS.get(self.key, "")


def navigation(url: Callable[..., str], counts: Mapping[str, int], here: str) -> list[Section]:
    """Return the tabs, with counts for the states (without, if `counts` is empty).

    `url` is Console.url; `here` is the key of the current tab."""

    def section(key: str, label: str, name: str) -> Section:
        return Section(key, label, url(name), key == here)

    states = [
        Section(
            state.value,
            str(labels.STATES[state]),
            url("jobs", state.value),
            state.value == here,
            counts.get(state) if counts else None,
            alarm=state is State.DEAD and counts.get(state, 0) > 0,
        )
        for state in State
    ]
    return [
        section("overview", _("Overview"), "dashboard_changelist"),
        section("queues", _("Queues"), "queues"),
        section("paused", _("Paused"), "paused"),
        section("errors", _("Errors"), "errors"),
        *states,
        section("workflows", _("Workflows"), "workflows"),
        section("workers", _("Workers"), "workers"),
        section("schedules", _("Schedules"), "schedules"),
        section("store", _("Store"), "store"),
        *([section("outbox", _("Outbox"), "outboxentry_changelist")] if get_settings().outbox else []),
        section("bulk", _("Bulk operations"), "bulk"),
        section("history", _("History"), "history"),
    ]
