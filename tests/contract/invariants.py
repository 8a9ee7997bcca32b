"""What must hold after each call of machine.py, and how its model follows what a store may decide."""

from __future__ import annotations

from collections import Counter

from hypothesis.stateful import RuleBasedStateMachine, invariant

from django_jobs.core.signature import signature
from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from tests.contract.modelled import Model

Q = "default"
IDS = [f"j{n}" for n in range(5)]


class CheckedMachine(RuleBasedStateMachine):
    """A machine with a store and its model."""

    now: int
    store: Store
    model: Model

    @invariant()
    def looks_as_the_model_says(self):
        for id in IDS:
            info, entry = self.store.get(Q, id), self.model.jobs.get(id)
            assert (info is None) == (entry is None)
            if info is not None and entry is not None:
                assert info.state is entry.state
                assert (info.record, info.token, info.worker) == (entry.record, entry.token, entry.worker)
                assert (info.failures, info.crashes) == (entry.failures, entry.crashes)

    @invariant()
    def counts_what_it_has(self):
        counts = self.store.stats([Q])[0].counts
        states = [entry.state for entry in self.model.jobs.values()]
        assert counts == {state.value: states.count(state) for state in State}

    @invariant()
    def groups_what_has_failed(self):
        for state in (State.DEAD, State.RETRY):
            groups = self.store.failure_groups([Q], state)
            names = Counter(entry.name for entry in self.model.jobs.values() if entry.state is state)
            assert sum((Counter({group.name: group.jobs}) for group in groups), Counter()) == names
            for group in groups:
                found, _ = self.store.listed([Q], state, 100, groups=[group])
                assert len(found) == group.jobs
                for info in found:
                    entry = self.model.jobs[info.id]
                    assert (info.state, entry.state, entry.name) == (state, state, group.name)
                    assert signature(info.attempts[-1] if info.attempts else None) == group.signature

    @invariant()
    def keeps_the_limit(self):
        limited = [e for e in self.model.jobs.values() if e.controls.limit_key]
        running = sum(e.state is State.RUNNING for e in limited)
        killed = sum(bool(self.model.jobs[id].controls.limit_key) for id in self.model.endings)
        assert running + killed <= 1
        if any(e.state is State.BLOCKED for e in limited):
            parked = any(info.parked_at for info in self.store.page(Q, State.BLOCKED))
            assert parked or running or killed or any(e.state is State.QUEUED for e in limited), (
                "a job is blocked by nobody"
            )

    def _promote(self) -> None:
        for id, entry in self.model.jobs.items():
            if entry.state in {State.SCHEDULED, State.RETRY} and entry.due <= self.now:
                self.model.move(id, State.QUEUED)

    def _end_killed(self, over) -> None:
        """These attempts have ended: `over(id, worker, token)`."""
        for id, (worker, token) in list(self.model.endings.items()):
            if over(id, worker, token):
                del self.model.endings[id]
                if self.model.jobs[id].state is State.BLOCKED:
                    self.model.jobs[id].state = State.QUEUED
        self._see_blocked()

    def _see_blocked(self) -> None:
        """Whether a job waits as queued or blocked is the store's to decide; the limit is checked above."""
        for id, entry in self.model.jobs.items():
            if entry.state in {State.QUEUED, State.BLOCKED}:
                info = self.store.get(Q, id)
                assert info is not None
                assert info.state in {State.QUEUED, State.BLOCKED}
                entry.state = info.state
