"""Why a job does not start: its reason (browse/why.py), and the findings that concern it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import override

from django_jobs import browse
from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.operations.diagnosis.facts import measure
from django_jobs.operations.diagnosis.finding import Finding, Severity
from django_jobs.operations.diagnosis.report import check, described, some_of
from django_jobs.serialization.record import name_of

#: Causes that concern the jobs of every queue.
OF_ALL = frozenset({"no_workers", "read_only", "not_saved", "full", "silent"})
#: Causes that name a job type; a pause of the whole queue names none.
OF_TYPE = frozenset({"failing", "retries_type", "unknown", "held_work", "old_pause"})
#: Causes that keep jobs of a queue from starting, whatever their type.
OF_QUEUE = frozenset({"no_worker", "neglected", "hung_queue", "overdue", "latency"})


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job does not start, or that it has started or ended."""

    #: the job as it was when this was found out.
    job: JobInfo
    reason: browse.Reason
    #: what is wrong and may keep it from starting or ending, worst first.
    findings: Sequence[Finding]

    def lines(self) -> list[tuple[Finding, int]]:
        """Return findings as Report.lines."""
        return some_of(self.findings)

    def payload(self) -> dict[str, Any]:
        """Return the answer for programs, in English."""
        with override("en"):
            found = [described(each) for each in self.findings]
        return browse.reason_payload(self.job, self.reason) | {"findings": found}


def why(info: JobInfo, counted: browse.JobCounts | None = None, *, arguments: bool = True) -> Why:
    """Return why the job does not start.  Raises StoreError.

    `counted`: the numbers of all queues, if the caller has them already.  `arguments`: the user may see arguments."""
    info, reason = browse.why(info, counted, arguments=arguments)
    if info.state in FINISHED:
        return Why(info, reason, ())
    holders = reason.values.get("holders", ())
    found = check(measure(queue=info.queue, arguments=arguments)).findings
    return Why(info, reason, [each for each in found if concerns(each, info, holders)])


def concerns(found: Finding, info: JobInfo, holders: Collection[str]) -> bool:
    """Return whether the finding may keep this job from starting or ending.

    `holders`: the jobs that hold the slots of its limit."""
    if found.severity is Severity.NOTICE or found.cause in OF_ALL:
        return found.severity is not Severity.NOTICE
    if found.queue != info.queue:
        return False
    if found.cause in OF_QUEUE:
        return info.state is not State.RUNNING
    if found.cause in OF_TYPE:
        return found.detail.partition("\t")[0] in (name_of(info.record), "")
    return bool(found.job) and (found.job == info.id or found.job in holders)
