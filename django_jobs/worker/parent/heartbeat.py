"""Renews the leases of all children, says that this worker lives, and knows when it must not go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

from django_jobs.exceptions import StoreError
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.contract.store import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.parent.reach import Reach
from django_jobs.worker.retry import RetryState

#: queue → token → claims: what the store has for one child.
Held = dict[str, Mapping[int, int]]

logger = logging.getLogger("django_jobs.worker")

#: A lease is renewed this many times in its life; five beats may be missed.
BEATS = 6
#: Seconds between two calls to a store that is away: a worker is at work again within a second of its return.
LONGEST_PAUSE = 0.5
#: Seconds between two log lines of a worker that waits.
REMINDER = 60.0


class Heartbeat:
    """One round: `extend` on every queue, then `publish_worker`.  `step` makes one call to the store at a time.

    A call that fails ends the round, and the next asks that server last: its queues cost the leases on other servers no
    more than the time of one call in each round."""

    def __init__(
        self,
        store: Store,
        config: WorkerConfig,
        name: str,
        *,
        workers: Callable[[], list[str]],
        describe: Callable[[], Mapping[str, Any]],
        asked_to_stop: Callable[[str, str, str], None],
        command: Callable[[str], None],
        holds_nothing: Callable[[str, str, float], None] = lambda worker, queue, asked_at: None,
        holds: Callable[[str, Held, Sequence[str]], None] = lambda worker, held, unasked: None,
        reach: Reach,
    ) -> None:
        """`asked_to_stop(child, queue, id)`, `command(word)` and `holds_nothing(child, queue, monotonic time of the
        question)`, which is to be looked into, are called with what the store answers; after each whole round
        `holds(child, queue → token → claims, queues that could not be read)`."""
        self.store, self.config, self.name = store, config, name
        self.workers, self.describe = workers, describe
        self.asked_to_stop, self.command, self.holds_nothing = asked_to_stop, command, holds_nothing
        self.holds, self.reach = holds, reach
        self.lease = config.lease / 1000
        self.interval = self.lease / BEATS
        self.retry_state = RetryState("Heartbeat")
        self._showing = RetryState("Saying that this worker lives")
        #: monotonic: when the next step is due; when the last round that renewed every lease began.
        self.due = self.last_round = self._began = monotonic()
        #: server → when it failed to answer (monotonic); only those that have not answered since.
        self._silent: dict[str, float] = {}
        #: queue → when it was asked last and answered (monotonic).
        self._renewed: dict[str, float] = {}
        self._steps: Iterator[None] | None = None
        #: how long the silence had lasted when people were told of it last.
        self._reminded = 0.0

    def step(self, now: float) -> None:
        """Make the next call if it is due."""
        if now < self.due:
            return
        if self._steps is None:
            self._began, self._steps = now, self._round()
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
            self.last_round, self.due = self._began, self._began + self.interval
            self.retry_state.worked()
            self._reminded = 0.0
        except Exception as error:
            if not isinstance(error, StoreError):
                logger.exception("A fault in the heartbeat; it is tried again")
            self._steps = None
            self.due = monotonic() + min(self.retry_state.failed(error), self.interval, LONGEST_PAUSE)
            if self.silence >= self._reminded + REMINDER:
                self._reminded = self.silence
                logger.warning(
                    "Worker %s has waited for its store for %d s, and goes on: %s", self.name, self.silence, error
                )

    def _round(self) -> Iterator[None]:
        workers = self.workers()
        if workers:
            held: dict[str, Held] = {worker: {} for worker in workers}
            unasked: list[str] = []
            calls = list(self._together())
            for n, queues in enumerate(calls, 1):
                self._renew(queues, workers, held, unasked)
                self.reach.judge(monotonic() - self._began, n, len(calls), sum(map(len, calls)))
                yield
            for worker in workers:
                self.holds(worker, held[worker], unasked)
        try:
            for command in self.store.publish_worker(self.name, self.describe(), self.config.lease * 2):
                self.command(command)
            self._showing.worked()
        except StoreError as error:
            if not workers:
                raise
            # On a Cluster this is another server's business: whose leases are renewed may work unseen.
            self._showing.failed(error)

    def _in_order(self) -> list[str]:
        """The queues of servers that answer first; of the silent ones, who was asked longest ago; then the oldest."""
        return sorted(
            self.reach.to_renew(),
            key=lambda queue: (self._silent.get(self.store.server_of(queue), 0.0), self._renewed.get(queue, 0.0)),
        )

    def _together(self) -> Iterator[list[str]]:
        """The same, as many as one call takes: a slow link costs a round trip for all of them, not for each."""
        queues = self._in_order()
        while queues:
            server, some = self.store.server_of(queues[0]), list[str]()
            while queues and len(some) < self.store.renewed_at_once and self.store.server_of(queues[0]) == server:
                some.append(queues.pop(0))
            yield some

    def _renew(self, queues: list[str], workers: list[str], held: dict[str, Held], unasked: list[str]) -> None:
        if ACTIVE:
            crashpoint("heartbeat.before_send")
        asked_at, quiet = monotonic(), self.reach.quiet(queues)
        server = self.store.server_of(queues[0])
        try:
            answers = self.store.renew(queues, workers, self.config.lease)
        except StoreError:
            self._silent[server] = monotonic()
            raise
        self._silent.pop(server, None)
        if ACTIVE:
            crashpoint("heartbeat.after_reply")
        for queue, answer in answers.items():
            if isinstance(answer, StoreError):
                # One broken queue must not cost the claims in the others.
                logger.error("Leases in queue %r cannot be renewed: %s", queue, answer)
                unasked.append(queue)
                continue
            for worker, renewal in answer.items():
                for job_id in renewal.asked:
                    self.asked_to_stop(worker, queue, job_id)
                if renewal.holds and worker in held:
                    held[worker][queue] = renewal.holds
            # Who claims when his lease has ended has one again, which says nothing of what he held before.
            late = asked_at - self._renewed.get(queue, asked_at) > self.lease
            for worker in workers:
                if late or worker not in answer:
                    self.holds_nothing(worker, queue, asked_at)
            self._renewed[queue] = asked_at
            if queue in quiet:
                self.reach.renewed(queue, answer)

    @property
    def silence(self) -> float:
        """Seconds since a round that reached everything began, if a call has failed since; else 0.

        A parent that was stopped for an hour and goes on has not failed yet: it asks first what it still holds."""
        return monotonic() - self.last_round if self.retry_state.is_on else 0.0

    @property
    def should_fence(self) -> bool:
        """Our leases are about to end: claim nothing, kill what runs alone."""
        return self.silence > self.lease - self.interval

    @property
    def has_lost_leases(self) -> bool:
        """Others may run our jobs from now on."""
        return self.silence > self.lease

    @property
    def is_hopeless(self) -> bool:
        return self.silence > 2 * self.lease
