"""Why a job does not start: from facts to one sentence.  Pure: reads no store, no settings and no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.utils.translation import gettext
from django.utils.translation import gettext as translated
from django.utils.translation import gettext_noop as _

from django_jobs.browse.health import knowing, unserved
from django_jobs.core.standing import Standing
from django_jobs.core.values import FINISHED, Controls, JobInfo, Pause, State, WorkerInfo
from django_jobs.serialization.holders import is_remote, shown, worker_of

#: Names in one sentence.
NAMED = 5

#: Cause → its sentence.  Times are in `times` of a reason.
SENTENCES: Mapping[str, str] = {
    "scheduled": _("It is scheduled for %(at)s."),
    "retry": _("Its last attempt failed; the next begins at %(at)s."),
    "store_read_only": _("The store takes no changes now, so no worker can claim a job: %(said)s."),
    "all_paused": _("All queues are paused (%(pause)s)."),
    "queue_paused": _("Queue %(queue)s is paused (%(pause)s)."),
    "type_paused": _("Job type %(name)s is paused in queue %(queue)s (%(pause)s)."),
    "stop_not_ended": _("Its last attempt was killed, and %(worker)s has not ended it yet; the job starts after that."),
    "limit": _("The concurrency limit %(key)s is reached: %(limit)s at once, and running now: %(jobs)s."),
    "limit_turn": _(
        "Its concurrency limit %(key)s (%(limit)s at once) has room, and jobs that have waited longer take it first."
    ),
    "not_fetched": _(
        "Jobs named %(name)s are fetched over HTTP, and no remote worker has asked queue %(queue)s for work "
        "in the last minute."
    ),
    "fetched": _("A remote worker fetches jobs from queue %(queue)s; jobs that it gets before this one: %(ahead)s."),
    "no_workers": _("No worker runs."),
    "no_worker_takes_queue": _("No worker takes queue %(queue)s. Workers that run: %(workers)s."),
    "workers_quiet": _("The workers of queue %(queue)s have been told to take no more jobs: %(workers)s."),
    "queue_left_out": _(
        "The workers of queue %(queue)s are too slow to renew all their leases and have left this queue out: "
        "%(workers)s."
    ),
    "unknown_format": _(
        "It was written in format %(format)s by a newer django_jobs, which no worker of queue %(queue)s reads: "
        "%(workers)s."
    ),
    "unknown_name": _("No worker of queue %(queue)s knows a job named %(name)s: %(workers)s."),
    "queue_limit": _("Queue %(queue)s is at its limit: %(limit)s may run at once, and %(running)s run."),
    "higher_queue": _("Workers take queues with a higher priority first, and these have work: %(queues)s."),
    "suspect": _(
        "A worker died while it held this job, so it runs alone, one such job at a time on each worker. "
        "Jobs before it: %(ahead)s."
    ),
    "higher_priority": _("Jobs before it in its queue: %(ahead)s, of which %(higher)s have a higher priority."),
    "behind": _("Jobs before it in its queue: %(ahead)s."),
    "let_in": _("What it waited for is over; a worker takes it back into the queue within a minute."),
    "due": _("It is due; the next worker that asks queue %(queue)s for work takes it into the queue."),
    "next": _(
        "It is the next of its queue, and starts as soon as a worker is free. Running in the queue: %(running)s."
    ),
    "lease_ended": _(
        "It was started by %(worker)s, whose lease has ended. When another worker has taken it back, it is queued "
        "again, unless it is delivered at most once."
    ),
    "running": _("It has started: %(worker)s runs it."),
    "running_remotely": _("It has started: a remote worker runs it."),
    "running_remotely_by": _("It has started: the remote worker %(worker)s runs it."),
    "succeeded": _("It has ended: it succeeded."),
    "dead": _("It has ended: it is dead and is not tried again by itself."),
    "killed_not_ended": _("It was killed and is dead, and %(worker)s has not ended its attempt yet."),
    "cancelled": _("It has ended: it was cancelled."),
    "expired": _("It has ended: it had not started when its time was over."),
}

NOWHERE = Standing()


@dataclass(frozen=True, slots=True)
class ReasonFacts:
    """All that an answer depends on.  Times in ms by the store's clock."""

    info: JobInfo
    now: int
    #: its name; format of its record; PLAIN if the record cannot be read.
    name: str
    format: int
    controls: Controls
    enqueued_at: int = 0
    standing: Standing = NOWHERE
    #: its concurrency key as users may see it.
    shown_key: str = ""
    paused: Pause | None = None
    type_paused: Pause | None = None
    #: every queue is paused.
    all_paused: bool = False
    workers: Sequence[WorkerInfo] = ()
    #: digests of workers that are known not to know its name; None: no worker has met it.
    unknown_to: frozenset[str] | None = None
    #: MAX_CONCURRENCY of its queue; 0 = none.
    max_running: int = 0
    #: queues of a higher priority that have work, if workers take queues strictly by priority.
    higher_queues: Sequence[str] = ()
    #: a remote type whose jobs are fetched; when a remote worker last asked for some (ms; 0 = not known).
    pulled: bool = False
    asked_at: int = 0
    #: why the store takes no changes; "" = it does.
    refusal: str = ""


class Reason(NamedTuple):
    """Why a job does not start, or that it has started or ended."""

    #: a key of SENTENCES.
    cause: str
    values: Mapping[str, Any] = {}
    #: ms: since when this has been so; 0 = not known.
    since: int = 0
    #: ms: when it ends without a resume; 0 = not known.
    until: int = 0
    #: where to go: ("queue", name), ("job", queue, id), ("jobs", state), ("workers",); () = nowhere.
    link: tuple[str, ...] = ()

    def text(self, moment: Callable[[int], str]) -> str:
        """Return the sentence in the active language; `moment` writes a time (ms)."""
        values = dict(self.values)
        if "at" in values:
            values["at"] = moment(values["at"])
        if "pause" in values:
            values["pause"] = said_of(values["pause"], moment)
        return translated(SENTENCES[self.cause]) % values


def said_of(pause: Pause, moment: Callable[[int], str]) -> str:
    """Return who paused it, until when, and why."""
    parts = [gettext("by %(user)s") % {"user": pause.by}] if pause.by else []
    parts.append(
        gettext("until %(at)s") % {"at": moment(pause.until)} if pause.until else gettext("until it is resumed")
    )
    return ", ".join(parts) + (f": {pause.reason}" if pause.reason else "")


def reason_of(facts: ReasonFacts) -> Reason:
    """Return the first reason that applies: first the lasting ones, then those of this moment, then its turn."""
    info = facts.info
    if info.state is State.DEAD and facts.standing.stopping:
        return Reason("killed_not_ended", {"worker": facts.standing.stopping}, since=info.at, link=("workers",))
    if info.state in FINISHED:
        return Reason(info.state.value, since=info.at)
    if info.state is State.RUNNING:
        return _started(facts)
    if info.at > facts.now:  # scheduled, retry
        return Reason(info.state.value, {"at": info.at}, until=info.at)
    return _closed(facts) or _blocked(facts) or _nobody(facts) or _turn(facts)


def _started(facts: ReasonFacts) -> Reason:
    info, ends = facts.info, facts.standing.lease_ends
    values = {"worker": shown(info.worker)}
    if ends <= facts.now:
        return Reason("lease_ended", values, since=ends, link=("workers",))
    if is_remote(info.worker):
        if named := worker_of(info.worker):
            return Reason("running_remotely_by", {"worker": named}, since=info.at)
        return Reason("running_remotely", since=info.at)
    return Reason("running", values, since=info.at, link=("workers",))


def _closed(facts: ReasonFacts) -> Reason | None:
    """The store, a pause."""
    queue = facts.info.queue
    if facts.refusal:
        return Reason("store_read_only", {"said": facts.refusal.rstrip(".")})
    pause = facts.paused or facts.type_paused
    if pause is None:
        return None
    cause = "type_paused" if facts.paused is None else "all_paused" if facts.all_paused else "queue_paused"
    values = {"pause": pause, "queue": queue, "name": facts.name}
    return Reason(cause, values, pause.since, pause.until, ("queues",) if facts.all_paused else ("queue", queue))


def _blocked(facts: ReasonFacts) -> Reason | None:
    """What this job waits for, and no other must."""
    info, standing = facts.info, facts.standing
    if standing.blocked_by == "stop":
        return Reason("stop_not_ended", {"worker": standing.stopping or "?"}, link=("workers",))
    limit = facts.controls.limit
    if facts.controls.limit_key is not None and 0 < limit <= standing.held:
        more = ", …" if standing.held > len(standing.holders) else ""
        link = ("job", info.queue, standing.holders[0]) if standing.holders else ("queue", info.queue)
        values = {"key": facts.shown_key, "limit": limit, "jobs": ", ".join(standing.holders) + more}
        values["holders"] = standing.holders
        return Reason("limit", values, link=link)
    return None


def _nobody(facts: ReasonFacts) -> Reason | None:
    """No worker can take it."""
    queue, standing = facts.info.queue, facts.standing
    if facts.pulled:
        if facts.now - facts.asked_at < 60_000:
            return _at_limit(facts) or Reason("fetched", {"queue": queue, "ahead": standing.ahead}, since=_since(facts))
        return Reason("not_fetched", {"name": facts.name, "queue": queue}, since=facts.asked_at)
    cause, concerned = unserved(queue, facts.workers)
    if cause == "no_workers":
        return Reason(cause, since=_since(facts), link=("workers",))
    since = 0
    if not cause and not knowing(concerned, facts.unknown_to or frozenset()):
        cause, since = "unknown_format" if facts.format > 1 else "unknown_name", facts.info.parked_at
    if not cause:
        return None
    values = {"queue": queue, "name": facts.name, "format": facts.format, "workers": _named(concerned)}
    link = ("queue", queue) if cause == "no_worker_takes_queue" else ("workers",)
    return Reason(cause, values, since, link=link)


def _turn(facts: ReasonFacts) -> Reason:
    """Workers may take it: when its turn comes."""
    info, standing, since = facts.info, facts.standing, _since(facts)
    values = {"queue": info.queue, "ahead": standing.ahead, "higher": standing.higher, "running": standing.running}
    link = ("queue", info.queue)
    if limited := _at_limit(facts):
        return limited
    if standing.blocked_by == "limit":
        return Reason("limit_turn", {"key": facts.shown_key, "limit": facts.controls.limit}, link=link)
    if info.state is State.BLOCKED:
        return Reason("let_in", link=link)
    if facts.higher_queues:
        names = ", ".join(facts.higher_queues[:NAMED])
        return Reason("higher_queue", {"queues": names}, since, link=("queue", facts.higher_queues[0]))
    if info.state is not State.QUEUED:
        return Reason("due", values, since=info.at, link=link)
    if standing.lane == "suspect":
        return Reason("suspect", values, since, link=link)
    cause = "higher_priority" if standing.higher else "behind" if standing.ahead else "next"
    return Reason(cause, values, since, link=link)


def _at_limit(facts: ReasonFacts) -> Reason | None:
    queue, running = facts.info.queue, facts.standing.running
    if not 0 < facts.max_running <= running:
        return None
    values = {"queue": queue, "limit": facts.max_running, "running": running}
    return Reason("queue_limit", values, since=_since(facts), link=("queue", queue))


def _since(facts: ReasonFacts) -> int:
    """Since when the job can run."""
    if facts.info.state is State.BLOCKED:
        return 0
    return facts.info.at or max(facts.info.since, facts.enqueued_at)


def _named(workers: Sequence[WorkerInfo]) -> str:
    """Return the names of workers, each with its version if it says so."""
    names = [f"{each.name} ({version})" if (version := each.info.get("version")) else each.name for each in workers]
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
