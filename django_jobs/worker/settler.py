"""Settles attempts in groups; what the store cannot take now is kept and offered again until it does."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from threading import Event, Lock, Thread

from django_jobs.exceptions import StoreError
from django_jobs.outcome import Succeeded
from django_jobs.stores.base import MAX_BATCH, Store
from django_jobs.worker import database
from django_jobs.worker.announce import announce, anybody_listens
from django_jobs.worker.attempted import Attempted
from django_jobs.worker.fault import end_process
from django_jobs.worker.outage import Outage
from django_jobs.worker.settle import settle, settle_successes

logger = logging.getLogger("django_jobs.worker")


class Settler:
    """Shared by all threads of a child.

    `settle_now` is for threads that have a batch to end; `settle_soon` for the event loop, which must not block: a
    thread of our own ends what has gathered since its last call, so the groups grow with the load.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._owed: deque[Attempted] = deque()
        self._wake = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        #: how many wait in `_owed` or are being settled from there.
        self._unsettled = 0
        #: by queue: one broken queue must not hide that the others work, nor the other way round.
        self._outages: dict[str, Outage] = {}
        self._pause = 0.0

    @property
    def is_idle(self) -> bool:
        """Is everything settled?"""
        return self._unsettled == 0

    def settle_now(self, attempts: Sequence[Attempted]) -> None:
        """Settle here; if the store fails, in the background, again and again: this thread is not held up."""
        for attempted in self._try(attempts):
            self.settle_soon(attempted)

    def settle_soon(self, attempted: Attempted) -> None:
        """Settle in the background."""
        with self._lock:
            self._unsettled += 1
        self._owed.append(attempted)
        self._wake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="settler", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            end_process()

    def _serve(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._owed:
                batch = [self._owed.popleft() for _ in range(min(len(self._owed), MAX_BATCH))]
                failed = self._try(batch)
                self._owed.extendleft(reversed(failed))
                with self._lock:
                    self._unsettled -= len(batch) - len(failed)
                if failed and len(failed) == len(batch):
                    # The claims stay ours while the parent renews them, and their end is due until the lease is lost.
                    Event().wait(self._pause)

    def _try(self, attempts: Sequence[Attempted]) -> list[Attempted]:
        """Settle what can be settled.  Returns the rest."""
        # Receivers of signals may use the database, on threads that run no jobs.
        database.before_job()
        try:
            return self._settle(attempts)
        finally:
            database.after_job()

    def _settle(self, attempts: Sequence[Attempted]) -> list[Attempted]:
        successes: dict[str, list[Attempted]] = {}
        failed: list[Attempted] = []
        for attempted in attempts:
            if isinstance(attempted.outcome, Succeeded):
                successes.setdefault(attempted.claim.queue, []).append(attempted)
            else:
                try:
                    if recorded := settle(self.store, attempted):
                        announce(recorded)
                    self._outage(attempted.claim.queue).worked()
                except StoreError as error:
                    self._pause = self._outage(attempted.claim.queue).failed(error)
                    failed.append(attempted)
        for queue, group in successes.items():
            try:
                held = settle_successes(self.store, queue, group)
                self._outage(queue).worked()
            except StoreError as error:
                self._pause = self._outage(queue).failed(error)
                failed.extend(group)
                continue
            if anybody_listens():
                for attempted in held:
                    announce(attempted)
        return failed

    def _outage(self, queue: str) -> Outage:
        outage = self._outages.get(queue)
        if outage is None:
            outage = self._outages[queue] = Outage(f"Settling in queue {queue!r}")
        return outage
