"""A job as a row of a list: the columns of each state, and their values."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin.common.addresses import quote
from django_jobs.core.values import PLAIN, Job, JobInfo, State
from django_jobs.enqueueing.keys import limit_now
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.display import readable
from django_jobs.serialization.holders import shown
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import as_json, named_arguments
from django_jobs.serialization.record import decode, name_of

#: Maximum length of the one-line preview of arguments, errors and results.
PREVIEW = 140
#: The headings after job, queue and arguments.
COLUMNS: dict[State, list[Any]] = {
    State.SCHEDULED: [gettext_lazy("Runs at"), gettext_lazy("Priority")],
    State.QUEUED: [gettext_lazy("Enqueued"), gettext_lazy("Priority"), gettext_lazy("Failures")],
    State.RUNNING: [gettext_lazy("Started"), gettext_lazy("Last check-in"), gettext_lazy("Worker")],
    State.RETRY: [gettext_lazy("Next attempt"), gettext_lazy("Attempts"), gettext_lazy("Error")],
    State.BLOCKED: [gettext_lazy("Enqueued"), gettext_lazy("Held back by")],
    State.SUCCEEDED: [gettext_lazy("Finished"), gettext_lazy("Took"), gettext_lazy("Result")],
    State.DEAD: [gettext_lazy("Dead since"), gettext_lazy("Attempts"), gettext_lazy("Error")],
    State.CANCELLED: [gettext_lazy("Cancelled"), gettext_lazy("Why")],
    State.EXPIRED: [gettext_lazy("Expired"), gettext_lazy("Enqueued")],
}


class Cell(NamedTuple):
    """One value; `kind` selects how the template formats it."""

    #: "text" | "moment" | "duration" | "error" | "checkin" | "number"
    kind: str
    value: Any
    more: Any = ""
    #: the heading of its column, for narrow screens without columns.
    label: str = ""


class ListRow(NamedTuple):
    info: JobInfo
    name: str
    #: the value of the checkbox.
    reference: str
    arguments: str
    corrupt: bool
    cells: list[Cell]
    #: it is delivered at most once.
    once: bool = False
    tags: tuple[str, ...] = ()


def columns(state: State) -> list[str]:
    return list(map(str, COLUMNS[state]))


def row(info: JobInfo, *, arguments: bool = True) -> ListRow:
    """Return the row of one job; for a job that cannot be read, it shows the beginning of its bytes.

    `arguments`: the reader may see them."""
    info = masked(info, arguments=arguments)
    reference = f"{quote(info.queue)}/{quote(info.id)}"
    try:
        job = decode(info.id, info.queue, info.record)
    except CorruptRecord:
        raw = info.record[:PREVIEW].decode(errors="backslashreplace")
        return ListRow(info, name_of(info.record)[:PREVIEW], reference, raw, True, cells(info, None))
    return ListRow(
        info, job.name, reference, preview(job), False, cells(info, job), job.controls.at_most_once, job.tags
    )


def preview(job: Job) -> str:
    """Return the arguments on one line."""
    shown = named_arguments(job)
    if shown is None:
        return cut(job.args.decode(errors="backslashreplace"))
    return cut(", ".join(f"{name}={value}" for name, value in shown))


def cells(info: JobInfo, job: Job | None) -> list[Cell]:
    """Return the cells for the columns of the job's state, with the headings."""
    return [cell._replace(label=label) for cell, label in zip(values(info, job), columns(info.state), strict=True)]


def values(info: JobInfo, job: Job | None) -> list[Cell]:
    """Return the cells without the headings."""
    enqueued = Cell("moment", job.enqueued_at if job else 0)
    priority = Cell("number", job.controls.priority if job else "")
    at, last = Cell("moment", info.at), error_cell(info)
    made = info.failures + info.crashes
    tried = Cell("text", f"{made}/{job.options.max_attempts}" if job else made)
    match info.state:
        case State.SCHEDULED:
            return [at, priority]
        case State.QUEUED:
            return [enqueued, priority, Cell("number", made or "")]
        case State.RUNNING:
            return [at, Cell("checkin", checkin(info)), Cell("text", cut(shown(info.worker)))]
        case State.RETRY | State.DEAD:
            return [at, tried, last]
        case State.BLOCKED:
            if info.parked_at:
                return [enqueued, Cell("text", _("no worker that claimed it knows it"))]
            key = (job.controls if job else PLAIN).limit_key
            limit = _("limit of %(n)s on %(key)s") % {"n": limit_now(job), "key": key} if job and key else ""
            return [enqueued, Cell("text", cut(limit or _("a pause of its job type")))]
        case State.SUCCEEDED:
            return [at, Cell("duration", info.run_ms), Cell("text", result(info))]
        case State.CANCELLED:
            return [at, last]
        case _:
            return [at, enqueued]


def error_cell(info: JobInfo) -> Cell:
    """Return class and message of the last attempt that did not succeed."""
    if not info.attempts:
        return Cell("error", "", "")
    last = info.attempts[-1]
    return Cell("error", cut(last.error_type.rpartition(".")[2] or last.outcome), cut(last.error))


def checkin(info: JobInfo) -> dict[str, Any]:
    """Return the last check-in in a fixed form: message, percent (or None), at (ms or 0)."""
    said = info.checkin if isinstance(info.checkin, dict) else {}
    progress, at = said.get("progress"), said.get("at")
    known = isinstance(progress, int | float) and 0 <= progress <= 1
    return {
        "message": cut(str(said.get("message") or "")),
        "percent": round(progress * 100) if known and progress is not None else None,
        "at": int(at) if isinstance(at, int | float) else 0,
    }


def result(info: JobInfo) -> str:
    """Return the returned value on one line; "" for None."""
    value = as_json(info.result)
    return "" if value is None else cut(readable(value))


def cut(text: str) -> str:
    """Return the text cut to one line of a list."""
    line = " ".join(text[: PREVIEW * 4].split())
    return line if len(line) <= PREVIEW else f"{line[:PREVIEW]}…"
