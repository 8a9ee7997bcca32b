"""The archive over HTTP: pages of finished jobs, newest first."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest, JsonResponse
from ninja import Query, Router

from django_jobs import archive, browse
from django_jobs.api.common import schemas
from django_jobs.api.common.cursors import not_a_cursor
from django_jobs.api.common.principal import Scope, require
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.api.common.serializers import shown
from django_jobs.conf import get_settings
from django_jobs.operations.archived import archived

router = Router(tags=["history"])
CURSOR = r"^([0-9]{1,17}_[0-9]{1,18})?$"
Status = Literal["", "succeeded", "dead", "cancelled", "expired"]


@router.get("/v1/archived-jobs", response=schemas.JobPage, summary="History")
def archived_jobs(
    request: HttpRequest,
    name: Annotated[str, Query(max_length=255, description="Only jobs of this type.")] = "",
    status: Annotated[Status, Query(description="Only jobs that ended in this state.")] = "",
    tag: Annotated[str, Query(max_length=64, description="Only jobs with this tag.")] = "",
    query: Annotated[str, Query(max_length=2000, description=schemas.QUERY)] = "",
    cursor: Annotated[str, Query(pattern=CURSOR, description="The `cursor` of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> JsonResponse:
    """List the finished jobs that ARCHIVE keeps, newest first.  Jobs that finish in the meantime do not move a page."""
    principal = require(request, Scope.READ, job=name or None)
    if get_settings().archive is None:
        raise Problem(Kind.NO_ARCHIVE, "There is no archive: set DJANGO_JOBS['ARCHIVE'].")
    try:
        after = archive.Cursor.read(cursor) if cursor else None
    except (ValueError, OverflowError) as error:
        raise not_a_cursor(cursor) from error
    names, about = [name] if name else sorted(principal.jobs), dict[str, Any]()
    if query:
        match = browse.Match(tag=tag).asked(query, archived=True)
        infos, following, checked, notes = archived(match, names=names, status=status, cursor=after, limit=limit)
        about = {"checked": checked, "notes": notes.sentences()}
    else:
        infos, following = archive.page(names=names, status=status, tag=tag, cursor=after, limit=limit)
    jobs = [shown(info, principal, archived=True) for info in infos]
    return JsonResponse({"jobs": jobs, "cursor": str(following) if following else None} | about)
