"""Settles attempts in groups.  Calls that fail are kept and repeated until the store answers them.

The store may have executed a call that failed.  Therefore it is repeated unchanged, with the same attempts: only then
can the store recognise the call and return its first answer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from threading import Event, Lock, Thread

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import HandedOver, Succeeded
from django_jobs.core.values import Completion
from django_jobs.events.announce import forget_locals
from django_jobs.events.receivers import SignalThread
from django_jobs.exceptions import StoreError
from django_jobs.execution.settle import (
    after_ends,
    as_done,
    batches_of_others,
    settle,
    settle_others,
    settle_successes,
    still_held,
)
from django_jobs.runtime import database_connections
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.runtime.faults import faults_end_process
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import MAX_BATCH, in_batches
from django_jobs.worker.child.holdings import HeldClaims
from django_jobs.worker.retry import RetryState
from django_jobs.worker.tally import Tally

logger = logging.getLogger("django_jobs.worker")

#: The attempts that one call to the store ends: all of them succeeded, or none.
Call = Sequence[Attempted]


class Settler:
    """Shared by all threads of a child.

    `settle_now` is for threads that have run a batch.  `settle_soon` is for the event loop, which must not block: a
    background thread settles all attempts that came since its last call, so the groups grow with the load.
    """

    def __init__(self, store: Store, holding: HeldClaims | None = None, tally: Tally | None = None) -> None:
        """`tally`: counts the ends that are recorded."""
        self.store, self._tally = store, tally
        #: sends the signals.
        self.signal_thread = SignalThread()
        self.holding = holding or HeldClaims()
        #: attempts that were not sent yet, and calls that failed.
        self._new: deque[Attempted] = deque()
        self._again: deque[Call] = deque()
        self._wake = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        #: how many attempts wait in these two or are being settled by the background thread.
        self._unsettled = 0
        #: queue → its retry state: a broken queue must not hide that the others work, nor the reverse.
        self._retry_states: dict[str, RetryState] = {}
        self._pause = 0.0

    @property
    def is_idle(self) -> bool:
        """Is everything settled?"""
        return self._unsettled == 0

    def settle_now(self, attempts: Sequence[Attempted]) -> None:
        """Settle on this thread.  Calls that fail are repeated in the background, so that this thread can continue."""
        if failed := self._try(calls_of(attempts)):
            with self._lock:
                self._unsettled += size_of(failed)
            self._again.extend(failed)
            self._go_on()

    def completion_of(self, attempts: Sequence[Attempted]) -> Completion | None:
        """Return the attempts in the form in which the next claim can end them.  None: they need other calls."""
        calls = calls_of(attempts)
        if len(calls) != 1 or not isinstance(attempts[0].outcome, Succeeded):
            return None
        if ACTIVE:
            crashpoint("ack.before_send")
        return Completion(attempts[0].claim.queue, [as_done(attempted) for attempted in attempts])

    def settled(self, attempts: Sequence[Attempted], completion: Completion) -> None:
        """Go on after a claim that may have ended these attempts; `settle_now` if it has not."""
        if completion.stale is None:
            self.settle_now(attempts)
            return
        database_connections.before_job()
        try:
            self.holding.completed(completion.done)
            self._recorded(completion.queue, still_held(attempts, completion.stale))
        finally:
            database_connections.after_job()

    def settle_soon(self, attempted: Attempted) -> None:
        """Settle in the background."""
        forget_locals(attempted)
        with self._lock:
            self._unsettled += 1
        self._new.append(attempted)
        self._go_on()

    def _go_on(self) -> None:
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="settler", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        with faults_end_process():
            self._serve()

    def _serve(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while calls := self._waiting():
                failed = self._try(calls)
                self._again.extend(failed)
                with self._lock:
                    self._unsettled -= size_of(calls) - size_of(failed)
                if len(failed) == len(calls):
                    # While the parent renews the leases, the claims stay ours, and their ends can still be recorded.
                    Event().wait(self._pause)

    def _waiting(self) -> list[Call]:
        again = [self._again.popleft() for _ in range(len(self._again))]
        new = [self._new.popleft() for _ in range(min(len(self._new), MAX_BATCH))]
        return [*again, *calls_of(new)]

    def _try(self, calls: Sequence[Call]) -> list[Call]:
        """Make these calls.  Returns those that failed."""
        # Signal receivers may use the database, also on threads that run no jobs.
        database_connections.before_job()
        try:
            return [call for call in calls if not self._made(call)]
        finally:
            database_connections.after_job()

    def _made(self, call: Call) -> bool:
        """Make one call, and announce the ends it recorded.  False: the call failed."""
        queue, outcome = call[0].claim.queue, call[0].outcome
        try:
            if isinstance(outcome, Succeeded):
                done = [as_done(attempted) for attempted in call]
                recorded = settle_successes(self.store, queue, call, done)
                self.holding.completed(done)
            elif isinstance(outcome, HandedOver):
                ended = settle(self.store, call[0])
                recorded = [ended] if ended else []
                self.holding.settled(call)
            else:
                recorded = settle_others(self.store, queue, call)
                self.holding.settled(call)
        except StoreError as error:
            self._pause = self._retry_state(queue).failed(error)
            return False
        self._recorded(queue, recorded)
        return True

    def _recorded(self, queue: str, attempts: Sequence[Attempted]) -> None:
        if (retry_state := self._retry_states.get(queue)) is not None and retry_state.is_on:
            retry_state.worked()
        if self._tally is not None:
            self._tally.add(attempts)
        after_ends(self.store, queue, attempts, self.signal_thread.deliver)

    def _retry_state(self, queue: str) -> RetryState:
        retry_state = self._retry_states.get(queue)
        if retry_state is None:
            # All threads must get the same one: a second one would replace the first, whose outage would never end.
            retry_state = self._retry_states.setdefault(queue, RetryState(f"Settling in queue {queue!r}"))
        return retry_state


def calls_of(attempts: Sequence[Attempted]) -> list[Call]:
    """Group attempts into calls: the successes of a queue into one call, or more if their results are too long; all
    others likewise; every attempt that was handed over into a call of its own."""
    successes = [each for each in attempts if isinstance(each.outcome, Succeeded)]
    calls: list[Call] = []
    if len(successes) < len(attempts):
        rest = [each for each in attempts if not isinstance(each.outcome, Succeeded)]
        calls += [(each,) for each in rest if isinstance(each.outcome, HandedOver)]
        for some in _by_queue([each for each in rest if not isinstance(each.outcome, HandedOver)]):
            calls += batches_of_others(some)
    for some in _by_queue(successes):
        calls += in_batches(some, _bytes_of)
    return calls


def _by_queue(attempts: list[Attempted]) -> Collection[list[Attempted]]:
    if len({each.claim.queue for each in attempts}) == 1:
        return [attempts]
    groups: dict[str, list[Attempted]] = {}
    for each in attempts:
        groups.setdefault(each.claim.queue, []).append(each)
    return groups.values()


def _bytes_of(success: Attempted) -> int:
    return len(success.outcome.result)  # type: ignore[union-attr]  # only of successes; a check would be one per job


def size_of(calls: Iterable[Call]) -> int:
    """Return how many attempts the calls end."""
    return sum(map(len, calls))
