"""Rules of workers: they claim, end attempts, hand jobs back, keep their leases or lose them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_jobs.core import registry
from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Parked
from django_jobs.core.values import Killed, Lane, State
from django_jobs.execution.settle import as_done, end, settle_others, settle_successes
from tests.survival.machine import world as environment
from tests.survival.machine.base import WORKERS, Base, fault, queue_names, which, workers
from tests.survival.machine.model import Job, Run
from tests.survival.machine.world import LEASE, QUEUES, Attempt

outcomes = st.sampled_from(["return", "raise", "retry", "snooze", "discard", "fail"])


class Working(Base):
    """What workers do."""

    @rule(
        queue=queue_names, worker=workers, lane=st.sampled_from(list(Lane)), limit=st.integers(1, 3), fault=fault,
        knows=st.sampled_from(["new", "new", "", "old"]),
    )  # fmt: skip
    def claim(self, queue, worker, lane, limit, knows, fault):
        knows = registry.digest() if knows == "new" else knows
        answer = self.world.call(fault, lambda: self.world.claim(queue, worker, limit, lane, knows))
        self._claimed(queue, worker, answer)

    def _claimed(self, queue: str, worker: str, answer: Any) -> int:
        if not self.model.is_paused(queue):
            self.model.promote(queue)
        for id, *_ in answer.expired:
            job = self.model.jobs[id]
            assert self.model.is_late(job), f"{job} has expired"
            self.model._move(job, State.EXPIRED)
        for claimed in answer.claims:
            job = self.model.jobs[claimed.id]
            assert claimed.token > self.last_token[queue], "a token came again"
            assert (job.failures, job.crashes, job.suspect) == (claimed.failures, claimed.crashes, claimed.suspect)
            assert claimed.attempt >= job.least_attempt, f"attempt {claimed.attempt} of {job} begins again"
            job.least_attempt = claimed.attempt
            twins = [each for each in self.world.living() if each.claim.id == claimed.id and self._is_executing(each)]
            assert not twins, f"{job} began while another attempt of it executes"
            self.model.start(job, Run(worker, claimed.token), LEASE)
            assert claimed.has_to_wait == job.waits_to_begin
            self.world.attempts.append(Attempt(claimed, job.limit_key))
        if answer.claims:
            self.last_token[queue] = answer.claims[-1].token
        self._check_limits(queue)
        return len(answer.claims)

    def _is_executing(self, attempt: Attempt) -> bool:
        """The worker's process has not ended it, and the lease that was given to it has not ended."""
        claim = attempt.claim
        attempt.is_lost |= not self.model.is_alive(claim.queue, Run(claim.worker, claim.token))
        return not attempt.is_lost

    def _check_limits(self, queue: str) -> None:
        executing = [each for each in self.world.living() if each.claim.queue == queue and self._is_executing(each)]
        if most := QUEUES[queue].max_concurrency:
            assert len(executing) <= most, f"{len(executing)} attempts execute in {queue!r}"
        for key, attempts in Counter(each.limit_key for each in executing if each.limit_key).items():
            # A lower limit ends no attempt: the model says which may begin.
            assert attempts <= 2, f"{attempts} attempts execute under limit {key!r}"

    @rule(queue=queue_names, worker=workers)
    def claim_all(self, queue, worker):
        """Free workers take all that there is: no job that may run stays."""
        self.take_all(queue, worker)
        self._look()
        assert not self.model.claimable(queue), "free workers were not given this"

    def take_all(self, queue: str, worker: str) -> None:
        """Claim until nothing is given any more."""
        got = idle = 0
        while idle < 2 and got < 500:  # schedules may have caught up with a hundred runs
            some = 0
            for lane in (Lane.ALONE, Lane.SHARED):
                some += self._claimed(queue, worker, self.world.claim(queue, worker, 10, lane, registry.digest()))
            got, idle = got + some, 0 if some else idle + 1

    @rule(which=which, how=outcomes, fault=fault)
    def run(self, which, how, fault):
        """A worker process ends one of its attempts, held or lost."""
        if (attempt := self._attempt(which)) is None:
            return
        ended = self._attempted(attempt, how)
        recorded = self.world.call(fault, lambda: end(self.store, ended))
        assert (recorded is not None) == self._ends(attempt, how), f"{attempt} ended as {how}"

    @rule(queue=queue_names, hows=st.lists(outcomes, min_size=2, max_size=4), fault=fault)
    def run_many(self, queue, hows, fault):
        """A worker settles attempts in batches: those that succeeded, and the others."""
        attempts = {each.claim.id: each for each in self.world.living() if each.claim.queue == queue}
        some = list(zip(attempts.values(), hows, strict=False))
        ended = [(attempt, how, self._attempted(attempt, how)) for attempt, how in some]
        for is_success in (True, False):
            these = [each for each in ended if (each[1] == "return") is is_success]
            if not these:
                continue
            batch = [each[2] for each in these]
            if is_success:
                settle = partial(settle_successes, self.store, queue, batch, [as_done(each) for each in batch])
            else:
                settle = partial(settle_others, self.store, queue, batch)
            recorded = {each.claim.id for each in self.world.call(fault, settle)}
            # The last of those that are parked or blocked comes first: the order says nothing else.
            assert recorded == {each[0].claim.id for each in these if self._ends(each[0], each[1])}

    def _attempted(self, attempt: Attempt, how: str) -> Attempted:
        attempt.is_over, environment.outcome = True, how
        return self.world.executor.attempt(attempt.claim, self.store)

    def _ends(self, attempt: Attempt, how: str) -> bool:
        """The model's part of an end.  Returns whether it is recorded."""
        job, holds = self._of(attempt)
        if job is None or not holds:
            self._stale(attempt, job)
            return False
        exhausted = job.failures + job.crashes + 1 >= job.type.max_attempts
        failed = how in {"raise", "retry", "fail"} or (job.type.once and how == "snooze")
        if how == "return":
            state = State.SUCCEEDED
        elif how == "discard":
            state = State.CANCELLED
        elif how == "snooze" and not job.type.once:
            state = State.SCHEDULED
        else:
            state = State.DEAD if exhausted or how == "fail" or job.type.once else State.RETRY
        self.model.end(job, state, failed=failed, due=self.world.now + (400 if how == "raise" else 300))
        return True

    @rule(which=which, how=st.sampled_from(["release", "park", "begin"]), fault=fault)
    def hand_back(self, which, how, fault):
        if (attempt := self._attempt(which)) is None:
            return
        (job, holds), claim = self._of(attempt), attempt.claim
        if how == "begin":
            assert self.store.begin(claim) == holds
            if job and holds:
                job.waits_to_begin = False
            return
        attempt.is_over = True
        if how == "release":
            done = not self.world.call(fault, lambda: self.store.release(claim.queue, [claim]))
        else:
            parked = Attempted(claim, Parked("old"), job.type.name if job else "")
            done = self.world.call(fault, lambda: end(self.store, parked)) is not None
        is_told_late = how == "release" and fault == "not answered"  # it is another call then, and the claim is gone
        assert done == (holds and not is_told_late), f"{how} of {job}"
        if job is None or not holds:
            self._stale(attempt, job)
        else:
            self.model.end(job, State.QUEUED, begun=False)

    def _attempt(self, which: int) -> Attempt | None:
        living = list(self.world.living())
        return living[which % len(living)] if living else None

    def _of(self, attempt: Attempt) -> tuple[Job | None, bool]:
        """Return the job, and whether the attempt still holds it."""
        job, claim = self.model.jobs.get(attempt.claim.id), attempt.claim
        if job is not None and job.queue != claim.queue:
            job = None
        return job, job is not None and job.run == Run(claim.worker, claim.token)

    def _stale(self, attempt: Attempt, job: Job | None) -> None:
        if job is not None:
            self.model.attempt_is_over(job, attempt.claim.token)

    @rule(worker=workers)
    def renew(self, worker):
        for queue, answer in self.store.renew(list(QUEUES), [worker], LEASE).items():
            told = answer.get(worker)
            holds = [job for job in self.model.in_queue(queue) if job.run and job.run.worker == worker]
            assert told or not holds, f"{worker} has no lease in {queue!r}, but holds {holds}"
            if told is None:
                continue
            self.model.leases[queue, worker] = self.world.now + LEASE
            assert {job.id for job in holds if job.stop} <= {str(id) for id in told.asked}
            killed = {(str(id), id.token) for id in told.asked if isinstance(id, Killed)}
            ending = [job for job in self.model.in_queue(queue) if job.ending and job.ending.worker == worker]
            assert killed == {(job.id, job.ending.token) for job in ending}

    @rule(worker=workers, tells=st.booleans())
    def worker_stops(self, worker, tells):
        """All processes of a worker end: in order, and it hands its jobs back; or they are killed."""
        for attempt in self.world.living():
            attempt.is_over |= attempt.claim.worker == worker
        for queue in QUEUES if tells else ():
            found = {each.id: each.state for each in self.store.release_worker(queue, worker)}
            lost = [job for job in self.model.in_queue(queue) if job.run and job.run.worker == worker]
            assert found == {job.id: self.model.release_worker(job) for job in lost}
            self.model.worker_is_gone(queue, worker)

    @rule(queue=queue_names, worker=st.sampled_from([None, None, *WORKERS]), fault=fault)
    def recover(self, queue, worker, fault):
        """Maintenance looks for lost workers; or the processes of a worker were seen to die."""
        for attempt in self.world.living():
            attempt.is_over |= attempt.claim.worker == worker and attempt.claim.queue == queue
        found = self.world.call(fault, lambda: self.store.recover(queue, worker=worker))
        lost = [
            job
            for job in self.model.in_queue(queue)
            if job.run and (job.run.worker == worker if worker else not self.model.is_alive(queue, job.run))
        ]
        expected = {}
        for job in lost:
            state = self.model.recover(job, whole_worker=worker is None)
            expected[job.id] = (state, job.crashes)
        told = {each.id: (each.state, each.crashes) for each in found}
        assert told == expected or (fault == "not answered" and not told), f"{told}, not {expected}"
        for name in WORKERS:
            if name == worker or (worker is None and not self.model.is_alive(queue, Run(name, 0))):
                self.model.worker_is_gone(queue, name)
