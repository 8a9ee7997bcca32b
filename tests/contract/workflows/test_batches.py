"""Batches, and what is called at their end."""

from __future__ import annotations

import pytest

from django_jobs import Batch, BatchClosed, InvalidArguments, current_batch, job
from django_jobs.browse import batch_jobs
from django_jobs.stores.values.workflows import End
from tests.contract.workflows.steps import DEAD, ENDS, RAN, act, run, store

__all__ = ["store"]


@job(name="tests.steps.more")
def more(n):
    """Add `n` jobs to the batch it runs in."""
    RAN.append((f"more {n}",))
    with current_batch():
        for i in range(n):
            act.enqueue(f"added {i}")


def new(name="", **what):
    return Batch(name, on_success=act.s("success"), on_complete=act.s("complete"), on_dead=act.s("dead"), **what)


def test_callbacks_when_all_succeeded(store):
    with new("import") as batch:
        act.enqueue("a")
        act.enqueue_many([("b",), ("c",)])
    assert batch.handle.counts["live"] == 3
    assert sorted(run(store)) == ["a", "b", "c", "complete", "success"]
    assert batch.handle.state == "succeeded"
    assert batch.handle.info.callbacks == {"on_success": True, "on_complete": True, "on_dead": False}


def test_a_dead_job_is_told_at_once_and_success_comes_after_its_retry(store):
    ENDS["b"] = DEAD
    with new() as batch:
        act.enqueue("a")
        act.enqueue("b")
    assert sorted(run(store)) == ["a", "b", "complete", "dead"]
    assert batch.handle.state == "stopped"
    ENDS.clear()
    assert batch.handle.retry() == 1
    assert sorted(run(store)) == ["b", "success"]
    assert batch.handle.state == "succeeded"


def test_its_own_jobs_add_to_it(store):
    with new() as batch:
        more.enqueue(2)
    assert sorted(run(store)) == ["added 0", "added 1", "complete", "more 2", "success"]
    assert batch.handle.info.total == 3


def test_nothing_is_called_before_it_closes(store):
    batch = new()
    with batch:
        act.enqueue("a")
        assert run(store) == ["a"]
        assert batch.handle.state == "running"
    assert sorted(run(store)) == ["complete", "success"]


def test_an_empty_batch_is_done_at_once(store):
    with new() as batch:
        pass
    assert sorted(run(store)) == ["complete", "success"]
    assert batch.handle.state == "succeeded"


def test_adding_to_a_done_batch_raises(store):
    with new() as batch:
        act.enqueue("a")
    run(store)
    with pytest.raises(BatchClosed, match="is done"), batch:
        act.enqueue("b")
    assert run(store) == []


def test_an_error_in_the_block_leaves_it_open(store):
    batch = new()
    with pytest.raises(InvalidArguments), batch:
        act.enqueue_many([("a",)]) and act.enqueue(wrong=1)
    assert run(store) == ["a"]
    assert (batch.handle.state, batch.handle.info.closed) == ("running", False)
    with batch:
        act.enqueue("b")
    assert sorted(run(store)) == ["b", "complete", "success"]


def test_jobs_that_were_not_added_do_not_count(store):
    with new() as batch:
        act.using(unique="queued").enqueue("a")
        assert act.using(unique="queued").enqueue("a").state == "duplicate"
    assert sorted(run(store)) == ["a", "complete", "success"]
    assert batch.handle.info.total == 1


def test_a_page_of_its_jobs_goes_on_where_the_last_one_ended(store):
    ENDS["7"] = DEAD
    with Batch() as batch:
        act.enqueue_many([(f"{n}",) for n in range(1200)])
    run(store, 900)
    info = batch.handle.info
    for state, number in (("", 1200), ("live", info.counts["live"]), ("succeeded", info.counts["succeeded"])):
        seen, after = [], ""
        while True:
            page = batch_jobs(info, state, after=after, limit=70)
            assert len(page.rows) <= 70
            seen += [job.job_id for job in page.rows]
            if not (after := page.following):
                break
        assert (len(seen), len(set(seen))) == (number, number)
    (dead,) = batch_jobs(info, "dead").rows
    assert dead.state == "dead"
    assert sorted(job.job_id for job in batch.handle.steps) == [job.job_id for job in batch.handle.steps]
    for wrong in ("x", "1_x", "_"):
        with pytest.raises(ValueError, match="position"):
            batch_jobs(info, after=wrong)


def test_a_page_reads_few_more_than_it_shows(store, monkeypatch):
    with Batch() as batch:
        act.enqueue_many([(f"{n}",) for n in range(1200)])
    asked, part = [], store.workflow_part

    def counting(*args):
        found = part(*args)
        asked.append(len(found[0]))
        return found

    monkeypatch.setattr(store, "workflow_part", counting)
    batch_jobs(batch.handle.info, limit=50)
    assert sum(asked) <= 2 * 50
    asked.clear()
    assert batch_jobs(batch.handle.info, "dead", limit=50) == ([], "")
    assert asked == []


def test_cancelling_calls_nobody(store):
    with new() as batch:
        act.enqueue_many([(f"{n}",) for n in range(5)])
    batch.handle.cancel()
    assert run(store) == []
    assert batch.handle.state == "cancelled"
    assert batch.handle.counts["cancelled"] == 5


@pytest.mark.parametrize("state", ["dead", "deleted", "succeeded"])
def test_an_end_that_was_looked_up_is_answered_the_same_when_it_is_told_twice(store, state):
    """The answer may be lost: then the callbacks that it named start because of the second."""
    with new() as batch:
        act.enqueue("a")
    (step,) = (job.job_id for job in batch_jobs(batch.handle.info).rows)
    first, second = (store.end_steps(batch.id, [End(step, "=0", state)]) for _ in range(2))
    assert {each.step for each in first.ready} == {each.step for each in second.ready} != set()
