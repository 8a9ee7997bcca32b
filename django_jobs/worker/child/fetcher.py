"""Claims batches for the threads of one child: picks a queue, claims from it, waits when there is nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic

from django_jobs.conf import QueueSettings
from django_jobs.core import registry
from django_jobs.core.values import Claimed, Lane
from django_jobs.events.announce import announce_expired
from django_jobs.events.signal_events import Deliver, send
from django_jobs.exceptions import StoreCorrupt, StoreError
from django_jobs.remote import theirs
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.contract.store import Store
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.child.holdings import Holding
from django_jobs.worker.child.queue_selector import QueuePicker
from django_jobs.worker.clock import StoreClock
from django_jobs.worker.shared_memory import SharedMemory

#: Seconds: a lost wake-up delays a job by no more than this.
LONGEST_WAIT = 2.0
#: Seconds between two looks round, of whoever is free.  Nothing that another worker was told or knows, and takes with
#: it when it dies, waits for longer than this and LONGEST_WAIT.
LOOK_ROUND = 1.0
#: Seconds ahead of which others know by themselves what is due; what is due before, they are told.
NEAR = LONGEST_WAIT + LOOK_ROUND
#: Seconds between two looks at all backlogs while there is work; claims tell of their own queue meanwhile.
LOOK_INTERVAL = 0.1
#: Seconds between two claims on every queue that is drained: what is left comes back from a limit or a lost worker.
DRAIN_INTERVAL = 0.1
#: Seconds for which a queue whose parked jobs this worker does not know wakes it for other reasons only.
OFFER_INTERVAL = 1.0
#: Seconds between two claims on every queue where waiting does not work.
BROKEN_INTERVAL = 0.5

logger = logging.getLogger("django_jobs.worker")


class Fetcher:
    """One thread at a time calls `fetch`; whoever does holds the child's fetch lock."""

    def __init__(
        self,
        store: Store,
        worker: str,
        queues: Sequence[QueueSettings],
        *,
        lane: Lane,
        lease: int,
        strict: bool,
        gate: Gate,
        clock: StoreClock,
        size: Callable[[str], int],
        holding: Holding | None = None,
        shared: SharedMemory | None = None,
        drain: Mapping[str, int] | None = None,
        deliver: Deliver = send,
    ) -> None:
        self.store, self.worker, self.lane, self.lease = store, worker, lane, lease
        self.gate, self.clock, self.size = gate, clock, size
        self.holding = holding or Holding()
        self.queues = {settings.name: settings for settings in queues}
        self.shared = shared or SharedMemory(list(self.queues), 0)
        self.drain, self.deliver = drain, deliver
        self.picker = QueuePicker(queues, strict=strict)
        #: True from before a claim is sent until its thread has it: the process must not end in between.
        self.claiming = False
        #: queue → until when (monotonic) it is not waited for because of jobs whose names are not known here.
        self._passed_over: dict[str, float] = {}
        self._knows = ""
        self._looked, self._looked_round = 0.0, -inf
        #: queue → what is wrong with it.
        self._broken: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """The queues to look into: those of workers that fetch over HTTP are theirs alone."""
        others, is_open = theirs(self.queues), self.shared.is_open
        return [name for name in self.queues if name not in others and is_open(name)]

    def fetch(self) -> tuple[str, Claimed] | None:
        """Claim one batch, after waiting at most LONGEST_WAIT.  None: nothing came, ask again."""
        now = monotonic()
        if now - self._looked_round >= LOOK_ROUND:
            self._look_round(now)
            now = monotonic()
        if self._knows != (knows := registry.digest()):
            # Jobs that waited for somebody who knows them may wait for us now.
            if self._knows:
                self._passed_over.clear()
                self.picker.suspect()
            self._knows = knows
        queue = self.picker.pick(now)
        if queue is None:
            self._wait(now)
            queue = self.picker.pick(monotonic())
        elif now - self._looked >= LOOK_INTERVAL and len(self.names) > 1:
            with suppress(StoreCorrupt):
                self._look()
            queue = self.picker.pick(now) or queue
        if queue is None:
            return None
        # The flag first, then the gate: whoever closes the gate and then sees no flag knows that no claim will follow.
        self.claiming = True
        if self.gate.closed:
            return None
        try:
            claimed = self._claim(queue)
        except StoreCorrupt as error:
            self._set_aside(queue, error)
            return None
        if self._broken:
            self._broken.pop(queue, None)
        return queue, claimed

    def _set_aside(self, queue: str, error: StoreCorrupt) -> None:
        """One queue cannot be read: it rests, the others go on, and people hear of it once."""
        if self._broken.get(queue) != str(error):
            self._broken[queue] = str(error)
            logger.error("Queue %r cannot be claimed from, the others go on: %s", queue, error)
        self.picker.claimed(queue, got=0, left=1, next_due=None, now=monotonic())

    def _claim(self, queue: str) -> Claimed:
        if queue in theirs((queue,)):
            self.picker.claimed(queue, got=0, left=0, next_due=None, now=monotonic())
            return Claimed([], [], 0, None, 0)
        if ACTIVE:
            crashpoint("claim.before_send")
        if not self.shared.asks(queue):
            return self._leave(queue)
        try:
            claimed = self.holding.claim(
                self.store,
                queue,
                self.worker,
                self.size(queue),
                lane=self.lane,
                lease=self.lease,
                max_running=self.queues[queue].max_concurrency,
                up_to=None if self.drain is None else self.drain[queue],
                knows=self._knows,
            )
        except StoreError:
            self.shared.was_not_answered(queue)
            raise
        self.shared.was_answered(queue, claimed.claims)
        if ACTIVE and claimed.claims:
            crashpoint("claim.after_reply")
        self.clock.sync(claimed.now)
        if claimed.others:
            self._passed_over[queue] = monotonic() + OFFER_INTERVAL
        got = len(claimed.claims)
        self.picker.claimed(queue, got=got, left=claimed.left, next_due=claimed.next_due, now=monotonic())
        if claimed.expired:
            announce_expired(queue, claimed.expired, claimed.now, self.deliver)
        return claimed

    def _leave(self, queue: str) -> Claimed:
        """The parent has closed it: who claims from it shall hear of what we were told."""
        self.picker.claimed(queue, got=0, left=0, next_due=None, now=monotonic())
        self.store.wake([queue], lane=self.lane)
        return Claimed([], [], 0, None, 0)

    def _look(self) -> None:
        self._looked = monotonic()
        self.picker.learn(self.store.backlog(self.names, lane=self.lane))

    def _look_round(self, now: float) -> None:
        """See for ourselves: a wake-up reaches one worker, which may die or be busy when the time comes."""
        self._looked_round = now
        if names := self.names:
            self.picker.foresee(self.store.outlook(names, lane=self.lane), now)

    def hand_over(self, *, keep: str | None = None) -> None:
        """Nobody here will claim for a while: somebody else shall look where we were told to, or would look soon.

        `keep`: a queue that was just claimed from, where the claim itself has told others."""
        queues = self.picker.hand_over(monotonic() + NEAR, keep=keep)
        if queues and self.drain is None:
            try:
                self.store.wake(queues, lane=self.lane)
            except StoreError as error:
                logger.debug("Nobody could be told to look into %s: %s", ", ".join(queues), error)

    def _wait(self, now: float) -> None:
        """Block until there may be something, and find out where."""
        if self.drain is not None:
            # Wake-ups are for those who take new jobs: one that we took would be missing there.
            self.gate.ended.wait(DRAIN_INTERVAL)
            self.picker.suspect()
            return
        if self._passed_over:
            self._passed_over = {queue: until for queue, until in self._passed_over.items() if until > now}
        timeout = self.picker.pause(now, min([until - now for until in self._passed_over.values()] or [LONGEST_WAIT]))
        if timeout <= 0:
            return
        try:
            self._wait_for_work(timeout)
        except StoreCorrupt as error:
            # A key that only wakes us up, or that counts, is broken in one queue: ask each of them instead.
            logger.debug("Waiting for work failed: %s", error)
            self.gate.ended.wait(min(timeout, BROKEN_INTERVAL))
            self.picker.suspect()

    def _wait_for_work(self, timeout: float) -> None:
        names = self.names
        if not names:
            self.gate.ended.wait(timeout)
            return
        woken = self.store.wait_for_work(names, timeout, lane=self.lane, passed_over=self._passed_over)
        if woken:
            # One claim instead of a look and a claim: it also tells of a scheduled job that became the first due.
            self.picker.suspect(woken)
        elif woken is not None:
            self._look_round(monotonic())
