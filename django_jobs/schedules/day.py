"""Last night and tonight: what became of the scheduled times of the last 24 hours, and which come in the next 24."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from django.utils.translation import gettext as translated
from django.utils.translation import gettext_noop as _

from django_jobs import archive
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.exceptions import JobsError, StoreError
from django_jobs.schedules import gaps
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import jitter_ms, latest_runs, runs_between
from django_jobs.schedules.entry import ScheduleEntry, check_entry
from django_jobs.schedules.gaps import Gap
from django_jobs.schedules.listing import from_ms, to_ms
from django_jobs.schedules.missed import LATE
from django_jobs.stores import get_store

DAY = timedelta(days=1)
#: Times of a schedule that are shown in each direction.
SHOWN = 24

#: A time before the schedule had its present form, or was switched on.
BEFORE = "before"
#: What became of a time that has no job in the store or the archive → the sentence.
SENTENCES: Mapping[str, str] = {
    "gone": _("It ran; its job has left the history."),
    "missed": _("No worker enqueued it in time, or its queue was full."),
    "skipped": _("It was skipped: the job of an earlier run had not ended."),
    "twin": _("It was skipped: an equal unique job was waiting."),
    "paused": _("The schedule was paused."),
    "due": _("It is about to be enqueued."),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One scheduled time of the last day."""

    #: ms
    at: int
    #: the state of its job, or a key of SENTENCES.
    ended: str
    #: of its job; "" if there is none.
    queue: str = ""
    job: str = ""

    @property
    def says(self) -> str:
        """Why there is no job, in the active language; "" if there is one."""
        return translated(SENTENCES[self.ended]) if self.ended in SENTENCES else ""


@dataclass(frozen=True, slots=True)
class Day:
    """One schedule around this moment."""

    entry: ScheduleEntry
    #: oldest first.
    last: Sequence[Run] = ()
    #: ms, with the jitter; none while it is paused or switched off.
    next: Sequence[int] = ()
    #: there were earlier times, and there will be later ones, than these SHOWN.
    earlier: bool = False
    later: bool = False
    #: why it cannot run; "" = it can.
    problem: str = ""
    paused: bool = False

    def payload(self) -> dict[str, Any]:
        """Return it for programs."""
        last = [
            {"at": _iso(run.at), "ended": run.ended, "queue": run.queue or None, "job": run.job or None}
            for run in self.last
        ]
        return {
            "last_day": last,
            "next_day": [_iso(at) for at in self.next],
            "earlier": self.earlier,
            "later": self.later,
        }


def days(entries: Sequence[ScheduleEntry]) -> list[Day]:
    """Return what these schedules did in the last 24 hours, and will do in the next 24.

    Reads the jobs of their runs: one call for each queue.  Raises StoreError."""
    store = get_store()
    state, noted, now = schedule_state.read_state(store), store.get_document(gaps.DOCUMENT), from_ms(store.now())
    found = [_times(entry, state, noted, now) for entry in entries]
    wanted: dict[str, list[str]] = {}
    for day, queues in found:
        for queue in queues:
            wanted.setdefault(queue, []).extend(day.entry.job_id(run.at) for run in day.last)
    states: dict[str, tuple[str, str]] = {}
    for queue, ids in wanted.items():
        known = {info.id: info for info in store.get_many(queue, ids, moved=True)}
        left = [id for id in ids if id not in known]
        if left and get_settings().archive is not None:
            known |= {id: infos[0] for id, infos in archive.found_many(left).items()}
        states |= {id: (info.queue, info.state.value) for id, info in known.items()}
    return [_with_jobs(day, states) for day, _ in found]


def _times(
    entry: ScheduleEntry, state: schedule_state.ScheduleState, noted: Mapping[str, Any], now: datetime
) -> tuple[Day, set[str]]:
    """Return a schedule with its times, as if no job were known, and the queues in which its jobs may be."""
    try:
        check_entry(entry)
        last, paused = state.last_run(entry), state.paused_at(entry)
        before = _latest(entry, now)
        after = list(islice(runs_between(entry.cron, now, now + DAY, entry.zone), SHOWN + 1))
        own = gaps.gaps_of(noted, entry.id)
        facts = last.at, state.passed_over(entry), state.since(entry) or 0, paused, to_ms(now)
        runs = [Run(at, _without_job(at, own, *facts)) for at in map(to_ms, before)]
    except StoreError:
        raise
    except JobsError as error:
        return Day(entry, problem=str(error)), set()
    is_on = entry.enabled and paused is None
    times = [at + jitter_ms(entry.id, at, entry.jitter) for at in map(to_ms, after[:SHOWN])] if is_on else []
    queues = {last.queue, entry.queue or registry.get(entry.job).placed(entry.args, entry.kwargs)[0]} - {""}
    day = Day(entry, runs[-SHOWN:], times, len(runs) > SHOWN, is_on and len(after) > SHOWN, "", paused is not None)
    return day, queues


def _latest(entry: ScheduleEntry, now: datetime) -> list[datetime]:
    """Return the times of the last day, the last SHOWN and one before them if there are more."""
    first = list(islice(runs_between(entry.cron, now - DAY, now, entry.zone), SHOWN + 1))
    if len(first) <= SHOWN:
        return first
    width = max(b - a for a, b in pairwise(first))
    near = list(runs_between(entry.cron, max(now - DAY, now - width * (SHOWN + 2)), now, entry.zone))
    if len(near) > SHOWN:
        return near[-SHOWN - 1 :]
    return latest_runs(entry.cron, now - DAY, now, entry.zone, SHOWN + 1)  # they come in bursts


def _without_job(at: int, own: Sequence[Gap], last: int, passed: int, since: int, paused: int | None, now: int) -> str:
    """Return the reason why no job is known for a scheduled time."""
    if paused is not None and at >= paused:
        return "paused"
    if why := next((gap.why for gap in own if gap.first <= at <= gap.last), ""):
        return why
    if at <= since:
        return BEFORE
    if at <= max(last, passed):
        return "gone" if at != passed else "skipped"
    return "missed" if from_ms(now) - from_ms(at) > LATE else "due"


def _with_jobs(day: Day, states: Mapping[str, tuple[str, str]]) -> Day:
    def known(run: Run) -> Run:
        id = day.entry.job_id(run.at)
        queue, state = states.get(id, ("", ""))
        return Run(run.at, state, queue, id) if state else run

    return replace(day, last=[run for run in map(known, day.last) if run.ended != BEFORE])


def _iso(at: int) -> str:
    return from_ms(at).isoformat()
