"""Looks into the queues where work waits, runs for long or fails.  Each costs a bounded number of calls, whatever the
number of queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django_jobs import browse
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.core import registry
from django_jobs.core.times import Times, bound_of
from django_jobs.core.values import JobInfo, QueueStats, State, WorkerInfo
from django_jobs.enqueueing.keys import limit_now
from django_jobs.serialization.checked import is_moment, list_of, running_in
from django_jobs.serialization.record import job_in, name_of
from django_jobs.stores import get_store
from django_jobs.workflows.reading import WorkflowInfo

#: ms: work that has waited for so long, behind jobs that have run for so long, may stand still.
STILL = 45_000
#: A job is too long if it runs so many times as long as 95 % of the attempts of its type take, which is known after so
#: many attempts.
LONGER, KNOWN = 3, 10
#: ms: a job that has run for less is no overrun, whatever is usual.
LONG = 60_000
#: Running jobs that are read of one queue, the first started first.
JOBS = 20


class LongRun(NamedTuple):
    """A job that has run for longer than STILL.  Times in ms."""

    queue: str
    id: str
    name: str
    since: int
    #: 95 % of the attempts of its type take at most so long; 0 = not known.
    usual: int = 0
    #: the jobs that hold the slots of its limit; () if there is room, or no limit.
    holders: Sequence[str] = ()
    #: jobs that wait for one of these slots.
    behind: int = 0
    #: the workflow whose steps wait for it, or the batch that nothing else holds up.
    flow: WorkflowInfo | None = None

    def hangs(self, now: int) -> bool:
        """True if it runs for longer than its type usually does."""
        return now - self.since >= max(STILL, LONGER * self.usual)

    def overruns(self, now: int) -> bool:
        """True if what is usual is known, and it runs far beyond that."""
        return bool(self.usual) and self.hangs(now) and now - self.since >= LONG


class Work(NamedTuple):
    """What runs where work waits, and everywhere what has run for long."""

    long: Sequence[LongRun] = ()
    #: queue with waiting work → when the last of its running jobs was started (ms), and its id.
    latest: Mapping[str, tuple[int, str]] = {}
    #: queues with waiting work, or with jobs that run for long, that were not looked at.
    left_out: Collection[str] = ()


# -- what runs -----------------------------------------------------------------


def running_work(counted: browse.JobCounts, workers: Iterable[WorkerInfo], now: int) -> Work:
    """Read the running jobs of the queues where most work waits, and what workers say of jobs that run for long."""
    store = get_store()
    waiting = sorted(filter(_waits, counted.queues.values()), key=lambda stats: (-_waiting(stats), stats.queue))
    infos: dict[tuple[str, str], JobInfo] = {}
    latest: dict[str, tuple[int, str]] = {}
    for stats in waiting[:LIVE_QUEUES]:
        page = store.page(stats.queue, State.RUNNING, 0, JOBS)
        last = page if len(page) < JOBS else store.page(stats.queue, State.RUNNING, 0, 1, reverse=True)
        if last:
            latest[stats.queue] = last[-1].at, last[-1].id
        infos |= {(info.queue, info.id): info for info in page + last}
    long = {key: LongRun(*key, name_of(info.record), info.at) for key, info in infos.items()}
    long = {(each.queue, each.id): each for each in reported(workers)} | long
    long = {key: each for key, each in long.items() if now - each.since >= STILL}
    names = sorted({queue for queue, _ in long})
    times = store.times(names[:LIVE_QUEUES]) if names else {}
    found: dict[tuple[str, str], LongRun] = {}
    held: set[str] = set()  # jobs whose limit has been looked at with another job
    for key, each in sorted(long.items(), key=lambda pair: pair[1].since):
        each = each._replace(usual=usual_time(times.get(each.queue, {}).get(registry.current_name(each.name))))
        if key in infos and each.hangs(now) and each.id not in held and _has_blocked(counted, each.queue):
            each = _at_limit(each, infos[key])
            held.update(each.holders)
        found[key] = each
    found |= _with_flows([each for each in found.values() if each.overruns(now)][:JOBS], infos)
    left_out = {*(stats.queue for stats in waiting[LIVE_QUEUES:]), *names[LIVE_QUEUES:]}
    return Work(list(found.values()), latest, left_out)


def _waits(stats: QueueStats) -> bool:
    has_work = stats.latency >= STILL or stats.counts.get(State.BLOCKED, 0)
    return bool(has_work and stats.counts.get(State.RUNNING) and not stats.paused)


def _has_blocked(counted: browse.JobCounts, queue: str) -> bool:
    return queue in counted.queues and bool(counted.queues[queue].counts.get(State.BLOCKED))


def _waiting(stats: QueueStats) -> int:
    return stats.counts.get(State.QUEUED, 0) + stats.counts.get(State.BLOCKED, 0)


def reported(workers: Iterable[WorkerInfo]) -> Iterator[LongRun]:
    """Yield the jobs that workers say they run.  Their times are of the clocks of their machines."""
    for worker in workers:
        at = worker.info.get("at")
        ahead = at - worker.seen_at if is_moment(at) else 0
        for job in list_of(running_in(worker.info), dict):
            queue, id, name, since = (job.get(key) for key in ("queue", "id", "name", "since"))
            if isinstance(queue, str) and isinstance(id, str) and isinstance(name, str) and is_moment(since):
                yield LongRun(queue, id, name, since - ahead)


def usual_time(times: Times | None) -> int:
    """Return how long 95 % of the attempts took at most (ms); 0 if there were few, or it is longer than any bound."""
    counts = times.running.up_to if times else ()
    if not counts or counts[-1] < KNOWN:
        return 0
    return bound_of(counts, 0.95) or 0


def _with_flows(jobs: Sequence[LongRun], infos: Mapping[tuple[str, str], JobInfo]) -> dict[tuple[str, str], LongRun]:
    """Return the jobs for which steps of a workflow or the callbacks of a batch wait, with that workflow or batch."""
    found: dict[str, list[LongRun]] = {}
    for job in jobs:
        flow = browse.workflow_of(job.id) or _batch_of(job, infos)
        if flow:
            found.setdefault(flow, []).append(job)
    known = {flow: info for flow in found if (info := browse.known_workflow(flow)) is not None}
    return {
        (job.queue, job.id): job._replace(flow=info)
        for flow, info in known.items()
        for job in found[flow]
        if info.counts["waiting"] or (info.callbacks and info.counts["live"] <= len(found[flow]))
    }


def _batch_of(job: LongRun, infos: Mapping[tuple[str, str], JobInfo]) -> str:
    info = infos.get((job.queue, job.id)) or get_store().get(job.queue, job.id)
    record = job_in(info) if info is not None else None
    return (record.controls.workflow if record is not None else None) or ""


def _at_limit(job: LongRun, info: JobInfo) -> LongRun:
    """Add who holds the slots of its limit, and how many jobs wait for one, if all slots are taken."""
    record = job_in(info)
    if record is None:
        return job
    key, limit = record.controls.limit_key, limit_now(record)
    if key is None or not limit:
        return job
    standing = get_store().standing(info.queue, info.id, key)
    if standing.held < limit or standing.held > len(standing.holders):
        return job
    return job._replace(holders=standing.holders, behind=standing.behind)
