"""Claims batches for the threads of one child: picks a queue, claims from it, waits while there are no jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic, time

from django_jobs.conf import QueueSettings
from django_jobs.core import registry
from django_jobs.core.values import Claimed, Completion, Lane
from django_jobs.events.announce import announce_expired
from django_jobs.events.signal_events import Deliver, send
from django_jobs.exceptions import StoreCorrupt, StoreError, StoreMisconfigured
from django_jobs.remote import left_to_pull_workers
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.redis import Store
from django_jobs.stores.values.answers import LONGEST_WAIT
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.child.holdings import HeldClaims
from django_jobs.worker.child.queue_selector import QueuePicker
from django_jobs.worker.shared_memory import SharedMemory

#: Seconds between two checks of all queues by a free thread.  If the only worker that knew of a job, or was woken for
#: it, dies, the job waits no longer than this and LONGEST_WAIT together.
LOOK_ROUND = 1.0
#: Seconds.  Other workers find jobs that are due later than this by themselves; for jobs due sooner they are woken.
NEAR = LONGEST_WAIT + LOOK_ROUND
#: Seconds between two reads of all backlogs while there is work; in between, each claim reports on its own queue.
LOOK_INTERVAL = 0.1
#: Seconds between two claims on every queue with --drain: a job may come back from a limit or a lost worker.
DRAIN_INTERVAL = 0.1
#: Seconds for which a queue does not wake this worker for parked jobs whose names it does not know.
OFFER_INTERVAL = 1.0
#: Seconds between two claims on every queue where waiting does not work.
BROKEN_INTERVAL = 0.5

logger = logging.getLogger("django_jobs.worker")


class StoreClock:
    """The store's time in ms: its last answer plus the monotonic time since.  Never compares two hosts' wall clocks."""

    def __init__(self) -> None:
        self._offset = time() - monotonic()

    def sync(self, now: int) -> None:
        """Set the clock: the store has just answered that its time is `now` (ms)."""
        self._offset = now / 1000 - monotonic()

    def __call__(self) -> int:
        return int((monotonic() + self._offset) * 1000)


class Fetcher:
    """Claims for one child.  A thread that calls `fetch` holds the child's fetch lock."""

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
        holding: HeldClaims | None = None,
        shared: SharedMemory | None = None,
        drain: Mapping[str, int] | None = None,
        deliver: Deliver = send,
        before_wait: Callable[[], None] | None = None,
    ) -> None:
        """`queues`: a list that may grow.  `before_wait()` is called each time before this child waits for work."""
        self.store, self.worker, self.lane, self.lease = store, worker, lane, lease
        self.gate, self.clock, self.size = gate, clock, size
        self.holding = holding or HeldClaims()
        self._served, self.queues = queues, {settings.name: settings for settings in queues}
        self.shared = shared or SharedMemory(list(self.queues), 0)
        self.drain, self.deliver, self.before_wait = drain, deliver, before_wait
        self.picker = QueuePicker(queues, strict=strict)
        #: True from before a claim call is sent until a thread has its claims: the process must not end in between.
        self.claiming = False
        #: queue → until when (monotonic) its parked jobs do not wake us, as this process does not know their names.
        self._passed_over: dict[str, float] = {}
        self._knows = ""
        self._looked, self._looked_round = 0.0, -inf
        #: about queues that cannot be read.
        self._broken = Complaints()

    @property
    def names(self) -> list[str]:
        """The queues to claim from.  Queues of remote workers, which claim over HTTP, are left out."""
        others, is_open = left_to_pull_workers(self.queues), self.shared.is_open
        return [name for name in self.queues if name not in others and is_open(name)]

    @property
    def is_forsaken(self) -> bool:
        """Has our parent renewed no lease for half of its length?  Then it is stopped or blocked, and a
        claim of ours would be lost."""
        return monotonic() - self.shared.renewed_at > self.lease / 2_000

    @property
    def lease_ends(self) -> float:
        """Return until when jobs may begin (monotonic seconds).  A renewal takes up to a third of a lease, so the store
        counts from an earlier time than `renewed_at`."""
        return self.shared.renewed_at + self.lease / 1_500

    @property
    def expects_jobs(self) -> bool:
        """Would `fetch` claim now, without waiting?"""
        return self.picker.pick(monotonic()) is not None

    def fetch(self, completion: Completion | None = None) -> tuple[str, Claimed] | None:
        """Claim one batch, after waiting at most LONGEST_WAIT.  Returns its queue and claims; None: call again.

        `completion`: attempts that the claim is to end.  This never waits with them: it returns None.

        Raises StoreError."""
        now = monotonic()
        if now - self._looked_round >= LOOK_ROUND:
            self._look_round(now)
            now = monotonic()
        if self._knows != (knows := registry.digest()):
            # This process now knows more job types: parked jobs may wait for it.
            if self._knows:
                self._passed_over.clear()
                self.picker.suspect()
            self._knows = knows
        queue = self.picker.pick(now)
        if queue is None:
            if completion is not None:
                return None
            self._wait(now)
            queue = self.picker.pick(monotonic())
        elif now - self._looked >= LOOK_INTERVAL and len(self.names) > 1:
            with suppress(StoreCorrupt):
                self._look()
            queue = self.picker.pick(now) or queue
        if queue is None:
            return None
        # Set the flag first, then read the gate: a thread that closes the gate and then finds the flag unset knows that
        # no claim will follow.
        self.claiming = True
        if self.gate.closed or self.is_forsaken:
            return None
        try:
            claimed = self._claim(queue, completion)
        except StoreCorrupt as error:
            self._set_aside(queue, error)
            return None
        self._broken.is_over(queue)
        return queue, claimed

    def _set_aside(self, queue: str, error: StoreCorrupt) -> None:
        """A queue cannot be read: pause it, continue with the others, and log the error once."""
        if self._broken.is_new(error, queue):
            logger.error("Cannot claim from queue %r; the other queues continue: %s", queue, error)
        self.picker.claimed(queue, got=0, left=1, next_due=None, now=monotonic())

    def _claim(self, queue: str, completion: Completion | None) -> Claimed:
        if queue in left_to_pull_workers((queue,)):
            self.picker.claimed(queue, got=0, left=0, next_due=None, now=monotonic())
            return Claimed([], [], 0, None, 0)
        if ACTIVE:
            crashpoint("claim.before_send")
        if not self.shared.begin_claim(queue):
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
                limits=registry.limits(),
                completion=completion,
            )
        except StoreError:
            self.shared.claim_failed(queue)
            raise
        self.shared.claim_succeeded(queue, claimed.claims)
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
        """The parent has closed the queue: wake a worker that claims from it, in case the wake-up came to us."""
        self.picker.claimed(queue, got=0, left=0, next_due=None, now=monotonic())
        self.store.wake([queue], lane=self.lane)
        return Claimed([], [], 0, None, 0)

    def _look(self) -> None:
        self._looked = monotonic()
        self.picker.set_backlog(self.store.backlog(self.names, lane=self.lane))

    def _look_round(self, now: float) -> None:
        """Check all queues: a wake-up reaches only one worker, which may have died or be busy."""
        self._looked_round = now
        if more := self._served[len(self.queues) :]:
            self.queues = self.queues | {settings.name: settings for settings in more}
            self.picker.add(more)
        if names := self.names:
            self.picker.set_outlook(self.store.outlook(names, lane=self.lane), now)

    def hand_over(self, *, keep: str | None = None) -> None:
        """This process will not claim for a while: wake another worker for the queues that we would check soon.

        `keep`: a queue that was just claimed from; that claim has already woken others."""
        queues = self.picker.hand_over(monotonic() + NEAR, keep=keep)
        if queues and self.drain is None:
            try:
                self.store.wake(queues, lane=self.lane)
            except StoreError as error:
                logger.debug("No worker could be told to check %s: %s", ", ".join(queues), error)

    def _wait(self, now: float) -> None:
        """Block until there may be jobs, and find out in which queues."""
        if self.before_wait is not None:
            self.before_wait()
        if self.drain is not None:
            # A wake-up announces new jobs, which --drain does not run: if we took one, another worker would miss it.
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
            self._broken.is_over()
        except (StoreCorrupt, StoreMisconfigured) as error:
            # In one queue a key for wake-ups is broken, or this user may not wait: claim from each queue instead.
            if isinstance(error, StoreMisconfigured) and self._broken.is_new(error):
                logger.error("Cannot wait for work; jobs start up to %g s later: %s", BROKEN_INTERVAL, error)
            self.gate.ended.wait(min(timeout, BROKEN_INTERVAL))
            self.picker.suspect()

    def _wait_for_work(self, timeout: float) -> None:
        names = self.names
        if not names:
            self.gate.ended.wait(timeout)
            return
        woken = self.store.wait_for_work(names, timeout, lane=self.lane, passed_over=self._passed_over)
        if woken:
            # Claim without a check before it: the claim also reports a scheduled job that became the first due.
            self.picker.suspect(woken)
        elif woken is not None:
            self._look_round(monotonic())
