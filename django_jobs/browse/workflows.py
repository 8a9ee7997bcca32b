"""Workflows and batches for pages, commands and the API.  Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django_jobs.exceptions import WorkflowNotFound
from django_jobs.stores import get_store
from django_jobs.workflows import reading
from django_jobs.workflows.reading import StepInfo, WorkflowInfo

#: Workflows on a page.
PAGE = 50
#: ms for which an open batch may be idle before it is named.
IDLE = 3_600_000
#: How many workflows `that_cannot_go_on` looks at, the newest first, and how many it reads at a time.
_LOOKED_AT, _AT_ONCE = 2000, 200


class WorkflowPage(NamedTuple):
    """A part of the list, newest first."""

    rows: list[WorkflowInfo]
    #: how many workflows and batches there are.
    total: int
    offset: int


class Halted(NamedTuple):
    """A workflow that does not go on by itself, and why."""

    info: WorkflowInfo
    #: "stopped": a step ended without success.  "open": a batch was not closed, and nothing happens in it.
    why: str


def workflows(offset: int = 0, limit: int = PAGE) -> WorkflowPage:
    """Return workflows and batches, newest first.  Three round trips, whatever their sizes."""
    store = get_store()
    return WorkflowPage(reading.page(store, offset, limit), store.count_workflows(), offset)


def workflow(id: str) -> WorkflowInfo:
    """Return one workflow or batch.  Raises WorkflowNotFound."""
    found = reading.read(get_store(), id)
    if found is None:
        raise WorkflowNotFound(f"There is no workflow or batch with the id {id!r}.")
    return found


def steps(id: str, offset: int = 0, limit: int | None = None) -> list[StepInfo]:
    """Return steps of a workflow, in the order in which they were added, from number `offset` on."""
    return reading.steps(get_store(), id, offset, limit)


def batch_jobs(id: str, state: str | None = None, *, after: str = "", limit: int = 100) -> list[StepInfo]:
    """Return jobs of a batch that are in `state` (None = any), in the order of their ids, from behind `after` on."""
    return reading.jobs_of_batch(get_store(), id, state, limit, after)


def workflow_of(job_id: str) -> str:
    """Return the id of the workflow whose step or callback the job is, by its id; "" if it is none.  The job of a batch
    has its batch in `Controls.workflow` of its record only."""
    workflow, dot, _ = job_id.rpartition(".")
    is_one = dot and len(workflow) == 33 and workflow[0] in "wb" and workflow[1:].isalnum()
    return workflow if is_one else ""


def that_cannot_go_on() -> Iterator[Halted]:
    """Yield workflows that need a person.  Looks at the newest two thousand."""
    store = get_store()
    now = store.now()
    for offset in range(0, _LOOKED_AT, _AT_ONCE):
        rows = reading.page(store, offset, _AT_ONCE)
        for info in rows:
            if info.state == "stopped":
                yield Halted(info, "stopped")
            elif not info.closed and not info.counts["live"] and now - info.touched_at > IDLE:
                yield Halted(info, "open")
        if len(rows) < _AT_ONCE:
            return
