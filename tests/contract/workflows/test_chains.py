"""Chains, groups and graphs, to their end."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_jobs import PREVIOUS, Batch, JobFailed, Workflow, chain, group
from django_jobs.workflows import engine
from tests.contract.workflows.steps import CANCELLED, DEAD, ENDS, RAN, act, nothing, run, store

__all__ = ["store"]


def states(handle):
    return [step.state for step in handle.steps]


def test_a_chain_runs_in_order_and_passes_results_on(store):
    handle = chain(act.s("a"), act.s("b", PREVIOUS), act.s("c", PREVIOUS)).enqueue()
    assert handle.state == "running"
    assert states(handle) == ["live", "waiting", "waiting"]
    assert run(store) == ["a", "b", "c"]
    assert RAN[2] == ("c", ["b", ["a"]])
    assert (handle.state, states(handle)) == ("succeeded", ["succeeded"] * 3)
    assert handle.wait(0) == ["c", ["b", ["a"]]]


def test_a_group_runs_side_by_side_and_then_goes_on_once(store):
    handle = group(*[act.s(f"{n}") for n in range(30)]).then(act.s("then", PREVIOUS)).enqueue()
    assert handle.counts["live"] == 30
    ran = run(store)
    assert sorted(ran[:30]) == sorted(f"{n}" for n in range(30))
    assert ran[30:] == ["then"]
    assert RAN[30][1] == [[f"{n}"] for n in range(30)]
    assert handle.state == "succeeded"


def test_a_graph_with_results_of_several_steps(store):
    flow = Workflow("catalogue")
    source = flow.add(act.s("source"), name="source")
    parts = [flow.add(act.s(f"part {n}", source.result, n), after=[source]) for n in range(3)]
    flow.add(act.s("end", [part.result for part in parts]))
    handle = flow.enqueue()
    assert run(store)[0] == "source"
    assert RAN[-1] == ("end", [[f"part {n}", ["source"], n] for n in range(3)])
    assert handle.state == "succeeded"
    assert [step.name for step in handle.steps] == ["source", "", "", "", ""]


def test_a_chain_of_groups(store):
    handle = chain(
        act.s("a"), group(act.s("b", PREVIOUS), chain(act.s("c"), act.s("d", PREVIOUS))), act.s("e", PREVIOUS)
    )
    handle.enqueue()
    ran = run(store)
    assert sorted(ran) == list("abcde")
    assert (ran[0], ran[-1]) == ("a", "e")
    assert RAN[-1] == ("e", [["b", ["a"]], ["d", ["c"]]])


@pytest.mark.parametrize("how", ["thread", "event loop"])
def test_waiting_ends_with_the_last_step(store, how):
    handle = group(act.s("a"), act.s("b")).then(act.s("c", PREVIOUS)).enqueue()
    with ThreadPoolExecutor() as pool:
        if how == "thread":
            waits = pool.submit(handle.wait, 30)
        else:
            waits = pool.submit(asyncio.run, handle.await_result(30))
        run(store)
        assert waits.result(30) == ["c", [["a"], ["b"]]]


def test_waiting_for_a_batch_ends_with_its_last_job(store):
    with Batch() as batch:
        act.enqueue_many([("a",), ("b",)])
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(batch.handle.wait, 30)
        run(store)
        assert waits.result(30) is None


def test_none_is_passed_on(store):
    chain(nothing.s(), act.s("b", PREVIOUS)).enqueue()
    run(store)
    assert RAN[-1] == ("b", None)


@pytest.mark.parametrize("end", [DEAD, CANCELLED])
def test_a_dead_step_stops_what_depends_on_it_and_nothing_else(store, end):
    flow = Workflow()
    first, other = flow.add(act.s("first")), flow.add(act.s("other"))
    second = flow.add(act.s("second"), after=first)
    flow.add(act.s("third"), after=[second, other])
    flow.add(act.s("beside"), after=other)
    ENDS["first"] = end
    handle = flow.enqueue()
    assert sorted(run(store)) == ["beside", "first", "other"]
    assert handle.state == "stopped"
    assert handle.info.ended_at is not None
    with pytest.raises(JobFailed, match="stopped"):
        handle.wait(0)
    ENDS.clear()
    assert handle.retry() == 1
    assert handle.state == "running"
    assert run(store) == ["first", "second", "third"]
    assert handle.state == "succeeded"


def test_if_dead_cancel_and_run(store):
    flow = Workflow()
    first = flow.add(act.s("first"))
    off = flow.add(act.s("off", first.result), if_dead="cancel")
    flow.add(act.s("after off"), after=off, if_dead="cancel")
    flow.add(act.s("on", first.result), if_dead="run")
    ENDS["first"] = DEAD
    handle = flow.enqueue()
    assert run(store) == ["first", "on"]
    assert RAN[-1] == ("on", None)
    assert (handle.state, states(handle)) == ("stopped", ["dead", "cancelled", "cancelled", "succeeded"])
    ENDS.clear()
    assert handle.retry() == 1
    assert run(store) == ["first", "off", "after off"]
    assert (handle.state, states(handle)) == ("succeeded", ["succeeded"] * 4)


def test_cancelling_lets_nothing_start(store):
    handle = chain(act.s("a"), act.s("b")).enqueue()
    handle.cancel()
    assert run(store) == []
    assert (handle.state, states(handle)) == ("cancelled", ["cancelled", "cancelled"])
    assert handle.info.ended_at is not None


def test_one_that_is_stopped_can_be_cancelled_and_never_goes_on(store):
    handle = chain(act.s("a"), act.s("b")).enqueue()
    ENDS["a"] = DEAD
    run(store)
    assert handle.info.may_be_cancelled
    handle.cancel()
    assert (handle.state, states(handle)) == ("cancelled", ["dead", "cancelled"])
    with pytest.raises(JobFailed, match="was cancelled"):
        handle.retry()
    # Somebody queues its dead job again: the check of the workflow cancels that job.
    assert store.revive("default", [handle.steps[0].job_id]) == [handle.steps[0].job_id]
    engine.advance(store, "default")
    assert (handle.state, handle.info.ended_at) == ("cancelled", None)
    engine.check(store, handle.id, 1000)
    assert run(store) == []
    assert (handle.state, states(handle)) == ("cancelled", ["cancelled", "cancelled"])
    assert handle.info.ended_at is not None


def test_cancelling_what_has_succeeded_has_no_effect(store):
    handle = chain(act.s("a")).enqueue()
    run(store)
    handle.cancel()
    assert handle.state == "succeeded"


def test_a_step_that_was_deleted_stops_the_workflow(store):
    handle = chain(act.s("a"), act.s("b")).enqueue()
    store.delete("default", [handle.steps[0].job_id])
    assert run(store) == []
    assert (handle.state, states(handle)) == ("stopped", ["deleted", "waiting"])
    assert handle.info.stopped_by == {"deleted": 1}


@pytest.mark.parametrize("if_dead", ["wait", "cancel", "run"])
def test_a_step_that_is_dropped_before_its_turn_never_starts_and_the_others_do(store, if_dead):
    flow = Workflow("dropped")
    first = flow.add(act.s("first"))
    dropped = flow.add(act.s("dropped"), after=[first], if_dead=if_dead)
    flow.add(act.s("beside"), after=[first])
    flow.add(act.s("behind"), after=[dropped])
    handle = flow.enqueue()
    for _ in range(2):  # a second time, it changes nothing
        assert engine.drop(store, handle.id, "1")
    assert (states(handle), handle.counts["waiting"]) == (["live", "cancelled", "waiting", "waiting"], 2)
    assert run(store) == ["first", "beside"]
    assert (handle.state, states(handle)) == ("stopped", ["succeeded", "cancelled", "succeeded", "waiting"])
    assert handle.retry() == 0
    engine.check(store, handle.id, 60_000)
    assert run(store) == []


def test_a_step_that_has_started_is_not_dropped(store):
    handle = chain(act.s("a"), act.s("b")).enqueue()
    assert not engine.drop(store, handle.id, "0")
    assert run(store) == ["a", "b"]
    assert [engine.drop(store, handle.id, step) for step in "012"] == [False] * 3
    assert not engine.drop(store, "w" + "0" * 32, "1"), "there is no such workflow"
    assert (handle.state, handle.counts["succeeded"]) == ("succeeded", 2)


def test_a_step_is_dropped_whose_turn_has_come_and_whose_job_has_not(store, monkeypatch):
    """Its process stands still between the end of the step before it and the job of this one."""
    handle = chain(act.s("a"), act.s("b")).enqueue()
    add, starts = store.enqueue, []
    monkeypatch.setattr(store, "enqueue", lambda *given, **named: starts.append(given) or [])
    run(store)
    monkeypatch.setattr(store, "enqueue", add)
    assert (len(starts), states(handle)) == (1, ["succeeded", "live"])
    assert engine.drop(store, handle.id, "1")
    store.enqueue(*starts[0])
    assert (run(store), handle.state, states(handle)) == ([], "stopped", ["succeeded", "cancelled"])
