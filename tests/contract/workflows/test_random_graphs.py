"""Graphs that nobody drew, with steps that end as they like, and notes that are read twice, late and out of order."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs import Batch, Workflow
from django_jobs.core.values import State
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import settle
from django_jobs.workflows import engine
from tests.contract.acts import lose_notes, notes_of
from tests.contract.workflows.steps import CANCELLED, DEAD, ENDS, RAN, act, claims, store
from tests.support.dose import dose

__all__ = ["store"]

BAD = {"dead", "cancelled", "expired", "deleted"}
EXAMPLES = dose(40, quick=10, long=1_000)
#: What hypothesis draws must not depend on the ids of jobs, which no seed makes.
chance = st.integers(0, 2**32).map(Random)


@st.composite
def graphs(draw):
    """(steps before it, policy, how it ends) of each step."""
    steps = []
    for number in range(draw(st.integers(1, 9))):
        before = draw(st.sets(st.integers(0, number - 1), max_size=4)) if number else set()
        policy = draw(st.sampled_from(["wait", "wait", "cancel", "run"]))
        steps.append((sorted(before), policy, draw(st.sampled_from([None, None, None, DEAD, CANCELLED]))))
    return steps


def expected(graph):
    """The state of each step when nothing more can happen, and the names of those that ran."""
    found, ran = [], set()
    for before, policy, end in graph:
        states = [found[number] for number in before]
        if policy == "cancel" and any(state in BAD for state in states):
            found.append("cancelled")
        elif all(state == "succeeded" or (policy == "run" and state in BAD) for state in states):
            ran.add(f"{len(found)}")
            found.append("succeeded" if end is None else "dead" if end is DEAD else "cancelled")
        else:
            found.append("waiting")
    return found, ran


class Readers:
    """Runs jobs one by one, and reads notes as several processes do that die now and then."""

    def __init__(self, store, rng):
        self.store, self.rng = store, rng
        self.late = []

    def run(self):
        """Until nothing is left."""
        while True:
            waiting = list(claims(self.store))
            self.rng.shuffle(waiting)
            for claim in waiting:
                settle(self.store, Executor(close_connections=False).attempt(claim, self.store))
                if self.rng.random() < 0.5:
                    self.read()
            if not waiting:
                self.read(drop=True)
                if not self.store.unread(["default"]) and not self.store.stats(["default"])[0].counts["queued"]:
                    return

    def read(self, drop=False):
        """Read the notes; perhaps die before they are dropped, or after half of the work.  Perhaps be late."""
        by_workflow = list(engine._by_workflow(notes_of(self.store, "default")).items())
        self.rng.shuffle(by_workflow)
        for workflow, ends in by_workflow:
            if drop or self.rng.random() < 0.7:
                engine.follow(self.store, workflow, ends)
            self.late.append((workflow, ends))
            for old, applied in self.rng.sample(self.late, min(2, len(self.late))):
                known = [end for end in applied if any(end in done for _, done in self.late)]
                if drop or self.rng.random() < 0.5:
                    engine.follow(self.store, old, known)
        if drop:
            lose_notes(self.store, "default")


def fresh():
    RAN.clear()
    ENDS.clear()


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(graphs(), chance)
def graph_ends_as_expected(store, graph, rng):
    fresh()
    flow, steps = Workflow(), []
    for number, (before, policy, end) in enumerate(graph):
        steps.append(flow.add(act.s(f"{number}"), after=[steps[each] for each in before], if_dead=policy))
        if end is not None:
            ENDS[f"{number}"] = end
    handle = flow.enqueue()
    readers = Readers(store, rng)
    readers.run()
    after, ran = expected(graph)
    assert [step.state for step in handle.steps] == after
    assert handle.state == ("succeeded" if set(after) == {"succeeded"} else "stopped")
    assert handle.info.ended_at is not None
    starts = Counter(name for name, *_ in RAN)
    assert set(starts) == ran
    assert set(starts.values()) <= {1}, "nothing starts twice"
    order = {name: at for at, (name, *_) in enumerate(RAN)}
    for number, (before, _, _) in enumerate(graph):
        for each in before:
            if f"{number}" in order and f"{each}" in order:
                assert order[f"{each}"] < order[f"{number}"]
    failed = sum(state in ("dead", "cancelled") and f"{n}" in starts for n, state in enumerate(after))
    ENDS.clear()
    assert handle.retry() == failed
    readers.run()
    assert handle.state == "succeeded"
    assert max(Counter(name for name, *_ in RAN).values()) <= 2
    assert handle.counts["succeeded"] == len(graph)
    assert handle.counts["live"] == handle.counts["waiting"] == 0


def test_every_graph_ends_as_its_steps_do(store):
    graph_ends_as_expected(store)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.sampled_from([None, None, DEAD, CANCELLED]), max_size=6), chance)
def callbacks_start_once(store, ends, rng):
    fresh()
    names = [f"{number}" for number in range(len(ends))]
    ENDS.update({name: end for name, end in zip(names, ends, strict=True) if end is not None})
    batch = Batch(on_success=act.s("success"), on_complete=act.s("complete"), on_dead=act.s("dead"))
    readers = Readers(store, rng)
    with batch:
        for name in names:
            act.enqueue(name)
            if rng.random() < 0.3:
                readers.run()
    readers.run()
    starts = Counter(name for name, *_ in RAN)
    due = {"complete", *(["dead"] if DEAD in ends else []), *([] if any(ends) else ["success"])}
    assert starts == Counter([*names, *due])
    ENDS.clear()
    batch.handle.retry()
    readers.run()
    starts = Counter(name for name, *_ in RAN)
    assert {name: starts[name] for name in ("success", "complete", "dead") if starts[name]} == dict.fromkeys(
        {"success", *due}, 1
    )
    assert batch.handle.state == "succeeded"
    assert batch.handle.counts[State.SUCCEEDED] == len(ends)


def test_every_callback_starts_once(store):
    callbacks_start_once(store)
