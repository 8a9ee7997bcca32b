"""Random histories of the public API, of workers and of their environment, checked against a model after each step.

The rules call what users and workers call, in one process and one thread.  An attempt is open from its claim until a
rule ends it, whatever the other rules do meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from django_jobs import chain
from django_jobs.core.values import FINISHED, Added
from django_jobs.exceptions import DuplicateJob, QueueFull, StoreUnavailable
from django_jobs.workflows import engine
from django_jobs.workflows.batch import Batch as OpenBatch
from tests.survival.machine.asking import Asking
from tests.survival.machine.base import WORKERS, fault, type_names, which
from tests.survival.machine.model import Batch, Job, Type
from tests.survival.machine.world import QUEUES

#: What callers use as ids.
IDS = ["one", "two", "three"]


class Machine(Asking):
    """The rules of producers, and the one by which everything comes to its end."""

    def _using(self, type: Type, queue: str | None, **given: Any) -> Any:
        given = {name: value for name, value in given.items() if value is not None}
        return self.world.tasks[type.name].using(**({"queue": queue} if queue else {}), **{"block_timeout": 0, **given})

    @rule(
        type=type_names,
        n=st.sampled_from([1, 1, 1, 2]),
        queue=st.sampled_from([None, None, None, *QUEUES]),
        unique=st.sampled_from([None, "queued", "running", "running", "success", 1500]),
        policy=st.sampled_from(["skip", "skip", "replace", "debounce", "raise"]),
        delay=st.sampled_from([0, 0, 0, 700]),
        expires=st.sampled_from([None, None, None, 500, 2_000]),
        id=st.sampled_from([None, None, *IDS]),
        priority=st.integers(-1, 1),
        fault=fault,
    )
    def enqueue(self, type, n, queue, unique, policy, delay, expires, id, priority, fault):
        type, now = self.model.types[type], self.world.now
        new = Job(
            "", queue or type.queue, type, n, mode=unique or "queued", is_promise=id is not None or type.once,
            key=self._key(type, n) if unique else None, due=now + delay if delay else 0,
            expires_at=now + expires if expires else None,
        )  # fmt: skip
        seconds = timedelta(milliseconds=unique) if isinstance(unique, int) else unique
        task = self._using(
            type, queue, unique=seconds, on_conflict=policy if unique else None, priority=priority,
            run_at=_moment(new.due) if delay else None, expires_at=_moment(new.expires_at) if expires else None,
        )  # fmt: skip
        self._enqueue(new, task, policy, id, fault)

    @rule(which=which, fault=fault)
    def enqueue_twin(self, which, fault):
        """Another job with the key of one that is there."""
        with_key = [job for job in self.model.jobs.values() if job.key and not isinstance(job.mode, int)]
        busy = [job for job in with_key if job.run or job.ending] or with_key
        if not busy:
            return
        self.enqueue_twin_of(busy[-1 - which % len(busy)], fault)

    def enqueue_twin_of(self, job: Job, fault: str = "") -> None:
        type = self.model.types[job.type.name]
        new = Job("", job.queue, type, job.n, key=job.key, mode=job.mode, is_promise=type.once)
        self._enqueue(new, self._using(type, job.queue, unique=job.mode, on_conflict="skip"), "skip", None, fault)

    @rule(type=type_names, queue=st.sampled_from(list(QUEUES)), unique=st.sampled_from([None, "running"]))
    def enqueue_behind_late_ones(self, type, queue, unique):
        """Jobs wait until it is too late for them: the next one finds their key and their room free."""
        for expires in [500] * 4 + [None]:
            if expires is None:
                self.pass_time(600)
            self.enqueue(type, 1, queue, unique, "skip", 0, expires, None, 0, "")

    def _enqueue(self, new: Job, task: Any, policy: str, id: str | None, fault: str) -> Any:
        self.world.network.fault = fault
        tried, refused = 0, f"refused:{uuid4()}"
        while True:
            try:
                handle = (task if id is None else task.using(job_id=id)).enqueue(new.n)
                answer = handle.added
                new.id = handle.id if answer in {Added.ADDED, Added.EXISTS} else id or refused
            except QueueFull:
                handle, answer, new.id = None, Added.FULL, id or refused
            except DuplicateJob:
                handle, answer, new.id = None, Added.DUPLICATE, id or refused
            except StoreUnavailable as error:
                id, tried = error.job_id, tried + 1
                assert tried == 1
                continue
            break
        self.world.network.fault = ""
        if handle is not None and answer in {Added.DUPLICATE, Added.REPLACED} and new.id not in self.model.answered:
            assert handle.id == self.model.holder(new.queue, new.key), "not the handle of the job that has the key"
        expected = self.model.enqueue(new, policy)
        allowed = {expected, Added.EXISTS} if tried and expected is Added.ADDED else {expected}
        if policy == "raise":
            allowed |= {Added.DUPLICATE} if expected is Added.REPLACED else set()
        assert answer in allowed, f"{new}: {answer}, not {expected}"
        if expected is Added.EXISTS and handle is not None and (first := self.model.jobs.get(new.id)):
            assert (handle.queue, handle.state) == (first.queue, self._seen(first)), "not the handle of the first"
        return expected

    @rule(type=type_names, numbers=st.lists(st.integers(1, 3), min_size=1, max_size=3), fault=fault)
    def enqueue_many(self, type, numbers, fault):
        type, ids = self.model.types[type], None
        self.world.network.fault = fault
        task, full = self._using(type, None), False
        try:
            handles = task.enqueue_many([(n,) for n in numbers], job_ids=ids)
        except StoreUnavailable as error:
            ids = error.job_ids
            try:
                handles = task.enqueue_many([(n,) for n in numbers], job_ids=ids)
            except QueueFull:
                full = True
        except QueueFull:
            full = True
        self.world.network.fault = ""
        fits = self.model.finds_room(type.queue, len(numbers))
        assert full == (not fits), f"{len(numbers)} jobs in a queue of {self.model.waiting(type.queue)}"
        for n, handle in zip(numbers, [] if full else handles, strict=not full):
            new = Job(handle.id, type.queue, type, n, is_promise=ids is not None or type.once)
            assert self.model.enqueue(new, fits=True) is Added.ADDED

    @rule(numbers=st.lists(st.integers(1, 2), max_size=3), dies=st.booleans(), type=type_names, unique=st.booleans())
    def batch(self, numbers, dies, type, unique):
        """A batch of some jobs; its producer may stop after it has announced a job that never comes."""
        type, note = self.model.types[type], self.world.tasks["m.note"]
        batch = OpenBatch("some", on_success=note.s(1), on_complete=note.s(1), on_dead=note.s(1))
        known = Batch(batch.id, note.queue, self.model.types["m.note"], lacks_one=dies)
        self.model.batches[batch.id] = known
        task = self._using(type, None, unique="running" if unique else None)
        try:
            with batch:
                for n in numbers:
                    new = Job("", type.queue, type, n, is_promise=type.once)
                    new.key, new.mode = (self._key(type, n), "running") if unique else (None, "queued")
                    if self._enqueue(new, task, "skip", None, "") is Added.ADDED:
                        known.members.append(new.id)
                if dies:
                    store = self.store
                    store.join_batch(batch.id, type.queue, [f"never-{batch.id}"], batch.new_fields())
        finally:
            known.is_closed = True

    @rule()
    def batch_waits_for_room(self):
        """A producer waits for more than a minute, then workers make room; or they do not, and it is told so."""
        type, note = self.model.types["m.plain"], self.world.tasks["m.note"]
        while self.model.fits("b", 1):
            self._enqueue(Job("", "b", type), self._using(type, "b"), "skip", None, "")
        batch = OpenBatch("waits", on_complete=note.s(1))
        known = Batch(batch.id, note.queue, self.model.types["m.note"], callbacks=("on_complete",))
        self.model.batches[batch.id] = known
        steps = iter([lambda: self.pass_time(61_000), self._follow, lambda: self.claim_all("b", "w1")])
        self.world.meanwhile = lambda: (next(steps, lambda: None)(), self.model.expire("b"))
        new = Job("", "b", type)
        with batch:
            if self._enqueue(new, self._using(type, "b", block_timeout=60), "skip", None, "") is Added.ADDED:
                known.members.append(new.id)
        self.world.meanwhile, known.is_closed = lambda: None, True

    @rule(steps=st.integers(2, 3))
    def chain(self, steps):
        note = self.world.tasks["m.note"]
        handle = chain(*[note.s(1)] * steps).enqueue()
        known = Batch(handle.id, note.queue, self.model.types["m.note"], steps=steps)
        self.model.batches[handle.id] = known
        first = Job(f"{handle.id}.0", note.queue, known.type, is_promise=True)
        self.model.jobs[first.id] = first

    @precondition(lambda self: self.steps > 20)
    @rule()
    def all_ends(self):
        """Pauses are over, workers do all that is left: every job ends, and all that workflows owe is done."""
        self.steps = 0
        for queue, type in list(self.model.pauses):
            self.pause_or_resume(queue, type, False, 0, "")
        for worker in WORKERS:
            self.worker_stops(worker, True)
        self.pass_time(self.set_back)  # after a step back, what is looked at by a time is looked at so much later
        self.set_back = 0
        for _ in range(60):
            self._follow()
            self._look()
            waiting = [job for job in self.model.jobs.values() if job.state not in FINISHED]
            if not waiting and not list(self.model.missing()):
                break
            if waiting:
                self.pass_time(max(100, min(max(job.due, self.world.now) for job in waiting) - self.world.now))
            else:
                self.pass_time(engine.CHECK)
            for queue in QUEUES:
                for worker in WORKERS:
                    self.claim_all(queue, worker)
            while self._attempt(0) is not None:
                self.run(0, "return", "")
        else:
            raise AssertionError(f"still to do: {waiting}, {list(self.model.missing())}")


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
