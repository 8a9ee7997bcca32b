"""How an alone child runs suspects, as its parent tells it (parent/suspects.py): which, and from when on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from django_jobs.core.values import Claim
from django_jobs.exceptions import StoreError
from django_jobs.stores.contract.store import Store
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.ipc import Channel

logger = logging.getLogger("django_jobs.worker")

#: Identifies one claim in messages: queue, id, token.
Key = tuple[str, str, int]


class Trial:
    """The main thread passes on the parent's messages; the runner asks."""

    def __init__(self, store: Store, gate: Gate, channel: Channel, wake: Callable[[], None]) -> None:
        """`wake()` wakes the main thread."""
        self.store, self.gate, self.channel, self.wake = store, gate, channel, wake
        #: this child may run suspects; its parent has asked it to stop running them; it runs one.
        self.may_try = self.must_yield = self.is_on = False
        #: the claim that waits until nothing else runs in this worker, and answers to it: (claim, may it begin).  None
        #: is any claim.
        self._waits: Key | None = None
        self._answers = SimpleQueue[tuple[Key | None, bool]]()

    def admits(self) -> bool:
        """May the runner, which holds the fetch lock, run the suspect it has claimed?  False: this child lost the right
        to run suspects after it had sent the claim."""
        self.is_on = self.may_try
        return self.is_on

    def may_begin(self, claim: Claim) -> bool:
        """Wait until the job may begin.  False: hand it back.

        A claim that has to wait is answered by the parent, when nothing else runs in this worker or when it has waited
        for too long, and by `give_up`."""
        self._waits = key = (claim.queue, claim.id, claim.token)
        self.channel.send({"is": "waits", "claim": key})
        answer: tuple[Key | None, bool] = None, False
        while not self.gate.draining:
            answer = self._answers.get()
            if answer[0] in (None, key):  # else: for an earlier claim, which was given up at the same moment
                break
        self._waits = None
        try:
            return answer[1] and self.store.begin(claim)
        except StoreError as error:
            logger.warning("Job %s cannot begin, and is handed back: %s", claim.id, error)
            return False

    def answer(self, claim: Sequence[Any], begins: bool) -> None:
        """Pass on the parent's answer to that claim (queue, id, token)."""
        queue, id, token = claim
        self._answers.put(((queue, id, token), begins))

    def give_up(self, queue: str = "", id: str = "") -> None:
        """The job was asked to stop, or (without an id) this process begins nothing any more: do not wait longer."""
        key = self._waits
        if not id or (key is not None and key[:2] == (queue, id)):
            self._answers.put((key if id else None, False))

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
