"""How the archive is listed when it has millions of rows: filters that ask the database nothing to offer their choices,
and the first rows only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_jobs.admin.common import labels
from django_jobs.archive import with_tag
from django_jobs.archive.values import as_stored
from django_jobs.archive.values import text as as_text
from django_jobs.browse import Match, usable_queues
from django_jobs.browse.query.parsing import parse
from django_jobs.core import registry
from django_jobs.core.options.checks import LONGEST_TAG
from django_jobs.core.values import FINISHED
from django_jobs.formatting import number
from django_jobs.models import ArchivedJob, ArchivedTag
from django_jobs.operations.archived import search
from django_jobs.serialization.payloads import iso

Rows = QuerySet[ArchivedJob]

#: At most this many rows are listed, counted and chosen: to count a million takes longer than all the rest of the page.
LISTED = 10_000
#: Number of days that the filter offers, with today; the address takes any other.
DAYS = 8


def first(rows: Rows) -> list[int]:
    """Return the keys of the first LISTED of these rows, in their order, and of one more if there are more."""
    return list(rows.values_list("pk", flat=True)[: LISTED + 1])


class FirstRows(Paginator):  # type: ignore[type-arg]
    """Pages of the first LISTED rows, whose keys one query finds."""

    @cached_property
    def keys(self) -> list[int]:
        return first(self.object_list)  # type: ignore[arg-type]

    @cached_property
    def count(self) -> int:
        return min(len(self.keys), LISTED)


class FirstRowsList(ChangeList):
    """The list.  It says if there are more rows, and reads those of a page by their keys, without the filters."""

    paginator: FirstRows

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        if len(self.paginator.keys) > LISTED:
            text = _("The first %(number)s archived jobs of this list. Filters and the search find the others.")
            self.title = text % {"number": number(LISTED)}

    def get_ordering(self, request: HttpRequest, queryset: Rows) -> list[Any]:
        ordering: list[Any] = list(super().get_ordering(request, queryset))
        if ArchivedTag._meta.db_table not in queryset.query.alias_map:
            return ordering
        # The same order, of the index of tags: otherwise, PostgreSQL reads all jobs of the tag, and sorts them.
        tags = {"ended_at": "tags__ended_at", "-ended_at": "-tags__ended_at", "-id": "-tags__job_id"}
        return [tags.get(field, field) for field in ordering]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        keys = self.paginator.keys[: self.result_count]
        if self.multi_page and not (self.show_all and self.can_show_all):  # as in Django: not all of a long list
            start = (self.page_num - 1) * self.list_per_page
            keys = keys[start : start + self.list_per_page]
        rows = self.root_queryset.in_bulk(keys)
        self.result_list = [rows[key] for key in keys if key in rows]


class Offered(SimpleListFilter):
    """Rows with one value.  The value of the address is offered, too: of a queue or job type that is gone."""

    def known(self) -> Iterable[tuple[str, Any]]:
        """Return the values that are offered, with their texts."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        offered = dict(self.known())
        given = request.GET.get(str(self.parameter_name), "")[:255]
        return list(offered.items()) + [(given, given)] * (given not in ("", *offered))

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        value = self.value()
        return queryset.filter(**{str(self.parameter_name): as_text(value)}) if value else queryset


class StateFilter(Offered):
    title, parameter_name = _("state"), "status"

    def known(self) -> Iterable[tuple[str, Any]]:
        return [(state.value, labels.STATES[state]) for state in sorted(FINISHED)]


class QueueFilter(Offered):
    title, parameter_name = _("queue"), "queue"

    def known(self) -> Iterable[tuple[str, Any]]:
        return [(name, name) for name in usable_queues()]


class TypeFilter(Offered):
    title, parameter_name = _("job type"), "name"

    def known(self) -> Iterable[tuple[str, Any]]:
        return [(name, name) for name in registry.names()]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        name = self.value()
        return queryset.filter(name__in=[as_text(each) for each in registry.names_of(name)]) if name else queryset


class TagFilter(Offered):
    """There are too many tags to choose from: the search and the tags of each job lead here."""

    title, parameter_name = _("tag"), "tag"

    def known(self) -> Iterable[tuple[str, Any]]:
        return []

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        tag = (self.value() or "")[: LONGEST_TAG + 1]
        return with_tag(queryset, tag) if tag else queryset


class DayFilter(Offered):
    """Jobs that ended on one day of the current time zone."""

    title, parameter_name = _("day"), "day"

    def known(self) -> Iterable[tuple[str, Any]]:
        today = timezone.localdate(datetime.now(UTC))  # with USE_TZ = False, too
        days = [today - timedelta(days=ago) for ago in range(DAYS)]
        return [(day.isoformat(), date_format(day)) for day in days]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        value = self.value()
        if not value:
            return queryset
        try:
            day = date.fromisoformat(value)
            start, end = (as_time(each) for each in (day, day + timedelta(days=1)))
        except (ValueError, OverflowError) as error:
            raise IncorrectLookupParameters(value) from error
        return queryset.filter(ended_at__gte=start, ended_at__lt=end)


def as_time(day: date) -> datetime:
    """Return the beginning of a day in the current time zone, as the database has times."""
    return as_stored(timezone.make_aware(datetime.combine(day, time())))


def searched(request: HttpRequest, rows: Rows, match: Match) -> Rows:
    """Return those of the first of these rows that match.  Says how many were checked, and how to go on."""
    found, notes = search(rows, match, limit=LISTED)
    said = [_("%(number)s archived jobs were checked.") % {"number": number(found.checked)}, *notes.texts()]
    if found.following:
        kept = (str(term) for term in parse(request.GET.get("q", "")) if term.field != "before")
        on = request.GET.dict() | {"q": " ".join([*kept, f"before:{iso(found.following.ms)}"])}
        on.pop("p", None)
        text = _("Older ones were not: {}")
        link = format_html('<a href="?{}">{}</a>', urlencode(on), _("go on"))
        messages.warning(request, format_html("{} {}", " ".join(map(str, said)), format_html(str(text), link)))
    else:
        messages.info(request, " ".join(map(str, said)))
    return rows.filter(pk__in=[row.pk for row in found.rows])
