"""Workers as rows.  A worker's description of itself is shown as text; its structure is not trusted."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, NamedTuple

from django_jobs.admin.common.charts import Sparkline
from django_jobs.admin.pages import trends
from django_jobs.browse import shown_queues
from django_jobs.browse.trends import worker_trend
from django_jobs.core.values import WorkerInfo
from django_jobs.samples.worker import totals_of
from django_jobs.serialization.checked import list_of, running_in


class WorkerRow(NamedTuple):
    """One `runworkers` parent process."""

    name: str
    host: str
    pid: str
    queues: str
    #: "2 × 8": processes × threads.
    size: str
    started_at: int
    seen_at: int
    busy: int
    memory: int
    state: str
    release: str
    #: the first RUNNING of its jobs, those that were started first.
    running: list[dict[str, Any]]
    children: list[dict[str, Any]]
    #: how many attempts ended in each way since it started; None: not known.
    totals: dict[str, int] | None
    #: of the last 24 hours.
    spark: Sparkline

    @property
    def more(self) -> int:
        """The number of jobs that it runs besides `running`."""
        return self.busy - len(self.running)


#: Maximum jobs shown per worker.
RUNNING = 12


def worker_rows(workers: Iterable[WorkerInfo], now: int) -> list[WorkerRow]:
    return [worker_row(worker) for worker in sorted(workers, key=lambda worker: worker.name)]


def longest_running(workers: Iterable[WorkerInfo], most: int) -> list[dict[str, Any]]:
    """Return the jobs that have been running longest, as far as workers report them: the first started comes first."""
    found = [
        job_row(job) | {"worker": worker.name}
        for worker in workers
        if isinstance(worker.info, dict)
        for job in running_in(worker.info)
    ]
    known = [job for job in found if job["id"] and job["queue"] and job["since"]]
    return sorted(known, key=lambda job: job["since"])[:most]


def worker_row(worker: WorkerInfo) -> WorkerRow:
    """Return the row of one worker; missing values are left empty."""
    info = worker.info if isinstance(worker.info, dict) else {}
    queues = info.get("queues")
    children, running = list_of(info.get("children"), dict), running_in(info)
    size = f"{info.get('processes', '?')} × {info.get('threads', '?')}"
    return WorkerRow(
        worker.name,
        str(info.get("host", "")),
        str(info.get("pid", "")),
        ", ".join(shown_queues(info)) or (queues if isinstance(queues, str) else ""),
        size,
        number(info.get("started_at")),
        worker.seen_at,
        len(running),
        sum(number(child.get("memory")) for child in children),
        str(info.get("state", "")),
        str(info.get("release", "")),
        sorted(map(job_row, running), key=lambda job: job["since"])[:RUNNING],
        [child_row(child) for child in children],
        totals_of(info),
        trends.sparkline(worker_trend(worker, "day")),
    )


def child_row(child: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {key: str(child.get(key, "")) for key in ("name", "pid", "lane")}
    return row | {"memory": number(child.get("memory")), "busy": len(list_of(child.get("jobs")))}


def job_row(job: Any) -> dict[str, Any]:
    if not isinstance(job, dict):
        return {"name": str(job), "id": "", "queue": "", "since": 0}
    return {key: str(job.get(key, "")) for key in ("name", "id", "queue")} | {"since": number(job.get("since"))}


def number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else 0
