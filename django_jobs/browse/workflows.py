"""Workflows and batches for pages, commands and the API.  Reads only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from django_jobs.core.values import JobInfo
from django_jobs.exceptions import WorkflowNotFound
from django_jobs.outbox import find_workflow
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import chunks, grouped
from django_jobs.stores.values.workflows import MOST_JOBS
from django_jobs.workflows import reading
from django_jobs.workflows.reading import STEP_STATES, STOPPING, StepInfo, WorkflowInfo

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: Workflows on a page.
PAGE = 50
#: ms for which an open batch may be idle before it is named.
IDLE = 5 * 60_000
#: How many workflows one call looks at, the newest first, and how many it reads at a time.
_LOOKED_AT, _AT_ONCE = 2000, 200


class Found(NamedTuple):
    """A part of the list, newest first, of those that match."""

    rows: list[WorkflowInfo]
    #: how many workflows and batches there are, whether they match or not.
    total: int
    #: how many of them were read.
    looked_at: int
    #: what `find_workflows` takes as `after` for the next part; "" = this is the last.
    following: str


class BatchPage(NamedTuple):
    """Some jobs of a batch, in no particular order."""

    rows: list[StepInfo]
    #: what `batch_jobs` takes as `after` for the next page; "" = this is the last.
    following: str


class Halted(NamedTuple):
    """A workflow that does not go on by itself, and why."""

    info: WorkflowInfo
    #: "stopped": a step ended without success.  "open": a batch was not closed, and nothing happens in it.
    why: str


class Older:
    """The workflows that nobody looked at: whether one of them needs a person shows when it is asked for."""

    def __init__(self, number: int, looked_at: Collection[str]) -> None:
        self.number, self._looked_at = number, looked_at

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, str) or id in self._looked_at:
            return False
        info = known_workflow(id)
        return info is not None and bool(_halt_of(info, get_store().now()))


def find_workflows(state: str = "", kind: str = "", after: str = "", limit: int = PAGE) -> Found:
    """Return workflows and batches in this state and of this kind ("" = any), newest first, at most `limit`.

    Looks at two thousand at most, so a part may have fewer rows and still be followed by another.  Parts fit together
    while others are added and removed, unless the last ones of a part are removed before the next part is read.  Raises
    ValueError if `after` is no position."""
    store = get_store()
    at = _behind(store, after) if after else 0
    rows: list[WorkflowInfo] = []
    seen: list[str] = []
    total, end = store.count_workflows(), at
    while at < total and len(seen) < _LOOKED_AT:
        many = _AT_ONCE if state or kind else limit + 1
        for number, info in enumerate(reading.page(store, at, many)):
            matches = state in ("", info.state) and kind in ("", info.kind)
            if matches and len(rows) == limit:
                return Found(rows, total, len(seen), _position(end, seen))
            if info.id not in seen[-many:]:  # others are added meanwhile
                rows += [info] if matches else []
                seen.append(info.id)
                end = at + number
        at += many
    return Found(rows, total, len(seen), _position(end, seen) if at < total else "")


#: Number of last ids that make a position: some of them may be removed before the next page is read.
_LAST = 3


def _position(at: int, seen: Sequence[str]) -> str:
    return "_".join([str(at), *reversed(seen[-_LAST:])])


def _behind(store: Store, position: str) -> int:
    """Return the place behind the last of these workflows that is still there."""
    number, *ids = position.split("_")
    if not (number.isascii() and number.isdigit()) or not ids or len(position) > 50 * (_LAST + 1):
        raise ValueError(f"{position!r:.100} is not a position in the list of workflows.")
    at = min(int(number), store.count_workflows())
    near = max(0, at - _AT_ONCE)
    for first, many in [(near, 2 * _AT_ONCE), *((i, _LOOKED_AT) for i in range(0, at + _LOOKED_AT, _LOOKED_AT))]:
        places = {id: first + i for i, id in enumerate(store.workflow_ids(first, many))}
        for id in ids:
            if id in places:
                return places[id] + 1
    return at


def known_workflow(id: str) -> WorkflowInfo | None:
    """Return one workflow or batch; None if there is none."""
    return reading.read(get_store(), id)


def workflow(id: str) -> WorkflowInfo:
    """Return one workflow or batch.  Raises WorkflowNotFound, or DatabaseError if the outbox cannot be asked for it."""
    found = known_workflow(id)
    if found is None:
        row = find_workflow(id, "data")
        waits = "" if row is None else f" It is in the outbox (entry {row.pk}): see `manage.py jobs outbox`."
        raise WorkflowNotFound(f"There is no workflow or batch with the id {id!r}.{waits}")
    return found


def steps(id: str, offset: int = 0, limit: int | None = None) -> list[StepInfo]:
    """Return steps of a workflow, in the order in which they were added, from number `offset` on."""
    return reading.steps(get_store(), id, offset, limit)


def stopping_steps(id: str, limit: int = 20) -> list[StepInfo]:
    """Return steps that ended without success, those that are dead first, at most `limit`.  Raises WorkflowNotFound."""
    info = workflow(id)
    found: list[StepInfo] = []
    for state in info.stopped_by:
        if info.kind == "batch" and len(found) < limit:
            found += batch_jobs(info, state, limit=limit - len(found)).rows
    if info.kind != "batch" and info.stopped_by:
        found = [step for step in steps(id) if step.state in STOPPING]
        found.sort(key=lambda step: (STOPPING.index(step.state), step.number))
    return found[:limit]


def jobs_of(steps: Sequence[StepInfo]) -> dict[str, JobInfo]:
    """Return the jobs of these steps that exist, by their ids.  One read for each queue and thousand steps."""
    found: dict[str, JobInfo] = {}
    for queue, ids in grouped((step.queue, step.job_id) for step in steps if step.state != "waiting").items():
        for some in chunks(ids):
            found |= {info.id: info for info in get_store().get_many(queue, some, moved=True)}
    return found


def batch_jobs(info: WorkflowInfo, state: str = "", *, after: str = "", limit: int = 100) -> BatchPage:
    """Return jobs of a batch that are in `state` ("" = any).  A page of jobs in any state is one round trip, whatever
    their number; one of a state reads on until it has found them.  Raises ValueError if `after` is no position."""
    states = (state,) if state else STEP_STATES
    number = MOST_JOBS if after or not state else info.counts[state]
    return BatchPage(*reading.part_of_batch(get_store(), info.id, states, limit, after, number))


def workflow_of(job_id: str) -> str:
    """Return the id of the workflow whose step or callback the job is, by its id; "" if it is none.  The job of a batch
    has its batch in `Controls.workflow` of its record only."""
    workflow, dot, _ = job_id.rpartition(".")
    is_one = dot and len(workflow) == 33 and workflow[0] in "wb" and workflow[1:].isalnum()
    return workflow if is_one else ""


def that_cannot_go_on() -> tuple[list[Halted], Older]:
    """Return the workflows that need a person, of the newest two thousand, and the older ones."""
    store = get_store()
    now, number, looked_at = store.now(), store.count_workflows(), set[str]()
    found: list[Halted] = []
    for offset in range(0, min(number, _LOOKED_AT), _AT_ONCE):
        for info in reading.page(store, offset, _AT_ONCE):
            looked_at.add(info.id)
            found += [Halted(info, why)] if (why := _halt_of(info, now)) else []
    return found, Older(max(0, number - _LOOKED_AT), looked_at)


def _halt_of(info: WorkflowInfo, now: int) -> str:
    """Return why a workflow needs a person; "" if it needs none."""
    if info.state == "stopped":
        return "stopped"
    return "open" if not info.closed and not info.counts["live"] and now - info.touched_at > IDLE else ""
