"""Rules of people, of maintenance, and of the environment: time, the network, new code, restarts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_jobs.core import registry
from django_jobs.core.values import FINISHED, WAITING, Added, State
from django_jobs.exceptions import DuplicateJob, JobMoved
from django_jobs.operations import actions
from django_jobs.workflows import engine
from tests.survival.machine.base import WORKERS, fault, queue_names, type_names, which
from tests.survival.machine.model import Job, Type
from tests.survival.machine.working import Working
from tests.survival.machine.world import HOUR, LEASE, QUEUES, TYPES, deploy

limited = st.sampled_from([type.name for type in TYPES if type.limit])


class Operating(Working):
    """What people do, and what happens."""

    @rule(which=which, verb=st.sampled_from(["cancel", "kill", "delete", "revive", "reschedule"]), fault=fault)
    def operate(self, which, verb, fault):
        wanted = {"revive": FINISHED, "kill": {State.RUNNING}, "cancel": WAITING | {State.RUNNING}}.get(
            verb, set(State)
        )
        if (job := self._job(which, wanted)) is None:
            return
        at, was_running = self.world.now + 400, job.state is State.RUNNING
        expected = {
            "cancel": lambda: self.model.cancel(job) is State.CANCELLED or was_running,
            "kill": lambda: self.model.kill(job),
            "delete": lambda: self.model.delete(job),
            "revive": lambda: self.model.revive(job),
            "reschedule": lambda: self.model.reschedule(job, at),
        }
        done = self.world.call(fault, lambda: actions.act(verb, job.queue, [job.id], run_at=at, reason="by hand"))
        before = job.state
        moves = expected[verb]()
        if verb == "cancel":
            moves &= before not in FINISHED
        repeated = fault == "not answered"  # the second call may find the job where the first has put it
        assert bool(done.count) == bool(moves) or repeated, f"{verb} of {job}"

    @rule(which=which, then=st.sampled_from(["revive", "twin", "follow"]))
    def kill_and_go_on(self, which, then):
        """A person kills a job and does not wait for the end of its attempt."""
        running = [job for job in self.model.jobs.values() if job.state is State.RUNNING]
        if then == "twin":
            running = [job for job in running if job.key and not isinstance(job.mode, int)]
        if then == "follow":
            members = {id for batch in self.model.batches.values() for id in batch.members}
            running = [job for job in running if job.id in members] or running
        if not running:
            return
        job = running[which % len(running)]
        assert actions.act("kill", job.queue, [job.id], reason="by hand").count
        self.model.kill(job)
        if then == "twin":
            self.enqueue_twin_of(job)
        elif then == "follow":
            self._follow()
            self._look()
        elif actions.act("revive", job.queue, [job.id], reason="by hand").count:
            assert self.model.revive(job)
        else:
            assert not self.model.revive(job), f"revive of {job}"
        self.claim_all(job.queue, WORKERS[which % len(WORKERS)])

    @rule(which=which)
    def revive_beside_a_twin(self, which):
        """An equal job comes, and then a person lets an ended one run again: not if the new one has its key."""
        ended = [job for job in self.model.jobs.values() if job.state in FINISHED and job.key]
        ended = [job for job in ended if not isinstance(job.mode, int)]
        if ended:
            job = ended[-1 - which % len(ended)]
            self.enqueue_twin_of(job)
            count = actions.act("revive", job.queue, [job.id], reason="by hand").count
            assert bool(count) == self.model.revive(job), f"revive of {job}"

    @rule(which=which, n=st.integers(1, 2))
    def edit(self, which, n):
        job = self._job(which, WAITING)
        if job is None or job.n == n:
            return
        key = self._key(job.type, n) if job.key else None
        try:
            answer = "edited" if actions.edit(job.queue, job.id, [n], {}) else "same"
        except DuplicateJob:
            answer = "duplicate"
        except JobMoved:
            answer = "moved"
        assert answer == self.model.edit(job, n, key), f"edit of {job}"

    @rule(
        queue=queue_names, type=st.sampled_from(["", "", "m.plain", "m.limited"]), close=st.booleans(),
        length=st.sampled_from([0, 600]), fault=fault,
    )  # fmt: skip
    def pause_or_resume(self, queue, type, close, length, fault):
        name, until = type or None, self.world.now + length if length else 0
        if close:
            self.world.call(fault, lambda: actions.pause(queue, name=name, until=until))
            self.model.pauses[queue, type] = until
        else:
            self.world.call(fault, lambda: actions.resume(queue, name=name))
            self.model.pauses.pop((queue, type), None)

    @rule(ms=st.sampled_from([100, 400, 400, 1_000, 1_000, HOUR]))
    def pass_time(self, ms):
        self.world.now += ms
        for attempt in self.world.living():
            self._is_executing(attempt)

    @rule(ms=st.sampled_from([60_000, -60_000, 24 * HOUR, -24 * HOUR]))
    def clock_is_set(self, ms):
        """A step of the store's clock takes no claim from a worker that lives."""
        self.store.lapsed(list(QUEUES))
        # Whether a pause that has ended by itself comes back with the time is not promised.
        for (queue, type), until in list(self.model.pauses.items()):
            if 0 < until <= self.world.now:
                self.pause_or_resume(queue, type, False, 0, "")
        self.world.now += ms
        self.set_back += max(0, -ms)
        for queue in QUEUES:
            taken = self.store.recover(queue, spare=LEASE)
            assert not taken, f"a step of the clock took {taken}"
        for worker in WORKERS:
            self.renew(worker)

    @rule(which=st.integers(0, 30))
    def late_copy(self, which):
        """A copy of an earlier request arrives: it must change nothing."""
        if self.world.network.copies:
            self.world.network.deliver(which)

    @rule(type=type_names, queue=queue_names, limit=st.integers(1, 2), renames=st.booleans())
    def deploy(self, type, queue, limit, renames):
        """New code: the type has another queue, another limit, or another name."""
        new = replace(self.model.types[type], queue=queue)
        if new.limit:
            new = replace(new, limit=limit)
        if renames:
            new = replace(new, renamed=new.renamed + 1)
        self._deploy(type, new)
        self._maintain_limits()

    def _deploy(self, name: str, new: Type) -> None:
        self.model.types[name] = new
        self.world.tasks[name] = deploy(new)

    def _maintain_limits(self) -> None:
        """The first maintenance process of the new code begins."""
        for queue in QUEUES:
            self.store.let_in(queue, registry.limits(of_all=True))

    @rule(name=limited, limits=st.lists(st.integers(1, 2), min_size=1, max_size=3))
    def deploy_limits(self, name, limits):
        """New code with another limit only, a few times, each with jobs; then free workers take what it allows, the
        oldest first."""
        queue, ids = self.model.types[name].queue, list[str]()
        for limit in limits:
            self._deploy(name, type := replace(self.model.types[name], limit=limit))
            for _ in range(2):
                self.pass_time(1)
                new = Job("", queue, type, is_promise=type.once)
                if self._enqueue(new, self._using(type, None), "skip", None, "") is Added.ADDED:
                    ids.append(new.id)
            self.take_all(queue, WORKERS[0])
            begun = [self.model.jobs[id].run is not None for id in ids]
            assert begun == sorted(begun, reverse=True), f"of {ids}, these have begun: {begun}"
            self._maintain_limits()
        self.claim_all(queue, WORKERS[0])

    @rule(forgets=st.booleans())
    def restart(self, forgets):
        """All processes of the project are started again; the server may have forgotten the scripts."""
        if forgets:
            self.store.transport.client.script_flush()
        self.world.restart()

    @rule(parent=st.integers(0, 1))
    def schedules(self, parent):
        """A scheduler looks: each full hour since the first look comes once."""
        self.world.parents[parent].tick()
        now = self.world.now
        if self.fired is None:
            self.fired = now
        first = self.fired // HOUR + 1
        for hour in range(first, now // HOUR + 1):
            note = self.model.types["m.note"]
            new = Job(f"cron:settings:hourly:{hour * HOUR}", note.queue, note, is_promise=True)
            assert self.model.enqueue(new) is Added.ADDED
        self.fired = max(self.fired, now)

    @rule(queue=queue_names)
    def maintain(self, queue):
        self._follow()
        self.store.expire(queue)
        self.model.expire(queue)
        found = self.store.reconcile(queue)
        found.pop("waiter_without_limit")
        assert set(found.values()) == {0}, f"inconsistent: {found}"
        for state in (State.DEAD, State.RETRY):
            groups = Counter[str]()
            for group in self.store.failure_groups([queue], state):
                name = ".".join(group.name.split(".")[:2])  # "m.plain.1" was "m.plain" before
                groups[name] += group.jobs
            assert groups == Counter(job.type.name for job in self.model.in_queue(queue) if job.state is state)

    def _follow(self) -> None:
        for queue in self.store.unread(list(QUEUES)):
            engine.advance(self.store, queue)
        for id in self.store.workflows_due(100, 1_000):
            engine.check(self.store, id, 3_600_000)
