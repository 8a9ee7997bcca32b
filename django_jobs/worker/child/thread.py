"""One thread of a child: claims a batch for itself, runs it job by job, settles it.

The thread that holds the fetch lock claims, or waits while there are no jobs; the others run the jobs they claimed
before.  No job is ever passed from one thread to another, so no job waits for that.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from functools import partial
from math import inf
from threading import Lock, Thread, get_native_id
from time import monotonic
from typing import TypeVar

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import HandedOver, Succeeded
from django_jobs.core.values import Claim, Claimed
from django_jobs.events.announce import forget_locals
from django_jobs.exceptions import StoreError
from django_jobs.execution.executor import Prepared
from django_jobs.runtime.faults import faults_end_process
from django_jobs.worker.batch_memory import THREAD_ID
from django_jobs.worker.child.parts import ChildParts
from django_jobs.worker.shared_memory import Thread as Notes

logger = logging.getLogger("django_jobs.worker")
T = TypeVar("T")

#: How many attempts that did not succeed may wait to be settled; and how many one counts as whose exception keeps the
#: job's local variables, for receivers of signals.
MOST_FAILURES, HEAVY = 100, 20


class Runner:
    """A thread, and what the batch monitor may read and take from it.

    Both the thread and the batch monitor take items from `waiting` and `done`: deque.popleft is atomic, so each item is
    taken once.
    """

    def __init__(self, child: ChildParts, number: int, fetch_lock: Lock) -> None:
        self.child, self.fetch_lock = child, fetch_lock
        #: this thread's part of the shared memory, which the parent reads.
        self.notes = Notes(child.shared, number)
        #: claims of one call whose jobs are not begun, each with its number in `notes`.
        self.waiting: deque[tuple[int, Claim]] = deque()
        #: claims whose return the store did not confirm: it may have taken them back, so their jobs are never begun.
        self.offered: deque[Claim] = deque()
        #: attempts that ended and are not settled.
        self.done: deque[Attempted] = deque()
        #: how many of these did not succeed: about so many, as two threads count.
        self.failures = 0
        self._settling, self._giving_back = Lock(), Lock()
        #: how many jobs of the batch have run.
        self.ran = 0
        #: the running job; when it began, and when its batch began (monotonic seconds).
        self.current: Prepared | None = None
        self.since = self.batch_since = 0.0
        #: no job begins after that if our parent has not renewed the leases again (monotonic seconds).
        self.begins_until = 0.0
        #: False only if the process could end now without losing anything of this thread.
        self.busy = False
        self.thread = Thread(target=self._run, name=f"runner {number}", daemon=True)

    def _run(self) -> None:
        self.notes.memory.words[THREAD_ID] = get_native_id()
        with faults_end_process():
            while not self.child.gate.final:
                self._turn()
            self._end_batch()
            self.busy = False

    def _turn(self) -> None:
        """Claim once, and run the claimed jobs."""
        child, gate = self.child, self.child.gate
        if self.offered:  # an earlier attempt to hand these back was not confirmed
            self.give_back()
        closed = gate.closed or child.fetcher.is_forsaken
        if closed or (child.reports is not None and not child.settler.is_idle):  # as in _run_batch
            self._end_batch()
            self.busy = False
            if closed:
                with self.fetch_lock:
                    child.fetcher.hand_over()
                if child.reports is not None:
                    child.reports.waits()
            gate.ended.wait(0.1)
            return
        fetcher, may_run = child.fetcher, True
        try:
            with self.fetch_lock:
                if gate.closed:
                    return
                try:
                    fetched = self._fetch() if self.done else fetcher.fetch()
                    self.busy = fetched is not None
                    if fetched is not None:
                        self._take(*fetched)
                        child.count_claimed(len(fetched[1].claims))
                        if [claim for claim in fetched[1].claims if claim.suspect]:
                            may_run = child.permission.admits()
                        if fetched[1].claims and all(runner.busy for runner in child.runners):
                            fetcher.hand_over(keep=fetched[0])
                    if gate.closed:
                        fetcher.hand_over()
                finally:
                    child.shared.end_claim()
                    fetcher.claiming = False
                if child.retry_state.is_on:
                    child.retry_state.worked()
        except StoreError as error:
            self.busy = False
            gate.ended.wait(child.retry_state.failed(error))
            return
        if fetched is not None and not may_run:
            self.give_back()
        elif fetched is not None and fetched[1].claims:
            self._run_batch(*fetched)
            if child.permission.is_on:
                child.permission.is_over()
            fetcher.picker.made_room(fetched[0])
        self.busy = bool(self.done)

    def _fetch(self) -> tuple[str, Claimed] | None:
        """Claim, and settle the last batch in the same round trip."""
        settler, fetcher = self.child.settler, self.child.fetcher
        with self._settling:
            attempts = self._take_done()
            completion = settler.completion_of(attempts)
            if completion is None:
                settler.settle_now(attempts)
                return None
            try:
                fetched = fetcher.fetch(completion)
            finally:
                settler.settled(attempts, completion)
                self._note_end()
        if fetched is not None and not settler.is_idle:
            # These ends are not recorded, and what is noted of them must stay.  So the claimed jobs are handed back.
            self.offered.extend(fetched[1].claims)
            self.give_back()
            return None
        return fetched

    def _take(self, queue: str, claimed: Claimed) -> None:
        self.since = self.batch_since = monotonic()
        self.ran = 0
        self.waiting.extend(self.notes.note_claims(queue, claimed.claims, claimed.left))
        if claimed.claims and self.child.reports is not None:
            self.child.reports.works()

    def _run_batch(self, queue: str, claimed: Claimed) -> None:
        child, gate = self.child, self.child.gate
        # Lists, here and elsewhere for each claim: a generator is entered again for each job.
        they_wait = [claim for claim in claimed.claims if claim.has_to_wait]
        may_begin = all(self._may_begin(claim) for claim in they_wait)
        started, alone = self.batch_since, child.reports is not None
        if not child.batch_begins.is_set():
            child.batch_begins.set()
        while may_begin and not gate.draining:
            # One job at a time includes its settling: otherwise, if the next job were killed, this one would run again.
            if alone and not child.settler.is_idle:
                break
            self.since = monotonic()
            if self.since > self.begins_until:
                self.begins_until = child.fetcher.lease_ends
                if self.since > self.begins_until:
                    break
            try:
                number, claim = self.waiting.popleft()
            except IndexError:
                break
            if not self.notes.begin_job(number):
                # This process did not answer for a while: its parent has handed back the jobs that were not begun.
                self.waiting.appendleft((number, claim))
                break
            self._run_one(number, claim)
            self.ran += 1
        child.sizer.observe(queue, monotonic() - started, self.ran)
        self.give_back()
        if not self._settles_with_next_claim(claimed):
            self._end_batch()
            if child.reports is not None and they_wait:
                child.reports.waits()

    def _settles_with_next_claim(self, claimed: Claimed) -> bool:
        """May the ends of this batch wait for the next claim, which follows at once?  Jobs that are claimed one by one
        need one round trip each then, not two.

        Only in an alone child: there the ends are noted in memory that its parent can read, and no other thread claims.
        Not if it ran a suspect: when that is over, another worker may start one."""
        child = self.child
        return (
            child.reports is not None
            and bool(self.done)
            and not (child.gate.closed or self.offered)
            and not any(claim.suspect for claim in claimed.claims)
            and child.settler.is_idle
            and child.fetcher.expects_jobs
        )

    def _end_batch(self) -> None:
        """Settle what has run, and note that the batch is over."""
        self.settle_done()
        self._note_end()

    def _note_end(self) -> None:
        if self.child.reports is not None:
            with self._giving_back:
                if self.child.settler.is_idle and not self.offered:
                    self.notes.end_batch()  # the parent need not look at jobs that are settled

    def _may_begin(self, claim: Claim) -> bool:
        self.batch_since = inf  # the batch monitor hands back claims that wait for long
        try:
            return self.child.permission.may_begin(claim)
        finally:
            self.batch_since = monotonic()

    def _run_one(self, number: int, claim: Claim) -> None:
        child = self.child
        reports = child.reports
        # An alone child notes the start: the time limit counts from then on and includes the loading of arguments.
        begins = None if reports is None else partial(reports.started, number)
        try:
            prepared = child.executor.prepare(claim, child.store, begins)
            if isinstance(prepared, Attempted):
                attempted = prepared
            else:
                self.current = prepared
                if prepared.plan.is_async and child.loop is not None:
                    child.loop.submit(prepared)
                    return
                attempted = child.run_here(prepared)
        finally:
            self.current = None
            if reports is not None:
                reports.returned()
        outcome = attempted.outcome
        if isinstance(outcome, Succeeded):
            self.done.append(attempted)
            noted = reports is None or self.notes.memory.has_returned(number, attempted.run_ms, outcome.result)
        elif isinstance(outcome, HandedOver):  # the new holder may report the end at once
            child.settler.settle_now([attempted])
            return
        else:
            self.done.append(attempted)
            self.failures += 1 if forget_locals(attempted) else HEAVY
            noted = reports is None and self.failures < MOST_FAILURES
        if not noted:  # if the next job is killed, this one must not run again
            self.settle_done()

    # -- also called by the batch monitor --------------------------------------------

    def give_back(self) -> None:
        """Hand back the claims whose jobs are not begun."""
        if self.waiting or self.offered:
            with self._giving_back:
                self._give_back()

    def _give_back(self) -> None:
        batch, waiting, by_queue = self.notes.batch, _take_all(self.waiting), dict[str, list[Claim]]()
        for claim in [*_take_all(self.offered), *(claim for _, claim in waiting)]:
            by_queue.setdefault(claim.queue, []).append(claim)
        for queue, claims in by_queue.items():
            try:
                self.child.store.release(queue, claims)
                self.child.holding.released(claims)
            except StoreError as error:
                logger.warning("Claimed jobs that could not be handed back: %d. %s", len(claims), error)
                batch = -1
                if not self.child.gate.draining:
                    self.offered.extend(claims)
        self.notes.note_handed_back(batch, [number for number, _ in waiting])

    def settle_done(self) -> None:
        """Settle the attempts that have ended so far.

        A second caller waits for the first call to end: otherwise a thread whose results are being sent would look
        idle, and its process could end before they are sent."""
        with self._settling:
            self.failures = 0
            if self.done:
                self.child.settler.settle_now(self._take_done())

    def _take_done(self) -> list[Attempted]:
        """Take the attempts that have ended so far.  The caller holds the lock for settling: nobody else takes one."""
        take = self.done.popleft
        return [take() for _ in range(len(self.done))]


def _take_all(items: deque[T]) -> list[T]:
    taken: list[T] = []
    with suppress(IndexError):
        while True:
            taken.append(items.popleft())
    return taken
