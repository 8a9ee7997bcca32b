"""What signatures, workflows and batches refuse, what waits for a commit, and what runs at once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_jobs import (
    PREVIOUS,
    Batch,
    InvalidArguments,
    InvalidWorkflow,
    JobFailed,
    PayloadError,
    QueueFull,
    TooManySteps,
    UnknownQueue,
    Workflow,
    WorkflowNotFound,
    chain,
    current_batch,
    get_workflow,
    group,
    job,
)
from django_jobs.enqueueing import commits
from django_jobs.outbox import rows
from django_jobs.stores import get_store
from django_jobs.workflows import sending

RAN: list[tuple[object, ...]] = []


@job(name="tests.flow.step", max_attempts=1)
def step(a, b=0):
    RAN.append((a, b))
    if a == "bad":
        raise ValueError(a)
    return a


@job(name="tests.flow.silent", keep_result=0)
def silent(): ...


@job(name="tests.flow.limited", max_concurrency=1, concurrency_key="a")
def limited(a): ...


@job(name="tests.flow.once", unique="queued")
def once(a):
    RAN.append(("once", a))


@job(name="tests.flow.adds")
def adds():
    with current_batch():
        step.enqueue("more")


@job(name="tests.flow.fleeting", expires_in=60)
def fleeting(a):
    RAN.append(("fleeting", a))


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: step.s(), InvalidArguments, "missing a required argument"),
        (lambda: step.s(1, c=2), InvalidArguments, "unexpected keyword"),
        (lambda: step.s(object()), PayloadError, r"args\[0\] \(a\)"),
        (lambda: step.s("x" * 300_000), PayloadError, "MAX_PAYLOAD"),
        (lambda: step.using(job_id="mine").s(1), InvalidArguments, "job_id"),
        (lambda: step.using(on_commit=False).s(1), InvalidArguments, "on_commit"),
        (lambda: limited.s(PREVIOUS), InvalidArguments, "concurrency_key"),
        (lambda: step.enqueue(PREVIOUS), PayloadError, "only inside a workflow"),
        (lambda: step.s(1).enqueue(), InvalidArguments, "is a signature"),
        (lambda: chain(), InvalidWorkflow, "no parts"),
        (lambda: chain(step.s(1), 7), InvalidWorkflow, "7 is not a signature"),
        (lambda: group([step.s(1)]), InvalidWorkflow, "not a signature"),
        (lambda: chain(step.s(PREVIOUS)).enqueue(), InvalidWorkflow, "is the first"),
        (lambda: Workflow("empty").enqueue(), InvalidWorkflow, "has no steps"),
        (lambda: Workflow().add(step), InvalidWorkflow, "a step is a signature"),
        (lambda: Workflow().add(step.s(1), if_dead="no"), InvalidWorkflow, "if_dead='no'"),
        (lambda: Workflow().add(step.s(1), after=["a"]), InvalidWorkflow, "after='a' is not a step"),
        (lambda: Workflow().add(step.s(1), after=Workflow().add(step.s(2))), InvalidWorkflow, "another workflow"),
        (lambda: Workflow().add(step.s(Workflow().add(step.s(2)).result)), InvalidWorkflow, "another workflow"),
        (lambda: Workflow().add(step.s(PREVIOUS)), InvalidWorkflow, "no steps are before it"),
        (lambda: Workflow(7), InvalidWorkflow, "text of at most 200"),
        (lambda: Batch(on_success=step), InvalidWorkflow, "on_success=.* is not a signature"),
        (lambda: Batch(on_success=step.s(PREVIOUS)), InvalidWorkflow, "passes none on"),
        (lambda: current_batch(), InvalidWorkflow, "does not run in a job of a batch"),
        (lambda: get_workflow("w" + 32 * "0"), WorkflowNotFound, "no workflow or batch"),
    ],
)
def test_what_is_refused(jobs, make, error, says):
    with pytest.raises(error, match=says):
        make()
    jobs.assert_not_enqueued()
    assert get_store().count_workflows() == 0


def test_a_name_used_twice_and_a_result_that_is_not_kept(jobs):
    flow = Workflow("shop")
    flow.add(step.s(1), name="one")
    with pytest.raises(InvalidWorkflow, match="two steps have the name 'one'"):
        flow.add(step.s(2), name="one")
    nothing = flow.add(silent.s())
    with pytest.raises(InvalidWorkflow, match="keep_result=0"):
        flow.add(step.s(nothing.result))


def test_ten_thousand_steps_and_no_more(jobs):
    flow = Workflow()
    signature = step.s(1)
    for _ in range(10_000):
        flow.add(signature)
    with pytest.raises(TooManySteps, match="at most 10000 steps"):
        flow.add(signature)


def test_an_unknown_queue_is_refused_when_the_signature_is_made(jobs):
    with pytest.raises(UnknownQueue):
        step.using(queue="nowhere")


@pytest.mark.django_db
def test_a_workflow_waits_for_the_commit_and_never_comes_after_a_rollback(jobs):
    with transaction.atomic():
        handle = chain(step.s(1), step.s(2)).enqueue()
        assert handle.state == "deferred"
        jobs.assert_not_enqueued()
        with pytest.raises(JobFailed, match="deferred"):
            handle.wait(0)
    jobs.assert_enqueued(step, args=[1])
    assert handle.state == "running"
    with transaction.atomic():
        lost = chain(step.s(3)).enqueue()
        transaction.set_rollback(True)
    jobs.run_all()
    assert RAN == [(1, 0), (2, 0)]
    with pytest.raises(WorkflowNotFound):
        get_workflow(lost.id)


@pytest.mark.django_db
def test_a_workflow_that_was_cancelled_before_its_commit_is_never_sent(jobs):
    with transaction.atomic():
        handle = chain(step.s(1)).enqueue()
        handle.cancel()
    assert handle.state == "cancelled"
    assert jobs.run_all() == []
    assert get_store().count_workflows() == 0


@pytest.mark.django_db
def test_a_batch_waits_for_the_commit(jobs):
    with transaction.atomic():
        with Batch(on_success=step.s("success")) as batch:
            step.enqueue("a")
            step.enqueue("b")
        jobs.assert_not_enqueued()
    jobs.run_all()
    assert sorted(RAN) == [("a", 0), ("b", 0), ("success", 0)]
    jobs.assert_workflow(batch, "succeeded", succeeded=2)
    with pytest.raises(AssertionError, match="Expected stopped"):
        jobs.assert_workflow(batch, "stopped")


def test_steps_are_never_unique_and_jobs_of_a_batch_are(jobs):
    group(once.s(1), once.s(1)).enqueue()
    jobs.run_all()
    assert RAN == [("once", 1)] * 2


def test_eager_runs_a_workflow_where_it_is_enqueued(jobs):
    with jobs.eager():
        handle = chain(step.s("a"), step.s(PREVIOUS, 2), group(step.s(PREVIOUS), step.s("c"))).enqueue()
        assert handle.state == "succeeded"
        assert [each.state for each in handle.steps] == ["succeeded"] * 4
        assert RAN[:2] == [("a", 0), ("a", 2)]
        stopped = chain(step.s("bad"), step.s("never")).enqueue()
        assert stopped.state == "stopped"
        RAN.clear()
        with Batch(on_success=step.s("success"), on_complete=step.s("complete"), on_dead=step.s("dead")):
            step.enqueue("a")
        assert RAN == [("a", 0), ("success", 0), ("complete", 0)]
        RAN.clear()
        with Batch(on_success=step.s("success"), on_dead=step.s("dead")):
            step.enqueue("bad")
        assert RAN == [("bad", 0), ("dead", 0)]


def test_a_full_queue_refuses_a_workflow_as_a_whole_and_never_its_later_steps(jobs):
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": {"default": {"MAX_LENGTH": 2}}}):
        step.enqueue("there")
        with pytest.raises(QueueFull):
            group(*[step.s(n) for n in range(2)]).enqueue()
        assert get_store().count_workflows() == 0
        jobs.run_all()
        handle = chain(step.s(0), group(*[step.s(n) for n in range(5)])).enqueue()
        jobs.run_all()
        jobs.assert_workflow(handle, "succeeded", succeeded=6)


@pytest.mark.parametrize("outbox", [False, True])
@pytest.mark.django_db(transaction=True)
def test_a_workflow_for_whose_first_steps_there_is_never_room_is_refused_at_once(jobs, outbox):
    """Steps for a later time need no room when they come."""
    queues = {"default": {"MAX_LENGTH": 2}}
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": queues, "OUTBOX": outbox}), transaction.atomic():
        with pytest.raises(InvalidWorkflow, match=r"3 steps in queue 'default', whose MAX_LENGTH is 2"):
            group(*[step.s(n) for n in range(3)]).enqueue()
        assert not rows("default").exists()
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": queues}):
        later = [step.using(run_at=timezone.now() + timedelta(hours=1)).s(n) for n in range(3)]
        group(*later, step.s(3), step.s(4)).enqueue()
        with pytest.raises(QueueFull):
            step.enqueue(5)


def test_a_workflow_inside_a_batch_and_a_batch_inside_a_batch_are_refused(jobs):
    with Batch():
        with pytest.raises(InvalidWorkflow, match="consists of jobs"):
            chain(step.s(1)).enqueue()
        with pytest.raises(InvalidWorkflow, match="inside another"), Batch():
            pass


async def enqueue_async():
    handle = await chain(step.s("a"), step.s("b")).aenqueue()
    async with Batch(on_success=step.s("success")) as batch:
        await step.aenqueue("c")
    return handle, batch


def test_the_async_calls_do_the_same(jobs):
    import asyncio

    handle, batch = asyncio.run(enqueue_async())
    jobs.run_all()
    jobs.assert_workflow(handle, "succeeded")
    jobs.assert_workflow(batch, "succeeded")


def test_enqueue_middleware_sees_each_step(jobs):
    seen.clear()
    with override_settings(DJANGO_JOBS={"STORE": "memory", "ENQUEUE_MIDDLEWARE": [f"{__name__}.note"]}):
        handle = chain(step.s("a"), step.s(PREVIOUS)).enqueue()
    jobs.run_all()
    jobs.assert_workflow(handle, "succeeded")
    assert seen == ["tests.flow.step"] * 2


seen: list[str] = []


def note(get_next):
    def layer(new_job):
        seen.append(new_job.name)
        new_job.meta = {"request": "7"}
        return get_next(new_job)

    return layer


def test_jobs_that_are_too_late_to_start_take_no_room_from_a_workflow(jobs):
    queues = {"default": {}, "small": {"MAX_LENGTH": 1}}
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": queues}):
        get_store().pause("small")
        late = fleeting.using(queue="small").enqueue("late")
        with pytest.raises(QueueFull):
            chain(step.using(queue="small").s(1), step.s(2)).enqueue()
        jobs.travel(61)
        handle = chain(step.using(queue="small").s(1), step.s(2)).enqueue()
        assert (handle.state, late.refresh().state) == ("running", "expired")


@pytest.mark.django_db(transaction=True)
def test_the_delays_of_first_steps_count_from_the_call_as_those_of_jobs(jobs, monkeypatch):
    """The transaction goes on for two minutes after it."""
    monkeypatch.setattr(commits, "monotonic", lambda: jobs.now_ms() / 1000)
    monkeypatch.setattr(sending, "monotonic", lambda: jobs.now_ms() / 1000)
    with transaction.atomic():
        handles = [fleeting.enqueue("job"), chain(fleeting.s("step"), step.s(2)).enqueue()]
        in_time = chain(step.s(3), fleeting.s("later step")).enqueue()
        jobs.travel(120)
    jobs.run_all()
    assert (handles[0].refresh().state, handles[1].counts["expired"]) == ("expired", 1)
    assert (RAN, in_time.state) == ([(3, 0), ("fleeting", "later step")], "succeeded")
