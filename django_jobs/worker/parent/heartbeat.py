"""Renews the leases of all children, publishes that this worker is alive, and decides when it must stop its jobs."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any

from django_jobs.exceptions import StoreError
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.idle_queues import IdleQueues
from django_jobs.worker.parent.queue_capacity import SHORT, QueueCapacity
from django_jobs.worker.retry import RetryState

#: queue → token → number of claims: what the store has for one child.
ClaimCounts = dict[str, Mapping[int, int]]

logger = logging.getLogger("django_jobs.worker")

#: Renewals per lease: five in a row may fail before the lease ends.
BEATS = 6
#: Longest pause in seconds between two calls to a store that does not answer.  A worker resumes within a second of the
#: store's return.
LONGEST_PAUSE = 0.5
#: Seconds between two log lines while the worker waits for the store.
REMINDER = 60.0


class Heartbeat:
    """One round calls `renew` for every queue that is not idle, and for one queue of each server, which shows whether
    it answers; then `publish_worker`.  `step` makes one call to the store at a time.

    A call that fails ends the round, and the next round asks that server last.  A silent server therefore delays the
    leases on other servers by no more than one call per round."""

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
        holds: Callable[[str, ClaimCounts, Sequence[str]], None] = lambda worker, held, unasked: None,
        capacity: QueueCapacity,
    ) -> None:
        """The callbacks pass on the store's answers: `asked_to_stop(child, queue, id)`, `command(word)` and
        `holds_nothing(child, queue, monotonic time of the call)`, which means that the child may have lost its claims.
        After each complete round: `holds(child, queue → token → number of claims, queues that could not be read)`."""
        self.store, self.config, self.name = store, config, name
        self.workers, self.describe = workers, describe
        self.asked_to_stop, self.command, self.holds_nothing = asked_to_stop, command, holds_nothing
        self.holds, self.capacity = holds, capacity
        self.lease = config.lease / 1000
        self.idle_queues = IdleQueues(capacity.child_processes, self.lease)
        self.interval = self.lease / BEATS
        self.retry_state = RetryState("Heartbeat")
        self._showing = RetryState("Sending the heartbeat")
        #: monotonic: when the next step is due; when the last complete round began; when the current round began.
        self.due = self.last_round = self._began = monotonic()
        #: server → when it last failed to answer (monotonic); only servers that have not answered since.
        self._silent: dict[str, float] = {}
        #: queue → when its last successful renewal was sent (monotonic).
        self._renewed: dict[str, float] = {}
        #: about queues whose leases cannot be renewed.
        self._refused = Complaints()
        #: seconds that each call took, in the last two rounds: one of them may have been late for other reasons.
        self._each_call: deque[float] = deque([inf], maxlen=2)
        self._steps: Iterator[None] | None = None
        #: the length of the silence when it was last logged (s).
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
            self.idle_queues.doubt()
            self.due = monotonic() + min(self.retry_state.failed(error), self.interval, LONGEST_PAUSE)
            if self.silence >= self._reminded + REMINDER:
                self._reminded = self.silence
                logger.warning(
                    "Worker %s has waited for its store for %d s, and continues to wait: %s",
                    self.name,
                    self.silence,
                    error,
                )

    def _round(self) -> Iterator[None]:
        workers = self.workers()
        if workers:
            held: dict[str, ClaimCounts] = {worker: {} for worker in workers}
            unasked: dict[str, StoreError] = {}
            calls = list(self._together())
            for n, queues in enumerate(calls, 1):
                self._renew(queues, workers, held, unasked)
                self.capacity.adjust(monotonic() - self._began, n, len(calls), sum(map(len, calls)))
                yield
            self._each_call.append((monotonic() - self._began) / len(calls) if calls else inf)
            for worker in workers:
                self.holds(worker, held[worker], list(unasked))
            if unasked and len(unasked) == sum(map(len, calls)):
                # A user that lost a permission.  No lease is renewed, as if the store were away.
                raise next(iter(unasked.values()))
        try:
            for command in self.store.publish_worker(self.name, self.describe(), self.config.lease * 2):
                self.command(command)
            self._showing.worked()
        except StoreError as error:
            if not workers:
                raise
            # On a Cluster this call may go to another server.  A worker that renews its leases may work unlisted.
            self._showing.failed(error)

    def _in_order(self) -> list[str]:
        """Queues of servers that answer come first, then those of the server that failed longest ago.  Within these,
        the queue renewed longest ago comes first."""
        now, queues, idle = monotonic(), list[str](), list[str]()
        to_renew = self.capacity.to_renew()
        of_each = Counter(self.store.server_of(queue) for queue in to_renew)
        calls = sum(-(-number // self.store.renewed_at_once) for number in of_each.values())
        # On a slow link all are renewed, so that `capacity` closes queues before their leases are renewed too late.
        is_fast = min(self._each_call) * calls < self.lease * SHORT
        for queue in to_renew:
            (idle if is_fast and self.idle_queues.is_idle(queue, now) else queues).append(queue)
        servers = {self.store.server_of(queue) for queue in queues}
        for queue in idle:
            self._renewed[queue] = now  # nothing was held there until now
            if (server := self.store.server_of(queue)) not in servers:
                servers.add(server)
                queues.append(queue)
        return sorted(
            queues,
            key=lambda queue: (self._silent.get(self.store.server_of(queue), 0.0), self._renewed.get(queue, 0.0)),
        )

    def _together(self) -> Iterator[list[str]]:
        """The same order, in groups that fit into one call: on a slow link a group costs one round trip in total."""
        queues = self._in_order()
        while queues:
            server, some = self.store.server_of(queues[0]), list[str]()
            while queues and len(some) < self.store.renewed_at_once and self.store.server_of(queues[0]) == server:
                some.append(queues.pop(0))
            yield some

    def _renew(
        self, queues: list[str], workers: list[str], held: dict[str, ClaimCounts], unasked: dict[str, StoreError]
    ) -> None:
        if ACTIVE:
            crashpoint("heartbeat.before_send")
        asked_at, quiet = monotonic(), self.capacity.quiet(queues)
        calls = {queue: self.idle_queues.calls(queue) for queue in queues}
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
                # One broken queue must not prevent renewals in the others.
                if self._refused.is_new(answer, queue):
                    logger.error("Leases in queue %r cannot be renewed: %s", queue, answer)
                unasked[queue] = answer
                continue
            self._refused.is_over(queue)
            for worker, renewal in answer.items():
                for job_id in renewal.asked:
                    self.asked_to_stop(worker, queue, job_id)
                if renewal.holds and worker in held:
                    held[worker][queue] = renewal.holds
            # A worker that claims after its lease ended gets a new lease, which says nothing of its older claims.
            late = asked_at - self._renewed.get(queue, asked_at) > self.lease
            for worker in workers:
                if late or worker not in answer:
                    self.holds_nothing(worker, queue, asked_at)
            self._renewed[queue] = asked_at
            holds = any(renewal.holds or renewal.asked for renewal in answer.values())
            self.idle_queues.renewed(queue, calls[queue], holds=holds, now=asked_at)
            if queue in quiet:
                self.capacity.renewed(queue, answer)

    @property
    def silence(self) -> float:
        """Seconds since the start of the last complete round, if a call has failed since; otherwise 0.

        A parent that was stopped for an hour and resumes has not failed yet: it first asks what it holds."""
        return monotonic() - self.last_round if self.retry_state.is_on else 0.0

    @property
    def should_fence(self) -> bool:
        """Our leases are about to end: claim nothing, and kill the alone children."""
        return self.silence > self.lease - self.interval

    @property
    def has_lost_leases(self) -> bool:
        """Our leases have ended: other workers may run our jobs from now on."""
        return self.silence > self.lease

    @property
    def is_hopeless(self) -> bool:
        return self.silence > 2 * self.lease
