"""Workflows and batches as values, for handles and pages: reads only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.serialization.checked import is_count, loaded, notice, read_count
from django_jobs.stores.values.workflows import LIVE, MOST_JOBS, MOST_STEPS
from django_jobs.workflows.packing import CHUNK

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: What a step or a batch's job may be: "waiting" for steps before it; "live": its job waits or runs in its queue; then
#: as it ended.
STEP_STATES = ("waiting", LIVE, "succeeded", "dead", "cancelled", "expired", "deleted")
#: Those in which a step stops the steps after it.
STOPPING = ("dead", "cancelled", "expired", "deleted")
_CALLBACKS = ("on_success", "on_complete", "on_dead")
#: More than a batch has besides one field per job.  Redis counts them where it is asked for some of the jobs.
_OTHER_FIELDS = 32


class WorkflowInfo(NamedTuple):
    """One workflow or batch.  Times are ms by the store's clock."""

    id: str
    #: "workflow" | "batch"
    kind: str
    name: str
    #: "running" | "succeeded" | "stopped" (a step is dead, cancelled, expired or deleted, and nothing more can
    #: happen by itself) | "cancelled"
    state: str
    created_at: int
    #: when something changed last.
    touched_at: int
    #: None while anything of it may still happen by itself.
    ended_at: int | None
    #: steps; of a batch: jobs so far.
    total: int
    #: how many steps are in each of STEP_STATES.
    counts: dict[str, int]
    #: of a batch: it gets no more jobs.
    closed: bool = True
    #: of a batch: its callbacks, and whether each was started.
    callbacks: dict[str, bool] = {}

    @property
    def ended(self) -> int:
        """How many steps have ended, in whatever way."""
        return self.total - self.counts["waiting"] - self.counts[LIVE]

    @property
    def progress(self) -> float:
        """The part of the steps that have ended: 0…1."""
        return self.ended / self.total if self.total else 1.0

    @property
    def may_be_cancelled(self) -> bool:
        """Return whether `cancel()` has anything to do: one that is stopped could be retried, and jobs of one that was
        cancelled may not have ended."""
        return self.ended_at is None or self.state == "stopped"

    @property
    def stopped_by(self) -> dict[str, int]:
        """The states in STOPPING that steps are in, and how many are."""
        return {state: self.counts[state] for state in STOPPING if self.counts[state]}


class WorkflowRow(NamedTuple):
    """What is known of a step before it runs."""

    #: "" = it has none.
    name: str
    #: the job's name on the wire.
    job: str
    queue: str
    #: the numbers of the steps before it.
    after: Sequence[int]
    #: "wait" | "cancel" | "run"
    if_dead: str


#: A step whose description is damaged.
UNREADABLE = WorkflowRow("", "unreadable", "", (), "wait")


class StepInfo(NamedTuple):
    """One step of a workflow, or one job of a batch."""

    #: in a batch: 0.
    number: int
    name: str
    #: the job's name on the wire; "" in a batch.
    job: str
    queue: str
    #: the job's id.  There is no job before the step starts, nor after it has left the history.
    job_id: str
    #: one of STEP_STATES.
    state: str
    after: Sequence[int] = ()
    if_dead: str = "wait"


#: The fields of `_info`, in its order.
_FIELDS = (
    *("kind", "name", "created", "touched", "state", "ended", "total", "closed", *STEP_STATES),
    *(f"{letter}:{name}" for name in _CALLBACKS for letter in "db"),
)


def read(store: Store, id: str) -> WorkflowInfo | None:
    """Return one workflow or batch, or None."""
    return _info(id, store.workflow_fields(id, _FIELDS))


def _info(id: str, found: Sequence[bytes | None]) -> WorkflowInfo | None:
    kind, name, created, touched, state, ended, total, closed, *rest = found
    if kind is None:
        return None
    numbers = [read_count(number or 0) for number in rest[: len(STEP_STATES)]]
    marks = rest[len(STEP_STATES) :]
    defined = {name: (marks[2 * i], marks[2 * i + 1]) for i, name in enumerate(_CALLBACKS)}
    return WorkflowInfo(
        id,
        "batch" if kind == b"batch" else "workflow",
        (name or b"").decode(errors="replace"),
        (state or b"running").decode(errors="replace"),
        read_count(created or 0),
        read_count(touched or 0),
        None if ended is None else read_count(ended),
        read_count(total or 0),
        dict(zip(STEP_STATES, numbers, strict=True)),
        kind != b"batch" or closed is not None,
        {name: mark is not None for name, (what, mark) in defined.items() if what is not None},
    )


def outline(store: Store, id: str, offset: int = 0, limit: int | None = None) -> list[WorkflowRow]:
    """Return what the steps of a workflow are, in the order of their numbers."""
    (total,) = store.workflow_fields(id, ("total",))
    number = min(read_count(total or 0), MOST_STEPS)
    end = number if limit is None else min(number, offset + limit)
    first = offset // CHUNK
    chunks = store.workflow_fields(id, [f"o{i}" for i in range(first, -(-end // CHUNK))])
    rows = [row for chunk in chunks for row in _rows(chunk)]
    return rows[offset - first * CHUNK : max(end - first * CHUNK, 0)]


def _rows(chunk: bytes | None) -> list[WorkflowRow]:
    """Return the rows of a chunk; what cannot be read is named UNREADABLE, so that the numbers of the others stay."""
    given = loaded(chunk or b"[]")
    return [_row(each) for each in given] if isinstance(given, list) else [UNREADABLE] * CHUNK


def _row(given: Any) -> WorkflowRow:
    match given:
        case [str(), str(), str(), list(after), str()] if all(map(is_count, after)):
            return WorkflowRow(*given)
    notice(f"{given!r:.100} is no step")
    return UNREADABLE


def steps(store: Store, id: str, offset: int = 0, limit: int | None = None) -> list[StepInfo]:
    """Return the steps of a workflow, in the order of their numbers.  Four reads for a thousand steps."""
    rows = outline(store, id, offset, limit)
    numbers = [str(offset + i) for i in range(len(rows))]
    stands = store.workflow_fields(id, [f"s:{number}" for number in numbers])
    waits = store.workflow_fields(id, [f"l:{number}" for number in numbers])
    (stopped,) = store.workflow_fields(id, ("stopped",))
    found = []
    for row, number, stand, wait in zip(rows, numbers, stands, waits, strict=True):
        if stand is not None:
            state = read_stand(stand).state
        else:
            state = LIVE if wait is None else "waiting" if stopped is None else "cancelled"
        found.append(
            StepInfo(int(number), row.name, row.job, row.queue, f"{id}.{number}", state, row.after, row.if_dead)
        )
    return found


def jobs_of_batch(store: Store, id: str) -> list[StepInfo]:
    """Return all jobs of a batch, in the order of their ids."""
    found = {job for each in store.workflow_scan(id, "s:") if (job := _job_of_batch(*each)) is not None}
    return sorted(found, key=lambda job: job.job_id)


def part_of_batch(
    store: Store, id: str, states: Collection[str], limit: int, after: str = "", number: int = MOST_JOBS
) -> tuple[list[StepInfo], str]:
    """Return at most `limit` jobs of a batch that are in one of these states, in no particular order, and what to pass
    as `after` for the next part; "" = this is the last.  Looks no further when it has found `number`.

    It reads few more than it returns, unless few jobs are in these states.  A job that ends meanwhile may be in two
    parts or in none.  Raises ValueError if `after` is no position."""
    position, _, skip = after.rpartition("_") if after else ("", "", "0")
    if not (skip.isascii() and skip.isdigit() and len(skip) < 10):
        raise ValueError(f"{after!r:.100} is no position among the jobs of a batch")
    at_once = limit + _OTHER_FIELDS if len(states) == len(STEP_STATES) else 1000
    first = int(skip)
    found: dict[str, StepInfo] = {}
    while len(found) < number:
        part, following = store.workflow_part(id, "s:", position, at_once)
        for place, each in enumerate(part[first:], start=first):
            job = _job_of_batch(*each)
            if job is not None and job.state in states:
                if len(found) == limit:
                    return list(found.values()), f"{position}_{place}"
                found[job.job_id] = job
        if not following:
            break
        position, first = following, 0
    return list(found.values()), ""


def _job_of_batch(job_id: str, stand: bytes) -> StepInfo | None:
    _, state, queue = read_stand(stand)
    return None if state == "none" else StepInfo(0, "", "", queue, job_id, state)


class Stand(NamedTuple):
    """Where a step stands, as lua/workflows writes it."""

    #: of its job's last note.
    number: str
    #: LIVE, as it ended, or what else is written there.
    state: str
    #: of a job of a batch.
    queue: str


def read_stand(text: bytes) -> Stand:
    """Read a field "s:" of a workflow or batch; what is missing is ""."""
    number, _, rest = text.decode(errors="replace").partition(":")
    state, _, queue = rest.partition(":")
    return Stand(number, state, queue)


def page(store: Store, offset: int = 0, limit: int = 50) -> list[WorkflowInfo]:
    """Return workflows and batches, newest first.  Two round trips."""
    ids = store.workflow_ids(offset, limit)
    found = store.fields_of_many(ids, _FIELDS)
    return [info for id, fields in zip(ids, found, strict=True) if (info := _info(id, fields)) is not None]
