"""Enqueues periodic jobs, each run once in the fleet.  It needs no leader: the store keeps the cursor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

from django_jobs.core import registry
from django_jobs.core.values import FINISHED, Added
from django_jobs.enqueue.request import request_for
from django_jobs.enqueue.submit import submit
from django_jobs.exceptions import QueueFull, StoreError
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import jitter_ms, next_run
from django_jobs.schedules.entry import Entry, check_entry
from django_jobs.schedules.listing import from_ms
from django_jobs.schedules.missed import due_runs
from django_jobs.schedules.rows import ScheduleRows
from django_jobs.schedules.sources import code_entries
from django_jobs.schedules.state import ScheduleState
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
        self._next: dict[str, tuple[Entry, int, int]] = {}
        #: entry id → the last problem that was logged for it.
        self._reported: dict[str, str] = {}

    def tick(self) -> float:
        """Enqueue the jobs that are due.  Returns the seconds until the next check.  Raises StoreError."""
        store = get_store()
        entries = [*code_entries(), *self._rows.entries()]
        # Read this before the clock: a schedule that began after this moment must not be taken for a new one.
        state = schedule_state.read_state(store)
        now, began = store.now(), self._time()
        round_ = _Round(store, state, now)
        waits = [self._look_after(entry, round_) for entry in entries]
        self._forget_others(entries)
        # The waits are from `now` on.  Without what this tick has taken, each run would be late by the tick before it.
        return max(0.0, min([LONGEST, *waits]) - (self._time() - began))

    def _look_after(self, entry: Entry, round_: _Round) -> float:
        """Handle one schedule; an error in it is reported and does not affect the others."""
        try:
            wait = self._enqueue_due(entry, round_)
        except StoreError:
            raise
        except QueueFull as error:
            self._report(entry, f"{error} This run waits until the queue has room.")
            return 1.0
        except Exception as error:
            self._report(entry, f"{type(error).__name__}: {error}")
            return LONGEST
        self._reported.pop(entry.id, None)
        return wait

    def _enqueue_due(self, entry: Entry, round_: _Round) -> float:
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
            last = round_.last_runs(registry.get(entry.job).queue).get(entry.id, 0)
            cursor = max(since, state.passed_over(entry), last)
            for scheduled in due_runs(entry, cursor, now):
                last = round_.enqueue(entry, scheduled, last)
            upcoming = self._remember(entry, max(since, state.passed_over(entry)), now)
        return (upcoming - now) / 1000

    def _upcoming(self, entry: Entry, cursor: int) -> int:
        known = self._next.get(entry.id)
        if known is not None and known[:2] == (entry, cursor):
            return known[2]
        return self._remember(entry, cursor, cursor)

    def _remember(self, entry: Entry, cursor: int, after: int) -> int:
        upcoming = int(next_run(entry.cron, from_ms(after), entry.zone).timestamp()) * 1000
        self._next[entry.id] = (entry, cursor, upcoming)
        return upcoming

    def _forget_others(self, entries: Sequence[Entry]) -> None:
        gone = self._next.keys() - {entry.id for entry in entries}
        for id in gone:
            del self._next[id]

    def _report(self, entry: Entry, problem: str) -> None:
        """Log a problem once, and again only when it changes: a tick happens every few seconds."""
        if self._reported.get(entry.id) != problem:
            self._reported[entry.id] = problem
            logger.error("Schedule %s does not run: %s", entry.id, problem)


class _Round:
    """One tick, with the state of the store at its start."""

    def __init__(self, store: Store, state: ScheduleState, now: int) -> None:
        self.store, self.state, self.now = store, state, now
        self._last_runs: dict[str, dict[str, int]] = {}

    def last_runs(self, queue: str) -> dict[str, int]:
        """Return schedule id → last run in ms; read once per tick, and only when something is due."""
        if queue not in self._last_runs:
            self._last_runs[queue] = self.store.last_runs(queue)
        return self._last_runs[queue]

    def enqueue(self, entry: Entry, scheduled: int, last: int) -> int:
        """Enqueue the job of one run, unless the last one's job must end first.  Returns the time of the last run."""
        definition = registry.get(entry.job)
        if entry.overlap == "skip" and self._unfinished(definition.queue, entry.job_id(last)):
            logger.info("Schedule %s: the job of its last run has not ended; this run is skipped", entry.id)
            schedule_state.pass_over(self.store, entry, scheduled)
            return last
        request = request_for(definition, entry.args, entry.kwargs)
        request.id, request.schedule_run = entry.job_id(scheduled), (entry.id, scheduled)
        request.meta = {"schedule": entry.id}
        request.on_commit = False
        # A full queue must not block the worker that would empty it.
        request.block_timeout = 0
        if put_off := jitter_ms(entry.id, scheduled, entry.jitter):
            request.run_at = scheduled + put_off
        added = submit(request).added
        if added not in (Added.ADDED, Added.ALREADY_RUN):
            # An equal unique job waits: this run is done, and must not come again when that job has run.
            schedule_state.pass_over(self.store, entry, scheduled)
        return scheduled

    def _unfinished(self, queue: str, id: str) -> bool:
        info = self.store.get(queue, id)
        return info is not None and info.state not in FINISHED
