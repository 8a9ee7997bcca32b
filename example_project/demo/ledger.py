"""The end of every job that the shop sent."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from django_jobs import JobHandle, JobNotFound, get_job
from shop import progress
from shop.models import SentJob

ENDED = {"succeeded", "dead", "cancelled", "expired", "not started", "gone"}
#: Enqueued every two seconds, so that there is always one on its way.
ENDLESS = "shop.jobs.refresh_front_page"
#: Cards that are declined: see work.py.  Then the other steps of the order do not start.
MAY_DIE = "shop.jobs.charge_card"
MAY_NOT_START = ("shop.jobs.pack_order", "shop.jobs.write_invoice", "shop.jobs.send_receipt")


@dataclass
class Row:
    """The jobs with one name."""

    name: str
    jobs: list[JobHandle] = field(default_factory=list)

    def count(self, state: str) -> int:
        """Return how many are in that state."""
        return sum(job.state == state for job in self.jobs)

    @property
    def retried(self) -> int:
        """Return how many needed more than one attempt to succeed."""
        return sum(job.state == "succeeded" and bool(job.attempts) for job in self.jobs)

    @property
    def wrong(self) -> list[JobHandle]:
        """Return those that did not end as they should."""
        right = {"succeeded", "dead"} if self.name == MAY_DIE else {"succeeded"}
        right |= {"not started"} if self.name in MAY_NOT_START else set()
        right |= {"running", "queued", "expired"} if self.name == ENDLESS else set()
        return [job for job in self.jobs if job.state not in right]


def look() -> list[Row]:
    """Read all of them from the store."""
    rows: dict[str, Row] = defaultdict(lambda: Row(""))
    for sent in SentJob.objects.order_by("pk"):
        row = rows[sent.name]
        row.name = sent.name
        row.jobs.append(find(sent))
    return sorted(rows.values(), key=lambda row: row.name)


def find(sent: SentJob) -> JobHandle:
    """Return the job, or a handle whose state says why it is not there: "gone" would be a lost job."""
    try:
        return get_job(sent.job_id, queue=sent.queue)
    except JobNotFound:
        return JobHandle(sent.job_id, sent.name, sent.queue, progress.absent(sent.job_id))


def why(job: JobHandle) -> str:
    """Return how its last attempt ended."""
    try:
        return job.error or "no error is kept"
    except JobNotFound:
        return "it is not in the store"


def waiting(rows: list[Row]) -> int:
    """Return how many have not ended yet, without the endless one."""
    return sum(job.state not in ENDED for row in rows if row.name != ENDLESS for job in row.jobs)


def table(rows: list[Row]) -> str:
    """Return the rows as a table of text."""
    lines = [f"{'job':<32}{'sent':>6}{'succeeded':>11}{'retried':>9}{'dead':>6}{'other':>7}"]
    for row in rows:
        other = len(row.jobs) - row.count("succeeded") - row.count("dead")
        counts = f"{len(row.jobs):>6}{row.count('succeeded'):>11}{row.retried:>9}{row.count('dead'):>6}{other:>7}"
        lines.append(f"{row.name:<32}{counts}")
    return "\n".join(lines)
