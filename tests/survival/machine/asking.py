"""Rules of people who ask why a job does not start: there is an answer, and it is true."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_jobs.browse.counts import job_counts
from django_jobs.browse.reasons import SENTENCES
from django_jobs.browse.why import facts_of, why
from django_jobs.core import registry
from django_jobs.core.values import WAITING, JobInfo, Lane, State
from tests.support.console_data import worker_info
from tests.survival.machine.base import which
from tests.survival.machine.model import Job
from tests.survival.machine.operating import Operating
from tests.survival.machine.world import QUEUES

NEVER = 10**12


class Asking(Operating):
    """What people ask.  One worker reports what it serves; it has no part in the claims of the other rules."""

    #: The queues that the worker claims from, and whether it knows all names; None: no worker has reported.
    reported: tuple[list[str], bool] | None = None

    @rule(
        knows=st.booleans(), queues=st.sampled_from([["a", "b"], ["a", "b"], ["a"]]),
        state=st.sampled_from(["running", "running", "quiet"]),
    )  # fmt: skip
    def worker_reports(self, knows, queues, state):
        digest = registry.digest() if knows else "old"
        self.store.publish_worker("web-1:1", worker_info(knows=digest, queues=queues, state=state), NEVER)
        self.reported = queues if state == "running" else [], knows

    @rule(which=which)
    def ask_why(self, which):
        job = self._job(which, WAITING)
        if job is None or job.state not in WAITING:
            return
        found, reason = why(self.store.get(job.queue, job.id))
        assert reason.text(str)
        assert reason.cause in SENTENCES
        assert self._is_true(reason.cause, job, found, reason.values.get("ahead")), f"{reason.cause!r} of {job}"
        if reason.cause == "next" and not found.parked_at and not self.model.is_late(job):
            self._comes_next(job, found)

    def _is_true(self, cause: str, job: Job, info: JobInfo, ahead: int | None) -> bool:
        serves, knows = self.reported or ([], True)
        others = [each for each in self.model.executing(job.queue) if each is not job]
        used = sum(bool(job.limit_key) and each.limit_key == job.limit_key for each in others)
        limit = self.model.limit_of(job)
        is_due = info.state in {State.SCHEDULED, State.RETRY} and job.due <= self.world.now
        is_served, is_known = job.queue in serves, knows or not info.parked_at
        lane = self._lane(job)
        is_placed = job.id in lane and (ahead is None or lane.index(job.id) == ahead) and is_served
        return {
            "scheduled": info.state is State.SCHEDULED and not is_due,
            "retry": info.state is State.RETRY and not is_due,
            "queue_paused": self.model.is_paused(job.queue),
            "all_paused": all(self.model.is_paused(queue) for queue in QUEUES),
            "type_paused": self.model.is_paused(job.queue, job.type.name),
            "stop_not_ended": info.state is State.BLOCKED and self.model.is_ending(job),
            "limit": used >= limit > 0,
            "limit_turn": used < limit and info.state is State.BLOCKED,
            "no_workers": self.reported is None,
            "no_worker_takes_queue": not is_served,
            "workers_quiet": not is_served,
            "unknown_name": not is_known,
            "queue_limit": 0 < QUEUES[job.queue].max_concurrency <= len(self.model.executing(job.queue)),
            "let_in": info.state is State.BLOCKED and is_served,
            "due": is_due and is_served,
            "suspect": is_placed,
            "higher_priority": is_placed,
            "behind": is_placed,
            "next": is_placed and lane[0] == job.id,
        }[cause]

    def _lane(self, job: Job) -> list[str]:
        """Return the queued jobs of the job's lane, in their order."""
        lane = self.store.standing(job.queue, job.id).lane
        queued = [info.id for info in self.store.page(job.queue, State.QUEUED, 0, 1000)]
        return [id for id in queued if self.store.standing(job.queue, id).lane == lane]

    def _comes_next(self, job: Job, info: JobInfo) -> None:
        """A job that is said to be the next is the one that a worker gets."""
        # What is due or was let in is put into the lane by the claim, and may come before it.
        rest = {State.SCHEDULED, State.RETRY, State.BLOCKED}
        if info.state is not State.QUEUED or any(each.state in rest for each in self.model.in_queue(job.queue)):
            return
        lane = Lane.SHARED if facts_of(info, job_counts()).standing.lane == "shared" else Lane.CLEAR
        got = self._claimed(job.queue, "w1", self.world.claim(job.queue, "w1", 1, lane, registry.digest()))
        assert got == 1
        assert self.world.attempts[-1].claim.id == job.id
