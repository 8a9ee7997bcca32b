"""Enqueues periodic jobs, each run once in the fleet.  It needs no leader: the store keeps the cursor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

from django_jobs.core import registry
from django_jobs.core.values import FINISHED, Added, State
from django_jobs.enqueueing.handle import find
from django_jobs.enqueueing.request import request_for
from django_jobs.enqueueing.submit import submit
from django_jobs.exceptions import DuplicateJob, QueueFull, StoreUnavailable
from django_jobs.runtime.complaints import Complaints
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import jitter_ms, next_run
from django_jobs.schedules.entry import ScheduleEntry, check_entry
from django_jobs.schedules.gaps import Gap, note_gap
from django_jobs.schedules.listing import from_ms, to_ms
from django_jobs.schedules.missed import due_runs, missed_before
from django_jobs.schedules.rows import ScheduleRows
from django_jobs.schedules.sources import code_entries
from django_jobs.schedules.state import LastRun, ScheduleState
from django_jobs.serialization.record import has_expired
from django_jobs.stores import get_store
from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs.worker")

#: Longest time in seconds between two checks; pauses and changed rows take effect after at most this time.
LONGEST = 5.0


class Periodic:
    """The schedules as one parent process sees them.  Uses the store's clock only."""

    def __init__(self, time: Callable[[], float] = monotonic) -> None:
        self._time = time
        self._rows = ScheduleRows(time)
        #: entry → (cursor it was computed from, its next run in ms): saves computing it again.
        self._next: dict[str, tuple[ScheduleEntry, int, int]] = {}
        #: about entries that do not run.
        self._complaints = Complaints()
        #: the forms of all schedules as of the last tick.
        self._forms: set[str] = set()
        #: the runs that an earlier release has noted were looked for.
        self._has_looked = False

    def tick(self) -> float:
        """Enqueue the jobs that are due.  Returns the seconds until the next check.  Raises StoreError."""
        store = get_store()
        entries = [*code_entries(), *self._rows.entries()]
        # Read this before the clock: a schedule that began after this moment must not be taken for a new one.
        state = schedule_state.read_state(store)
        now, began = store.now(), self._time()
        state = self._note_forms(store, state, entries, now)
        if not self._has_looked:
            state, self._has_looked = _with_earlier_runs(store, state, entries), True
        round_ = _Round(store, state, now)
        waits = [self._look_after(entry, round_) for entry in entries]
        self._forget_others(entries)
        # The waits are from `now` on.  Without what this tick has taken, each run would be late by the tick before it.
        return max(0.0, min([LONGEST, *waits]) - (self._time() - began))

    def _look_after(self, entry: ScheduleEntry, round_: _Round) -> float:
        """Handle one schedule; an error in it is reported and does not affect the others."""
        try:
            wait = self._enqueue_due(entry, round_)
        except StoreUnavailable:
            raise
        except QueueFull as error:
            self._report(entry, f"{error} This run waits until the queue has room.")
            return 1.0
        except Exception as error:
            self._report(entry, f"{type(error).__name__}: {error}")
            return LONGEST
        self._complaints.is_over(entry.id)
        return wait

    def _enqueue_due(self, entry: ScheduleEntry, round_: _Round) -> float:
        store, state, now = round_.store, round_.state, round_.now
        if not entry.enabled:
            if state.since(entry) is not None:
                schedule_state.forget(store, entry)
            return LONGEST
        if state.paused_at(entry) is not None:
            return LONGEST
        check_entry(entry)
        since = state.since(entry)
        if since is None:
            schedule_state.begin(store, entry, since := now)
        upcoming = self._upcoming(entry, max(since, state.passed_over(entry)))
        if upcoming <= now:
            last = state.last_run(entry)
            cursor = max(since, state.passed_over(entry), last.at)
            runs = due_runs(entry, cursor, now)
            if runs and (gap := missed_before(entry, cursor, runs[0])):
                note_gap(store, entry.id, gap)
            for scheduled in runs:
                last = round_.enqueue(entry, scheduled, last)
            upcoming = self._remember(entry, max(since, state.passed_over(entry)), now)
        return (upcoming - now) / 1000

    def _upcoming(self, entry: ScheduleEntry, cursor: int) -> int:
        known = self._next.get(entry.id)
        if known is not None and known[:2] == (entry, cursor):
            return known[2]
        return self._remember(entry, cursor, cursor)

    def _remember(self, entry: ScheduleEntry, cursor: int, after: int) -> int:
        upcoming = to_ms(next_run(entry.cron, from_ms(after), entry.zone))
        self._next[entry.id] = (entry, cursor, upcoming)
        return upcoming

    def _note_forms(
        self, store: Store, state: ScheduleState, entries: Sequence[ScheduleEntry], now: int
    ) -> ScheduleState:
        """Note which schedules there are.  One that was removed or changed, and comes back, begins anew.

        Returns the state after it."""
        forms = {form for each in entries for form in (schedule_state.form_of(each), schedule_state.ANY + each.id)}
        state = schedule_state.drop(store, state, self._forms - forms)
        state = schedule_state.take_up(store, state, now, forms, forms - self._forms)
        # Until the rows were read, nobody knows which of them are gone.
        others = {form for form in state.forms() - forms if self._rows.are_known or ":db:" not in form}
        self._forms = forms
        return schedule_state.forget_gone(store, schedule_state.mark_gone(store, state, now, others), now)

    def _forget_others(self, entries: Sequence[ScheduleEntry]) -> None:
        gone = self._next.keys() - {entry.id for entry in entries}
        for id in gone:
            del self._next[id]

    def _report(self, entry: ScheduleEntry, problem: str) -> None:
        if self._complaints.is_new(problem, entry.id):
            logger.error("Schedule %s does not run: %s", entry.id, problem)


class _Round:
    """One tick, with the state of the store at its start."""

    def __init__(self, store: Store, state: ScheduleState, now: int) -> None:
        self.store, self.state, self.now = store, state, now

    def enqueue(self, entry: ScheduleEntry, scheduled: int, last: LastRun) -> LastRun:
        """Enqueue the job of one run, unless the last one's job must end first.  Returns the last run.

        A run is known by the id of its job, which says the schedule and the time: it is enqueued once, wherever its
        type sends its jobs now.  The end of this process between the two calls repeats a call that changes nothing."""
        if entry.overlap == "skip" and self._unfinished(last.queue, entry.job_id(last.at)):
            logger.info("Schedule %s: the job of its last run has not ended; this run is skipped", entry.id)
            return self._pass_over(entry, scheduled, last, "skipped")
        request = request_for(registry.get(entry.job), entry.args, entry.kwargs)
        request.id, request.schedule_run = entry.job_id(scheduled), (entry.id, scheduled)
        request.meta = {"schedule": entry.id}
        request.on_commit = False
        # A full queue must not block the worker that would empty it.
        request.block_timeout = 0
        if put_off := jitter_ms(entry.id, scheduled, entry.jitter):
            request.run_at = scheduled + put_off
        request.queue = entry.queue or request.queue
        if entry.priority is not None:
            request.priority = entry.priority
        if entry.expires_in is not None:  # counted from when the job may run, which is later for a missed run
            request.expires_at = max(self.now, request.run_at) + round(entry.expires_in * 1000)
        try:
            handle = submit(request)
        except DuplicateJob:
            logger.info("Schedule %s: an equal unique job waits; this run is skipped", entry.id)
            handle = None
        if handle is None or handle.added not in (Added.ADDED, Added.EXISTS, Added.ALREADY_RUN):
            # An equal unique job waits: this run is done, and must not come again when that job has run.
            return self._pass_over(entry, scheduled, last, "twin")
        last = LastRun(scheduled, handle.queue)
        schedule_state.note_runs(self.store, {entry.id: last})
        return last

    def _pass_over(self, entry: ScheduleEntry, scheduled: int, last: LastRun, why: str) -> LastRun:
        schedule_state.pass_over(self.store, entry, scheduled)
        note_gap(self.store, entry.id, Gap(scheduled, scheduled, why))
        return last

    def _unfinished(self, queue: str, id: str) -> bool:
        if not queue:
            return False
        # Its queue may have forgotten by now where a retry has moved it.
        info = self.store.find([queue], id) or find(id)
        if info is None or info.state is State.SUCCEEDED:
            return False
        if info.state in FINISHED:  # if it was killed, its process may not have ended the attempt
            return self.store.standing(info.queue, id).stopping != ""
        return not has_expired(info, self.store.now())


def _with_earlier_runs(store: Store, state: ScheduleState, entries: Sequence[ScheduleEntry]) -> ScheduleState:
    """Note the last runs that are noted in queues only, as an earlier release does it.  Returns the state after it."""
    unknown = {entry.id for entry in entries if state.since(entry) is not None and not state.last_run(entry).at}
    found = store.last_runs(store.queues()) if unknown else {}
    runs = {id: LastRun(*run) for id, run in found.items() if id in unknown}
    if not runs:
        return state
    schedule_state.note_runs(store, runs)
    return ScheduleState(state.facts | {f"fired:{id}": list(run) for id, run in runs.items()})
