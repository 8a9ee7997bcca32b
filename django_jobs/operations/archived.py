"""The archive, searched with a query: what its columns can say is asked in SQL, the rest is checked row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import QuerySet

from django_jobs import archive
from django_jobs.archive.models import ArchivedJob
from django_jobs.browse.match import Match
from django_jobs.browse.query.parsing import Term, state_of, terms_of
from django_jobs.browse.query.terms import Notes
from django_jobs.core.values import JobInfo


class ArchivedJobs(NamedTuple):
    jobs: list[JobInfo]
    #: where the next page begins; None = all were checked.
    following: archive.Cursor | None
    #: number of jobs that were checked for this page.
    checked: int
    notes: Notes


def archived(
    match: Match, *, names: Iterable[str] = (), status: str = "", cursor: archive.Cursor | None = None, limit: int
) -> ArchivedJobs:
    """Return up to `limit` archived jobs that match, newest first.  `names`: only jobs of these types."""
    rows = rows_of(archive.chosen(ArchivedJob.objects.all(), names=names, status=status), match)
    found, notes = search(rows, match, cursor=cursor, limit=limit)
    return ArchivedJobs([archive.info_of(row) for row in found.rows], found.following, found.checked, notes)


def search(
    rows: QuerySet[ArchivedJob], match: Match, *, cursor: archive.Cursor | None = None, limit: int
) -> tuple[archive.Searched, Notes]:
    """Return those of these rows, which `rows_of` has chosen, that match, and what was learnt about the query."""
    notes = Notes(terms_of(match.terms))

    def accepts(info: JobInfo) -> bool:
        notes.see(info)
        return match.accepts(info)

    return archive.search(rows, accepts, cursor=cursor, limit=limit), notes


def rows_of(rows: QuerySet[ArchivedJob], match: Match) -> QuerySet[ArchivedJob]:
    """Return the rows that may match, by all that an index finds."""
    return archive.chosen(
        rows,
        names=[match.name] if match.name else (),
        status=state_of(match.terms) or "",
        tag=match.tag,
        queue=match.queue,
        id=match.id,
        since=match.since,
        before=match.before,
    )


def unchosen(match: Match) -> list[Term]:
    """Return the terms that `rows_of` leaves to a look at each row; the free text is none of them."""
    return [term for term in terms_of(match.terms) if term.field != "state"]
