"""What all rules share: the world, the model, and what must hold after each step."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from django_jobs import get_job
from django_jobs.core.values import State
from django_jobs.enqueueing.keys import digest_of_arguments
from tests.survival.machine.model import Job, Model, Type
from tests.survival.machine.world import FAULTS, QUEUES, TYPES, World

WORKERS = ["w1", "w2"]
#: Most calls are answered.
fault = st.sampled_from(["", "", "", "", *FAULTS])
type_names = st.sampled_from([type.name for type in TYPES[:-1]])
queue_names = st.sampled_from(sorted(QUEUES))
workers = st.sampled_from(WORKERS)
which = st.integers(0, 9)


class Base(RuleBasedStateMachine):
    """A world and its model."""

    #: Makes a store from StoreOptions; the test sets it.
    make: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.make)
        self.model = Model(lambda: self.world.now, {type.name: type for type in TYPES}, QUEUES)
        self.last_token = dict.fromkeys(QUEUES, 0)
        #: steps since everything has come to its end.
        self.steps = 0
        #: ms by which the clock was set back since then.
        self.set_back = 0
        #: until when all fires of the schedule are known; None: no scheduler has looked yet.
        self.fired: int | None = None

    def teardown(self) -> None:
        self.world.close()

    @property
    def store(self) -> Any:
        return self.world.store

    def _key(self, type: Type, n: int) -> str:
        return digest_of_arguments(self.world.tasks[type.name], (n,), {})

    def _job(self, n: int, states: Any = None) -> Job | None:
        """Return one of the jobs, if there is any: of the youngest, those in these states first."""
        jobs = list(self.model.jobs.values())
        some = [job for job in jobs if states is None or job.state in states] or jobs
        return some[-1 - n % len(some)] if some else None

    # -- what must hold ----------------------------------------------------------------

    @invariant()
    def looks_as_the_model_says(self):
        self.steps += 1
        infos, counts = self._look()
        for queue, (_, seen) in zip(QUEUES, counts, strict=True):
            jobs = self.model.in_queue(queue)
            assert infos[queue].keys() == {job.id for job in jobs}, f"in {queue!r}"
            for job in jobs:
                info = infos[queue][job.id]
                assert info.state is job.state, f"{job} is {info.state}"
                run = (job.run.token, job.run.worker) if job.run else (0, "")
                assert (info.token, info.worker) == run, f"{job} is held by {info.worker}"
                assert (info.failures, info.crashes) == (job.failures, job.crashes), f"{job}"
            states = [job.state for job in jobs]
            assert seen == {state.value: states.count(state) for state in State}, f"in {queue!r}"

    def _look(self) -> Any:
        """Read all jobs, and learn what the model cannot foresee: queued or blocked, and which steps have appeared."""
        self.model.note_batches()
        counts = [(queue, stats.counts) for queue, stats in zip(QUEUES, self.store.stats(list(QUEUES)), strict=True)]
        infos = {}
        for queue, seen in counts:
            jobs = self.model.in_queue(queue)
            if sum(seen.values()) > len(jobs):
                self._meet_steps(queue)
                jobs = self.model.in_queue(queue)
            ids = [*(job.id for job in jobs), *self.model.gone]
            infos[queue] = {info.id: info for info in self.store.get_many(queue, ids)} if ids else {}
            for job in jobs:
                info = infos[queue].get(job.id)
                if info and {info.state, job.state} <= {State.QUEUED, State.BLOCKED}:
                    job.state = info.state
        return infos, counts

    def _meet_steps(self, queue: str) -> None:
        for state in State:
            for info in self.store.page(queue, state, 0, 1000):
                if info.id not in self.model.jobs:
                    new = self.model.may_appear(info.id)
                    assert new is not None, f"job {info.id} appeared from nowhere"
                    new.queue, self.model.jobs[new.id] = queue, new

    def _seen(self, job: Job) -> str:
        return get_job(job.id, job.queue).state
