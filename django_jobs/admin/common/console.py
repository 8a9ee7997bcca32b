"""What every page of the console needs from its request: addresses, permissions, messages, the log, rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from time import time_ns
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from django_jobs import browse, operations
from django_jobs.admin.common import acts, labels, permissions
from django_jobs.admin.common.addresses import quote
from django_jobs.admin.common.navigation import Section, navigation
from django_jobs.core.values import State
from django_jobs.exceptions import StoreError
from django_jobs.formatting import AHEAD
from django_jobs.models import Dashboard, audit
from django_jobs.operations import releases
from django_jobs.operations.diagnosis import Finding
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import FailureGroup, FailureKind

Row = TypeVar("Row")
#: Tabs whose pages need only the database.
WITHOUT_STORE = frozenset({"history"})
#: No list has more pages than this; a higher number is a mistake.
LAST_PAGE = 10**9


def read_number(text: str | None, default: int = 1) -> int:
    """Return a number in a URL; the default for anything else."""
    return min(int(text), LAST_PAGE) if text and text.isascii() and text.isdigit() and len(text) < 12 else default


def page_links(number: int, pages: int, query: Mapping[str, str] = {}, anchor: str = "") -> list[tuple[str, str]]:
    """Return (label, address) of the first, the last and the nearby pages; the address is "" for the current page."""
    links: list[tuple[str, str]] = []
    previous = 0
    for at in sorted({1, pages, *range(max(1, number - 3), min(pages, number + 3) + 1)}) if pages > 1 else ():
        if at > previous + 1:
            links.append(("…", ""))
        links.append((str(at), "" if at == number else f"?{urlencode({'p': at, **query})}{anchor}"))
        previous = at
    return links


class Console:
    """One request to the console."""

    def __init__(self, request: HttpRequest, site: AdminSite) -> None:
        self.request, self.site = request, site
        self._groups: dict[tuple[State, str, str, str, str], list[FailureGroup]] = {}
        self._kinds: dict[str, dict[State, set[FailureKind]]] = {}

    @cached_property
    def counted(self) -> browse.JobCounts:
        """The numbers of all queues, read once per request."""
        return browse.job_counts()

    @cached_property
    def releases(self) -> dict[str, int]:
        """Release → when it first appeared (ms)."""
        return releases.lately()

    def groups(self, state: State, match: browse.Match) -> list[FailureGroup]:
        """Return the groups of failed jobs that match by queue, job type, error and tag, read once per request."""
        chosen = state, match.queue, match.name, match.error, match.tag
        if chosen not in self._groups:
            names = self.counted.names
            kinds = self.kinds(state, match.queue) if match.name or match.error else None
            self._groups[chosen] = browse.matching_groups(state, match, names, kinds)
        return self._groups[chosen]

    def kinds(self, state: State, queue: str = "") -> set[FailureKind]:
        """Return the job types and errors of failed jobs in this state, of one queue or of all, read once per
        request."""
        if queue not in self._kinds:
            self._kinds[queue] = get_store().failure_kinds([queue] if queue else self.counted.names)
        return self._kinds[queue][state]

    def url(self, name: str, *parts: str) -> str:
        """Return the address of a page: `console.url("job", queue, id)`.  Parts may contain any character."""
        arguments = [quote(part) for part in parts]
        return reverse(f"admin:django_jobs_{name}", args=arguments, current_app=self.site.name)

    def cause(self, found: Finding) -> str:
        """Return the address of the page that shows the cause of a finding."""
        name, parts, query = found.link
        return self.url(name, *parts) + query

    def may(self, permission: str) -> bool:
        return permissions.may(self.request, permission)

    @property
    def user(self) -> str:
        """How the history names whoever sent this request."""
        return permissions.user_name(self.request)

    @cached_property
    def sees_arguments(self) -> bool:
        return self.may(permissions.ARGUMENTS)

    @cached_property
    def sees_archive(self) -> bool:
        return self.may("view_archivedjob") or self.may("change_archivedjob")

    def part(
        self, rows: Sequence[Row], size: int, query: Mapping[str, str] = {}, anchor: str = ""
    ) -> tuple[Sequence[Row], dict[str, Any]]:
        """Return the rows of the page that was asked for, and what _pages.html shows.  `query`: what else the address
        of this list says."""
        pages = max(1, -(-len(rows) // size))
        page = min(max(1, read_number(self.request.GET.get("p"))), pages)
        return rows[(page - 1) * size : page * size], {"page_links": page_links(page, pages, query, anchor)}

    def require(self, permission: str) -> None:
        if not self.may(permission):
            raise PermissionDenied

    def verbs(self, state: State) -> list[tuple[str, labels.Text, bool]]:
        """Return the verbs that the user may use for jobs in this state: the word, the button, is it destructive."""
        return [
            (operations.word_of(verb), labels.verb_label(verb, state), labels.VERBS[verb].destructive)
            for verb, states in operations.VERBS.items()
            if state in states and self.may(permissions.VERBS[verb])
        ]

    def render(
        self, template: str, title: str, context: dict[str, Any], *, here: str = "", status: int = 200
    ) -> HttpResponse:
        """Render a page.  `here` is the page's entry in the navigation."""
        self.request.current_app = self.site.name
        everything = {
            **self.site.each_context(self.request),
            "title": title,
            "opts": Dashboard._meta,
            "console": self,
            "sections": self.sections(here) if status != 503 else [],
            **context,
        }
        path = f"admin/django_jobs/dashboard/{template}"
        # Also in a project without XFrameOptionsMiddleware: in a frame, people click on what they do not see.
        headers = {"X-Frame-Options": "DENY"}
        response = TemplateResponse(self.request, path, everything, status=status, headers=headers)
        token = AHEAD.set(self.ahead)
        try:
            return response.render()
        finally:
            AHEAD.reset(token)

    @property
    def ahead(self) -> int:
        """How far (ms) the store's clock is before this machine's; 0 for a page that is shown without the store."""
        if "counted" not in self.__dict__:  # not read, or not to be reached
            return 0
        return get_store().now() - time_ns() // 1_000_000

    def sections(self, here: str) -> list[Section]:
        """Return the tabs.  A page that needs only the database has tabs without numbers while the store is away."""
        try:
            counts = self.counted.counts
        except StoreError:
            if here not in WITHOUT_STORE:
                raise
            counts = {}
        return navigation(self.url, counts, here)

    def back(self, url: str, level: int, message: str) -> HttpResponse:
        """Report the result in a message, and redirect to a page."""
        messages.add_message(self.request, level, message)
        return HttpResponseRedirect(url)

    def log(self, verb: str, kind: audit.ObjectKind, subject: str, **details: Any) -> str:
        """Write an entry of the audit log for the user of this request, and return its sentence, which pages show as
        the result.  `details`: see `audit.Act`."""
        act = audit.Act(verb, kind, subject, details)
        audit.record(self.user, audit.Source.ADMIN, act)
        return acts.sentence(act)
