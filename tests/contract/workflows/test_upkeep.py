"""What a crash left undone is done by the check of each workflow, and nothing of one that has ended is left behind."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.conf import settings
from django.test import override_settings

from django_jobs import PREVIOUS, Batch, BatchClosed, StoreUnavailable, TooManySteps, Workflow, chain, group
from django_jobs.core.values import Added, Claim
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import settle
from django_jobs.stores import use_store
from django_jobs.stores.values.workflows import READ_WITHIN, End
from django_jobs.workflows import engine, sending
from tests.contract.acts import lose_notes, notes_of
from tests.contract.workflows.steps import DEAD, ENDS, RAN, act, claims, run, store

__all__ = ["store"]

Q, DAY = "default", 86_400_000


def check_all(store, clock, ms):
    """Let time pass, and do the checks that are due, as maintenance does."""
    clock.advance(ms)
    due = store.workflows_due(100, 1000)
    for id in due:
        engine.check(store, id, DAY)
    return due


def settled_without_notes(store):
    """Run what waits, and lose the notes, as a server does that lost its last second."""
    for claim in claims(store):
        settle(store, Executor(close_connections=False).attempt(claim, store))
    lose_notes(store, Q)


def test_first_steps_that_were_not_enqueued_are_enqueued_by_the_check(store, clock, monkeypatch):
    monkeypatch.setattr(sending.engine, "start_first", lambda *_: None)
    handle = group(act.s("a"), act.s("b")).enqueue()
    monkeypatch.undo()
    assert run(store) == []
    assert check_all(store, clock, engine.CHECK_SOON) == [handle.id]
    assert sorted(run(store)) == ["a", "b"]
    assert handle.state == "succeeded"


def test_ends_that_were_noted_nowhere_are_found(store, clock):
    handle = chain(act.s("a"), act.s("b", PREVIOUS)).enqueue()
    settled_without_notes(store)
    check_all(store, clock, engine.CHECK_SOON)
    assert run(store) == [], "nothing has been quiet for a minute yet"
    check_all(store, clock, engine.CHECK)
    assert run(store) == ["b"]
    assert RAN[-1] == ("b", ["a"]), "and its result is passed on"
    assert handle.state == "succeeded"


@pytest.mark.parametrize("noted", [True, False])
def test_the_end_of_a_killed_job_is_found_when_its_attempt_has_ended(store, clock, noted):
    with Batch(on_dead=act.s("dead")):
        act.enqueue("a")
    (claimed,) = claims(store)
    store.kill(Q, [claimed.id], "hangs")
    check_all(store, clock, engine.CHECK)
    assert run(store) == []
    store.release(Q, [claimed])
    if not noted:
        lose_notes(store, Q)
        check_all(store, clock, engine.CHECK)
    assert run(store) == ["dead"]


def test_a_job_that_is_nowhere_is_given_up_and_can_never_appear(store, clock):
    handle = chain(act.s("a"), act.s("b")).enqueue()
    (first,) = engine.unpack(store.workflow_fields(handle.id, ["f0"])[0])
    vanish(store, first.new.id)
    check_all(store, clock, 3 * engine.CHECK)
    assert handle.info.stopped_by == {"deleted": 1}
    assert store.enqueue(Q, [first.new]) == [Added.EXISTS]
    assert run(store) == []


def vanish(store, id):
    """The store loses a job, and what it remembers of it."""
    names = store.keys.of(Q)
    store.transport.command("HDEL", names["jobs"], id)
    for key in ("queued", "remembered_at"):
        store.transport.command("ZREM", names[key], id)
    store.transport.command("HDEL", names["remembered"], id)


def test_a_batch_whose_jobs_were_announced_and_never_came(store, clock):
    batch = Batch(on_complete=act.s("complete"))
    with batch:
        act.enqueue("a")
        store.join_batch(batch.id, Q, ["never-came"], {})
    assert run(store) == ["a"]
    assert batch.handle.state == "running"
    check_all(store, clock, 2 * engine.CHECK)
    assert run(store) == ["complete"]
    assert batch.handle.counts["deleted"] == 1


@pytest.mark.parametrize("many", [False, True])
def test_a_producer_that_waits_for_room_for_minutes_adds_to_its_batch(store, clock, monkeypatch, many):
    """While it waits, the batch does not count its jobs, and the check of the batch does not give them up."""
    pauses = iter(range(100))

    def minutes_pass(pause):
        if next(pauses) == 1:
            run(store)
        else:
            check_all(store, clock, 3 * engine.CHECK)

    monkeypatch.setattr("time.sleep", minutes_pass)
    small = {"QUEUES": {Q: {"MAX_LENGTH": 1, "ON_FULL": "block"}}}
    with override_settings(DJANGO_JOBS=settings.DJANGO_JOBS | small):
        use_store(store)  # the settings brought another
        with Batch(on_success=act.s("success")) as batch:
            act.enqueue("first")
            act.enqueue_many([("late",)]) if many else act.enqueue("late")
    use_store(store)
    assert run(store) == ["late", "success"]
    assert batch.handle.info.total == 2
    assert batch.handle.state == "succeeded"


def test_a_producer_that_stood_still_is_told_that_its_job_was_given_up(store, clock):
    """Between joining and enqueueing: it must not believe that the job exists."""
    batch = Batch(on_complete=act.s("complete"))
    with batch:
        act.enqueue("a")
        store.join_batch(batch.id, Q, ["late"], {})
        assert run(store) == ["a"]
        check_all(store, clock, 2 * engine.CHECK)
        with pytest.raises(BatchClosed, match=r"gave up job late.* was not enqueued"):
            act.using(job_id="late").enqueue("late")
    assert run(store) == ["complete"]


def test_a_job_that_was_never_added_is_given_up_whatever_the_equal_one_is_called(store, clock):
    """Its producer died before it could take it back from the batch."""
    act.using(job_id="import:nightly", unique="success").enqueue("same")
    with Batch(on_complete=act.s("complete")) as batch:
        act.enqueue("a")
        store.join_batch(batch.id, Q, ["mine"], {})
    assert act.using(job_id="mine", unique="success").enqueue("same").state == "duplicate"
    assert sorted(run(store)) == ["a", "same"]
    check_all(store, clock, 2 * engine.CHECK)
    assert run(store) == ["complete"]
    assert batch.handle.counts["deleted"] == 1


def test_callbacks_that_were_begun_and_not_enqueued(store, clock, monkeypatch):
    batch = Batch(on_success=act.s("success"))
    monkeypatch.setattr(engine, "_start", lambda *_: None)
    with batch:
        act.enqueue("a")
        run(store)
    monkeypatch.undo()
    assert (batch.handle.state, batch.handle.info.callbacks) == ("succeeded", {"on_success": True})
    check_all(store, clock, engine.CHECK_SOON)
    assert run(store) == ["success"]


@pytest.mark.parametrize("found_by", ["the note", "the check"])
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "over"])
def test_a_callback_that_was_begun_before_a_crash_starts_once(store, clock, found_by, is_open):
    """The process that applied the last note died before it enqueued the callback."""
    ENDS["a"] = DEAD
    batch = Batch(on_dead=act.s("dead"))
    with batch:
        act.enqueue("a")
        if is_open:
            _apply_and_die(store, batch, found_by)
            _find(store, clock, found_by)
            assert run(store) == ["dead"]
    if not is_open:
        _apply_and_die(store, batch, found_by)
        _find(store, clock, found_by)
        assert run(store) == ["dead"]
    _find(store, clock, "the check")
    assert run(store) == []


def test_callbacks_that_were_begun_by_the_end_of_the_block_before_a_crash_start_once(store, clock):
    """Who enters the batch again, to finish it, does not wait for the check."""
    batch = Batch(on_success=act.s("success"), on_complete=act.s("complete"))
    with batch:
        act.enqueue("a")
        run(store)
        assert {each.step for each in store.end_steps(batch.id, [], "close").ready} == {"on_success", "on_complete"}
    assert sorted(run(store)) == ["complete", "success"]
    check_all(store, clock, 2 * engine.CHECK)
    assert run(store) == []


def _apply_and_die(store, batch, found_by):
    (claim,) = claims(store)
    settle(store, Executor(close_connections=False).attempt(claim, store))
    (note,) = notes_of(store, Q)
    (begun,) = store.end_steps(batch.id, [End(claim.id, note.number, note.state)]).ready
    assert begun.step == "on_dead"
    if found_by == "the check":
        lose_notes(store, Q)


def _find(store, clock, found_by):
    if found_by == "the note":
        engine.advance(store, Q)
    else:
        check_all(store, clock, engine.CHECK)


def test_callbacks_are_not_enqueued_again_when_their_ids_are_forgotten(make_store, clock):
    store = make_store(history=0, idempotency=1000)
    use_store(store)
    RAN.clear()
    ENDS.clear()
    ENDS["a"] = DEAD
    batch = Batch(on_dead=act.s("dead"))
    with batch:
        act.enqueue("a")
        assert run(store) == ["a", "dead"]
        for _ in range(5):
            clock.advance(120_000)
            store.prune(Q)
            check_all(store, clock, engine.CHECK)
            assert run(store) == []


def test_a_note_stays_until_all_that_follows_is_in_the_store(store, monkeypatch):
    """As when the process dies between the two, or the queue of the next step cannot be reached."""

    def away(*_):
        raise StoreUnavailable

    handle = chain(act.s("a"), act.s("b")).enqueue()
    monkeypatch.setattr(engine, "start", away)
    (claim,) = claims(store)
    settle(store, Executor(close_connections=False).attempt(claim, store))
    with pytest.raises(StoreUnavailable):
        engine.advance(store, Q)
    assert store.unread([Q]) == [Q]
    monkeypatch.undo()
    assert run(store) == ["b"]
    assert handle.state == "succeeded"


def test_one_process_at_a_time_follows_the_notes_of_a_queue(store, clock):
    """Several would do the same work, each for itself."""
    handle = group(act.s("a"), act.s("b")).enqueue()
    for claim in claims(store):
        settle(store, Executor(close_connections=False).attempt(claim, store))
    taken = store.take_notes(Q, "first")
    assert len(taken) == 2
    assert engine.advance(store, Q) == 0
    assert store.take_notes(Q, "first", taken[:1]) == taken[1:], "what was followed goes, what was not comes again"
    assert engine.advance(store, Q) == 0
    clock.advance(READ_WITHIN + 1)
    assert engine.advance(store, Q) == 1, "the first is dead: its turn is over"
    assert store.take_notes(Q, "first", taken) == []
    assert not store.unread([Q])
    check_all(store, clock, 2 * engine.CHECK)
    assert handle.state == "succeeded"


def test_a_reader_that_is_late_removes_no_note_that_came_meanwhile(store, clock):
    group(act.s("a"), act.s("b")).enqueue()
    first, second = claims(store)
    settle(store, Executor(close_connections=False).attempt(first, store))
    taken = store.take_notes(Q, "late")
    clock.advance(READ_WITHIN + 1)
    assert engine.advance(store, Q) == 1
    settle(store, Executor(close_connections=False).attempt(second, store))
    assert len(store.take_notes(Q, "late", taken)) == 1


def test_a_note_that_cannot_be_read_stops_no_other(store):
    for note in (b"", b"x", b"1:2", b"9" * 40, b"\xff" * 30):
        store.transport.client.rpush(store.keys.of(Q)["notes"], note)
    handle = chain(act.s("a"), act.s("b")).enqueue()
    assert run(store) == ["a", "b"]
    assert handle.state == "succeeded"


def test_a_note_that_comes_late_changes_nothing(store):
    ENDS["a"] = DEAD
    handle = chain(act.s("a"), act.s("b")).enqueue()
    (claim,) = claims(store)
    settle(store, Executor(close_connections=False).attempt(claim, store))
    (dead,) = notes_of(store, Q)
    engine.advance(store, Q)
    ENDS.clear()
    handle.retry()
    late = [End("0", dead.number, dead.state)]
    engine.follow(store, handle.id, late)
    assert (handle.state, handle.info.stopped_by) == ("running", {}), "it waits again"
    assert run(store) == ["a", "b"]
    engine.follow(store, handle.id, late)
    assert handle.state == "succeeded"


def test_a_step_that_left_the_history_is_never_enqueued_again(make_store, clock):
    store = make_store(history=0)
    use_store(store)
    RAN.clear()
    ENDS.clear()
    handle = chain(act.s("a"), act.s("b")).enqueue()
    (first,) = engine.unpack(store.workflow_fields(handle.id, ["f0"])[0])
    assert run(store) == ["a", "b"]
    clock.advance(120_000)
    store.prune(Q)
    assert store.get(Q, first.new.id) is None
    assert store.enqueue(Q, [first.new]) == [Added.EXISTS]
    assert run(store) == []


def test_results_stay_until_the_steps_that_need_them_have_ended(store):
    flow = Workflow()
    source = flow.add(act.s("source"))
    flow.add(act.s("one", source.result))
    flow.add(act.s("two", source.result))
    handle = flow.enqueue()
    kept = []
    for _ in range(2):
        for claim in claims(store):
            Executor(close_connections=False).run(claim, store)
            kept.append(store.workflow_fields(handle.id, ["r:0"])[0])
    assert kept == [b'["source"]', b'["source"]', None]


def test_nothing_is_left_of_a_workflow_a_day_after_its_end(store, clock):
    handles = [chain(act.s("a"), act.s("b", PREVIOUS)).enqueue(), group(act.s("c")).then(act.s("d")).enqueue()]
    with Batch(on_success=act.s("success")) as batch:
        act.enqueue("e")
    run(store)
    check_all(store, clock, 2 * engine.CHECK)
    assert store.count_workflows() == 3
    check_all(store, clock, DAY + engine.CHECK)
    assert store.count_workflows() == 0
    assert store.workflow_ids() == []
    for id in (*[handle.id for handle in handles], batch.id):
        assert dict(store.workflow_scan(id, "")) == {}
    assert store.unread([Q]) == []
    assert store.transport.command("EXISTS", store.keys.fleet("workflow_checks")) == 0
    client = store.transport.client
    left = [key for key in client.scan_iter() if f"{store.keys.namespace}:~".encode() in key]
    assert not [key for key in left if not 0 < client.pttl(key) <= 600_000], "answers to calls stay ten minutes"


def test_a_stopped_workflow_stays_as_long_as_its_dead_job(store, clock):
    """Who retries the job after a week finds the rest of the workflow, too."""
    ENDS["a"] = DEAD
    handle, gone = chain(act.s("a"), act.s("b")).enqueue(), chain(act.s("a"), act.s("b")).enqueue()
    with Batch(on_success=act.s("success")) as batch:
        act.enqueue("a")
    run(store)
    ENDS.clear()
    store.delete(Q, [f"{gone.id}.0"])
    engine.advance(store, Q)
    for _ in range(7):
        check_all(store, clock, DAY + engine.CHECK)
    assert sorted(store.workflow_ids()) == sorted([handle.id, batch.id])
    assert (handle.retry(), batch.handle.retry()) == (1, 1)
    assert sorted(run(store)) == ["a", "a", "b", "success"]
    assert (handle.state, batch.handle.state) == ("succeeded", "succeeded")


def test_a_workflow_that_was_never_stored_as_a_whole_leaves_no_trace(redis_store, clock):
    id = f"w{clock():012x}{1:020x}"
    redis_store._index("add", id, 1000)
    redis_store._build(id, [("total", 3)])
    check_all(redis_store, clock, 2_000)
    assert redis_store.count_workflows() == 1, "its last part may still be on its way"
    check_all(redis_store, clock, 2 * engine.CHECK)
    assert redis_store.count_workflows() == 0
    assert dict(redis_store.workflow_scan(id, "")) == {}


def test_a_second_process_that_enqueues_the_same_step_adds_nothing(store):
    handle = chain(act.s("a"), act.s("b")).enqueue()
    (claim,) = claims(store)
    assert isinstance(claim, Claim)
    settle(store, Executor(close_connections=False).attempt(claim, store))
    (note,) = notes_of(store, Q)
    ends = [End("0", note.number, note.state)]
    first = store.end_steps(handle.id, ends)
    second = store.end_steps(handle.id, ends)
    assert [ready.step for ready in first.ready] == [ready.step for ready in second.ready] == ["1"]
    for followed in (first, second):
        engine.start(store, engine._starts(store, handle.id, followed.ready))
    assert run(store) == ["b"]


@pytest.mark.parametrize("size", [3, 60_000])
def test_results_of_any_size_are_passed_on_or_the_step_says_why_not(store, size):
    parts = [act.s("x" * size) for _ in range(6)]
    handle = group(*parts).then(act.s("all", PREVIOUS)).enqueue()
    run(store)
    if size == 3:
        assert handle.state == "succeeded"
        return
    assert handle.state == "stopped"
    info = store.get(Q, handle.steps[-1].job_id)
    assert "MAX_PAYLOAD" in info.attempts[-1].error


@pytest.mark.parametrize("value", [b"x", b"9223372036854775807", b""])
@pytest.mark.parametrize("field", ["live", "succeeded", "dead", "total", "u:0", "u:1"])
def test_a_number_that_cannot_be_added_to_stops_no_step(store, clock, field, value):
    flow = Workflow()
    first = flow.add(act.s("a"))
    second = flow.add(act.s("b", first.result))
    flow.add(act.s("c", first.result, second.result))
    handle = flow.enqueue()
    with Batch(on_complete=act.s("after")) as batch:
        act.enqueue("member")
    for id in (handle.id, batch.id):
        store.transport.client.hset(store.keys.workflow(id), field, value)
    wanted = {"a", "b", "c", "member", "another"}
    act.enqueue("another")
    with suppress(BatchClosed, TooManySteps), batch:  # refused, or in it
        act.enqueue("late")
        wanted.add("late")
    ran = run(store)
    check_all(store, clock, engine.CHECK + engine.CHECK_SOON)
    assert set(ran + run(store)) >= wanted


def test_a_workflow_that_cannot_be_read_holds_up_none_whose_ends_are_applied_with_its_own(store, clock, caplog):
    handles = [chain(act.s(f"a{n}"), act.s(f"b{n}")).enqueue() for n in range(5)]
    key = store.keys.workflow(handles[2].id)
    store.transport.client.delete(key)
    store.transport.client.set(key, "no workflow")
    for claim in claims(store):
        settle(store, Executor(close_connections=False).attempt(claim, store))
    assert engine.advance(store, Q) == 5
    assert sorted(run(store)) == ["b0", "b1", "b3", "b4"]
    assert [handle.state for handle in handles[:2] + handles[3:]] == ["succeeded"] * 4
    assert handles[2].id in caplog.text
    assert store.unread([Q]) == []
