"""How an alone child runs suspects, as its parent tells it (parent/suspects.py): which, and from when on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import SimpleQueue

from django_jobs.core.values import Claim
from django_jobs.exceptions import StoreError
from django_jobs.stores.redis import Store
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.ipc import IpcChannel
from django_jobs.worker.messages import ClaimId, MayBegin, WaitsToBegin

logger = logging.getLogger("django_jobs.worker")


class SuspectPermission:
    """The main thread passes on the parent's messages; the runner asks."""

    def __init__(self, store: Store, gate: Gate, channel: IpcChannel, wake: Callable[[], None]) -> None:
        """`wake()` wakes the main thread."""
        self.store, self.gate, self.channel, self.wake = store, gate, channel, wake
        #: this child may run suspects; its parent has asked it to stop running them; it runs one.
        self.may_try = self.must_yield = self.is_on = False
        #: the claim that waits until nothing else runs in this worker, and answers to it.  None: no claim begins.
        self._waits: ClaimId | None = None
        self._answers = SimpleQueue[MayBegin | None]()

    def admits(self) -> bool:
        """May the runner, which holds the fetch lock, run the suspect it has claimed?  False: this child lost the right
        to run suspects after it had sent the claim."""
        self.is_on = self.may_try
        return self.is_on

    def may_begin(self, claim: Claim) -> bool:
        """Wait until the job may begin.  False: hand it back.

        A claim that has to wait is answered by the parent, when nothing else runs in this worker or when it has waited
        for too long, and by `give_up`."""
        self._waits = waits = ClaimId(claim.queue, claim.id, claim.token)
        self.channel.send(WaitsToBegin(waits))
        answer: MayBegin | None = None
        while not self.gate.draining:
            answer = self._answers.get()
            if answer is None or answer.claim == waits:  # else: for an earlier claim, given up at the same moment
                break
        self._waits = None
        try:
            return answer is not None and answer.begins and self.store.begin(claim)
        except StoreError as error:
            logger.warning("Job %s cannot begin, and is handed back: %s", claim.id, error)
            return False

    def answer(self, message: MayBegin) -> None:
        """Pass on the parent's answer."""
        self._answers.put(message)

    def give_up(self, queue: str = "", id: str = "") -> None:
        """The job was asked to stop, or (without an id) this process begins nothing any more: do not wait longer."""
        waits = self._waits
        if not id:
            self._answers.put(None)
        elif waits is not None and (waits.queue, waits.id) == (queue, id):
            self._answers.put(MayBegin(waits, begins=False))

    def is_over(self) -> None:
        """The suspect has ended: tell the main thread."""
        self.is_on = False
        self.wake()

    def yields(self, claiming: bool) -> bool:
        """Tell, once, that this child runs no suspects and will claim none.  Claims sent from now on bring none; one in
        progress may still bring one."""
        if not self.must_yield or claiming or self.is_on:
            return False
        self.may_try = self.must_yield = False
        return True
