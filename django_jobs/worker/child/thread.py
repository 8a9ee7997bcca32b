"""One thread of a child: claims a batch for itself, runs it job by job, settles it.

Leader and followers: the thread that holds the fetch lock claims (and waits, when there is nothing); the others run
what they claimed before.  No job is ever handed from one thread to another, so nothing waits in between.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Succeeded
from django_jobs.core.values import Claim, Claimed
from django_jobs.exceptions import StoreError
from django_jobs.execution.executor import Prepared
from django_jobs.runtime import database_connections
from django_jobs.runtime.faults import end_process
from django_jobs.worker.shared_memory import Thread as Notes

if TYPE_CHECKING:
    from django_jobs.worker.child.process import Child

logger = logging.getLogger("django_jobs.worker")
T = TypeVar("T")


class Runner:
    """A thread, and what the batch monitor may see and take of it.

    `waiting` and `done` are emptied from both sides: deque.popleft is one step, so each item has one taker.
    """

    def __init__(self, child: Child, number: int, fetch_lock: Lock) -> None:
        self.child, self.fetch_lock = child, fetch_lock
        #: what the parent sees of this thread.
        self.notes = Notes(child.shared, number)
        #: claimed in one call and not begun, each with its number in `notes`.
        self.waiting: deque[tuple[int, Claim]] = deque()
        #: offered back, which the store did not confirm: it may have them, so they are never begun.
        self.offered: deque[Claim] = deque()
        #: succeeded, not settled.
        self.done: deque[Attempted] = deque()
        self._settling = Lock()
        #: how many of the batch have run.
        self.ran = 0
        #: the job that runs; since when it (and its batch) occupies the thread, monotonic seconds.
        self.current: Prepared | None = None
        self.since = self.batch_since = 0.0
        #: False only where nothing would be lost if the process ended now.
        self.busy = False
        self.thread = Thread(target=self._run, name=f"runner {number}", daemon=True)

    def _run(self) -> None:
        database_connections.this_thread_runs_jobs()
        try:
            while not self.child.gate.final:
                self._turn()
        except BaseException:
            end_process()

    def _turn(self) -> None:
        """Claim once, run what came."""
        child, gate = self.child, self.child.gate
        if self.offered:  # the store did not take it back when it should have
            self.give_back()
        if gate.closed or (child.reports is not None and not child.settler.is_idle):
            # One job at a time means one: were it killed, the one that is not yet settled would run again with it.
            if gate.closed:
                with self.fetch_lock:
                    child.fetcher.hand_over()
            gate.ended.wait(0.1)
            return
        fetcher, may_run = child.fetcher, True
        try:
            with self.fetch_lock:
                if gate.closed:
                    return
                try:
                    fetched = fetcher.fetch()
                    self.busy = fetched is not None
                    if fetched is not None:
                        self._take(*fetched)
                        child.count_claimed(len(fetched[1].claims))
                        may_run = child.may_run(fetched[1].claims)
                        if fetched[1].claims and all(runner.busy for runner in child.runners):
                            fetcher.hand_over(keep=fetched[0])
                    if gate.closed:
                        fetcher.hand_over()
                finally:
                    child.shared.asks_no_more()
                    fetcher.claiming = False
                if child.retry_state.is_on:
                    child.retry_state.worked()
        except StoreError as error:
            gate.ended.wait(child.retry_state.failed(error))
            return
        if fetched is not None and not may_run:
            self.give_back()
        elif fetched is not None and fetched[1].claims:
            self._run_batch(*fetched)
            child.trial_is_over()
            fetcher.picker.made_room(fetched[0])
        self.busy = False

    def _take(self, queue: str, claimed: Claimed) -> None:
        self.since = self.batch_since = monotonic()
        self.ran = 0
        self.waiting.extend(self.notes.takes(queue, claimed.claims))

    def _run_batch(self, queue: str, claimed: Claimed) -> None:
        child, gate = self.child, self.child.gate
        started = self.batch_since
        child.batch_monitor.look()
        while not gate.draining:
            try:
                number, claim = self.waiting.popleft()
            except IndexError:
                break
            if not self.notes.begins(number):
                # This process had not answered for a while: its parent has handed back what was not begun.
                self.waiting.appendleft((number, claim))
                break
            self._run_one(claim, claimed.left)
            self.ran += 1
        child.sizer.observe(queue, monotonic() - started, self.ran)
        self.give_back()
        self.settle_done()
        if child.reports is not None:
            child.reports.ended(claimed.claims)

    def _run_one(self, claim: Claim, left: int) -> None:
        child = self.child
        self.since = monotonic()
        reports = child.reports
        # An alone child says what it begins: from then on the time limit counts, for the loading of arguments too.
        begins = None if reports is None else lambda job: reports.started(claim, job, left)
        try:
            prepared = child.executor.prepare(claim, child.store, begins)
            if isinstance(prepared, Attempted):
                attempted = prepared
            else:
                self.current = prepared
                if prepared.plan.is_async and child.loop is not None:
                    child.loop.submit(prepared)
                    return
                attempted = child.executor.run_here(prepared)
        finally:
            self.current = None
            if reports is not None:
                reports.returned()
        if isinstance(attempted.outcome, Succeeded):
            self.done.append(attempted)
        else:
            child.settler.settle_now([attempted])

    # -- the batch monitor calls these, too ------------------------------------------

    def give_back(self) -> None:
        """Hand back what is claimed and not begun."""
        if not self.waiting and not self.offered:
            return
        batch, by_queue = self.notes.batch, dict[str, list[Claim]]()
        for claim in [*_take_all(self.offered), *(claim for _, claim in _take_all(self.waiting))]:
            by_queue.setdefault(claim.queue, []).append(claim)
        for queue, claims in by_queue.items():
            try:
                self.child.store.release(queue, claims)
                self.child.holding.released(claims)
            except StoreError as error:
                logger.warning("%d claimed jobs could not be handed back: %s", len(claims), error)
                batch = -1
                if not self.child.gate.draining:
                    self.offered.extend(claims)
        self.notes.gave_back(batch)

    def settle_done(self) -> None:
        """Settle what has succeeded so far.

        Who comes second waits for the call of the first: a thread whose results were on their way would look idle, and
        its process could end before they are sent."""
        with self._settling:
            if self.done:
                self.child.settler.settle_now(_take_all(self.done))


def _take_all(items: deque[T]) -> list[T]:
    taken = []
    try:
        while True:
            taken.append(items.popleft())
    except IndexError:
        return taken
