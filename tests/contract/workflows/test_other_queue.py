"""`raise Retry(queue=…)`: the same job goes on in another queue, once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from threading import Thread
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs import PREVIOUS, Batch, Fail, Retry, chain, current_job, get_job, group, job, operations
from django_jobs.core.values import Claim, State
from django_jobs.exceptions import JobNotFound
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import settle
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.entries import read_move
from django_jobs.workflows import end_calls, engine
from tests.conftest import Clock
from tests.contract.acts import lose_notes
from tests.contract.workflows.steps import RAN as STEPPED
from tests.contract.workflows.steps import act, claims
from tests.support.dose import dose

A, B, C = "a", "b", "c"
_numbers = count()
QUEUES = {queue: {} for queue in (A, B, C, "default")}
#: (queue, attempt, arguments) of each attempt.
RAN: list[tuple[Any, ...]] = []
TOLD: list[dict[str, Any]] = []
FATES: list[str] = []
DAY = 86_400


@job(name="tests.move.tell", queue=C)
def tell(told: dict[str, Any]) -> None:
    TOLD.append(told)


@job(name="tests.move.go", queue=A, max_attempts=8, on_end=tell, max_concurrency=1)
def go(*road: str, in_: float = 0, n: int = 0) -> str:
    """Be retried in each of these queues in turn."""
    me = current_job()
    RAN.append((me.queue, me.attempt, road))
    if road:
        raise Retry("by another road", queue=road[0], args=road[1:], in_=in_)
    return me.queue


@job(name="tests.move.wander", queue=A, max_attempts=8)
def wander(*road: str) -> None:
    """As go, without limit and without a call at its end."""
    RAN.append((current_job().queue, current_job().attempt, road))
    if road:
        raise Retry(queue=road[0], args=road[1:], in_=0)


@job(name="tests.move.roam", queue=A, max_attempts=8)
def roam(*road: str, in_: float = 0) -> str:
    """Be retried in each of these queues in turn, and die at "dead" unless FATES says otherwise."""
    me = current_job()
    RAN.append((me.queue, me.attempt, road))
    fate = road[0] if road else me.queue
    if fate == "dead":
        if not FATES:
            raise Fail("dead")
        fate = FATES.pop()
    if fate != me.queue:
        raise Retry(queue=fate, args=road[1:], in_=in_)
    return me.queue


@job(name="tests.move.stay", queue=A, max_attempts=8)
def stay(queue: Any) -> None:
    raise Retry(queue=queue, in_=0)


@pytest.fixture
def store(make_store: Any, clock: Any) -> Iterator[Store]:
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": QUEUES}):
        made = make_store(clock=clock)
        use_store(made)
        RAN.clear()
        TOLD.clear()
        FATES.clear()
        STEPPED.clear()
        yield made
        use_store(None)


def attempt_all(store: Store) -> int:
    """Run what waits, as a process does that dies before it has done what follows.  Returns how many jobs ran."""
    found: list[Claim] = list(claims(store))
    for claim in found:
        settle(store, Executor(close_connections=False).attempt(claim, store))
    return len(found)


def follow(store: Store) -> None:
    for queue in store.unread(store.queues()):
        end_calls.follow(store, queue)
        engine.advance(store, queue)


def run(store: Store, clock: Any) -> None:
    """Run jobs and what follows, retries too, until nothing is left."""
    clock.advance(60_000)
    while attempt_all(store) or store.unread(store.queues()):
        follow(store)
        clock.advance(60_000)


def places(store: Store, id: str) -> list[str]:
    return [queue for queue in store.queues() if store.get(queue, id) is not None]


def test_an_attempt_that_gives_no_reason_has_a_short_one(store: Store, clock: Any) -> None:
    handle = wander.enqueue(B)
    attempt_all(store)
    follow(store)
    assert handle.refresh().error == "django_jobs.exceptions.Retry: Try again later."


def test_the_same_job_goes_on_in_the_other_queue(store: Store, clock: Any) -> None:
    handle = go.using(tags=["red"]).enqueue(B, in_=5)
    attempt_all(store)
    follow(store)
    info = store.get(B, handle.id)
    assert info is not None
    assert places(store, handle.id) == [B]
    assert (info.state, info.at, info.failures) == (State.RETRY, clock() + 5_000, 1)
    assert (handle.refresh().queue, handle.state, handle.tags) == (B, "retry", ("red",))
    assert [(line.attempt, line.outcome, line.error) for line in handle.attempts] == [(1, "retried", "by another road")]
    run(store, clock)
    assert [where[:2] for where in RAN] == [(A, 1), (B, 2)]
    assert (handle.refresh().state, handle.result, get_job(handle.id).queue) == ("succeeded", B, B)
    assert [(told["id"], told["queue"], told["state"], told["attempts"]) for told in TOLD] == [
        (handle.id, B, "succeeded", 2)
    ]


def test_it_is_known_and_obeys_people_on_its_way(store: Store, clock: Any) -> None:
    handles = [go.enqueue(B, in_=5, n=n) for n in range(5)]
    attempt_all(store)
    while attempt_all(store):
        ...
    for handle in handles:
        assert places(store, handle.id) == []
        assert (handle.refresh().state, handle.queue, get_job(handle.id).state) == ("retry", A, "retry")
        assert handle.attempts[-1].error == "by another road"
    assert handles[0].cancel() is True
    assert store.kill(A, [handles[1].id], "no need") == [handles[1].id]
    assert (handles[1].refresh().state, handles[1].queue) == ("dead", B)
    assert store.delete(A, [handles[2].id]) == [handles[2].id]
    tomorrow = clock.now + DAY * 1_000
    assert store.reschedule(A, [handles[3].id], tomorrow) == [handles[3].id]
    with pytest.raises(JobNotFound):
        handles[2].refresh()
    assert store.get(B, handles[3].id).at == tomorrow
    run(store, clock)
    states = [handle.refresh().state for handle in handles if handle is not handles[2]]
    assert states == ["cancelled", "dead", "retry", "succeeded"]
    with pytest.raises(JobNotFound):
        handles[2].refresh()
    assert [where[0] for where in RAN] == [A, A, A, A, A, B]


@pytest.mark.parametrize("arrived", [False, True], ids=["on its way", "arrived"])
@pytest.mark.parametrize("verb", operations.VERBS)
def test_operators_who_see_it_in_the_first_queue_reach_it(store: Store, clock: Any, verb: str, arrived: bool) -> None:
    handle = go.enqueue(B, in_=600)
    attempt_all(store)
    if arrived:
        follow(store)
    assert operations.act(verb, A, [handle.id], run_at=clock() + 5_000).moved == [handle.id]


@pytest.mark.parametrize("arrived", [False, True], ids=["on its way", "arrived"])
@pytest.mark.parametrize("edit", [operations.edit, operations.edit_and_revive])
def test_operators_can_give_it_other_arguments(store: Store, clock: Any, edit: Any, arrived: bool) -> None:
    handle = go.enqueue(B, in_=5)
    attempt_all(store)
    if arrived:
        follow(store)
    edit(A, handle.id, [C], {})
    run(store, clock)
    assert RAN == [(A, 1, (B,)), (B, 2, (C,)), (C, 3, ())]


def test_operators_are_told_who_has_its_key_in_the_other_queue(store: Store, clock: Any) -> None:
    unique = stay.using(unique="success")
    mine = unique.enqueue(B)
    attempt_all(store)
    follow(store)
    store.kill(B, [mine.id], "no need")
    other = unique.using(queue=B).enqueue(B)
    assert operations.act("revive", A, [mine.id]).taken == {mine.id: other.id}


@pytest.mark.parametrize("act", ["cancel", "kill", "delete"])
def test_acts_on_a_job_whose_queue_has_lost_its_arrival_find_nothing(store: Store, clock: Any, act: str) -> None:
    """A replica that had not seen the last writes of that queue took over: the job was there for the second time."""
    handle = wander.enqueue(B, A)
    attempt_all(store)
    names = store.keys.of(A)
    remembered = store.transport.command("HGET", names["remembered"], handle.id)
    follow(store)
    clock.advance(60_000)
    attempt_all(store)
    follow(store)
    assert places(store, handle.id) == [A]
    for key in ("jobs", "retry", "tries", "attempts"):
        store.transport.command("DEL", names[key])
    store.transport.command("HSET", names["remembered"], handle.id, remembered)
    found = store.kill(A, [handle.id], "no need") if act == "kill" else getattr(store, act)(A, [handle.id])
    assert not found


def test_a_job_that_was_asked_to_stop_is_cancelled_where_it_is(store: Store) -> None:
    handle = go.enqueue(B)
    (claim,) = claims(store)
    attempted = Executor(close_connections=False).attempt(claim, store)
    handle.cancel()
    settle(store, attempted)
    follow(store)
    assert (handle.refresh().state, handle.queue) == ("cancelled", A)


def test_a_caller_that_waits_hears_of_the_end_in_the_other_queue(store: Store, clock: Any) -> None:
    handle = go.enqueue(B)
    heard: list[Any] = []
    waiter = Thread(target=lambda: heard.append(handle.wait(30)))
    waiter.start()
    while waiter.is_alive():
        run(store, clock)
    assert heard == [B]


def test_wherever_a_follower_stops_another_one_does_the_rest(store: Store, clock: Any) -> None:
    """Each has done a part before it died, and one that stood still does all of it once more."""
    handle = go.enqueue(B, A, B)
    entries: list[tuple[str, str]] = []
    for _ in range(12):
        attempt_all(store)
        for queue in store.unread(store.queues()):
            keys = [key for key, info in store.end_calls(queue)[0] if info.id == handle.id and "moved" in key]
            assert store.deliver(queue, keys) == keys, "the first follower dies before it removes the entry"
            assert store.deliver(queue, keys) == keys
            entries += [(queue, key) for key in keys]
        clock.advance(20_000)
        attempt_all(store)
    follow(store)
    assert [where[:2] for where in RAN] == [(A, 1), (B, 2), (A, 3), (B, 4)]
    assert places(store, handle.id) == [B]
    assert handle.refresh().state == "succeeded"
    assert get_job(handle.id).queue == B


def test_a_late_follower_brings_nothing_back(store: Store, clock: Any) -> None:
    """It has read the entry, and stands still while the job goes on, ends and is forgotten."""
    handle = go.enqueue(B)
    attempt_all(store)
    late = _Late(store)
    follow(store)
    run(store, clock)
    assert store.delete(B, [handle.id]) == [handle.id]
    assert late() == late.keys
    assert places(store, handle.id) == []
    clock.advance(10 * 86_400_000)
    store.prune(B)
    assert late(now=0) == []
    assert places(store, handle.id) == []


class _Late:
    """A follower that has read the entries of a queue, and makes its calls later."""

    def __init__(self, store: Store, queue: str = A) -> None:
        self.store, self.queue, self.now = store, queue, store.now()
        self.keys = [key for key, _ in store.end_calls(queue)[0] if ":moved:" in key]
        entries = self.keys and store.transport.command("HMGET", store.keys.of(queue)["end_calls"], *self.keys)
        self.moves = [read_move(key, entry) for key, entry in zip(self.keys, entries, strict=True)]

    def __call__(self, now: int | None = None) -> list[str]:
        latest = 2**50 if now is None else self.now + 600_000
        return [
            key
            for key, (queue, id, digest, args) in zip(self.keys, self.moves, strict=True)
            if self.store._arrives(queue, id, digest, latest, args)
        ]


def test_an_entry_that_cannot_be_read_holds_up_no_other(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    handle = go.enqueue(B)
    attempt_all(store)
    key = store.keys.of(A)["end_calls"]
    [moved] = _Late(store).keys
    whole = store.transport.command("HGET", key, moved)
    for field, value in {"x": "x", "1:moved:y": "z", "y:moved:y": whole, "2:moved:": whole[:-1] + b"x"}.items():
        store.transport.command("HSET", key, field, value)
    follow(store)
    assert store.unread([A]) == []
    assert places(store, handle.id) == [B]
    assert "'1:moved:y' of queue 'a' cannot be read" in caplog.text


@pytest.mark.parametrize("arrived", [False, True], ids=["on its way", "arrived"])
@pytest.mark.parametrize("queue", [A, B, C])
def test_the_id_stays_that_of_this_job_in_every_queue(store: Store, clock: Any, arrived: bool, queue: str) -> None:
    mine = go.using(job_id="order-7")
    mine.enqueue(B, in_=600)
    attempt_all(store)
    if arrived:
        follow(store)
        clock.advance(30 * 3_600_000)  # longer than the first queue remembers the id
        store.prune(A)
        store.forget_identities()
    again = go.using(job_id="order-7", queue=queue).enqueue("x")
    assert again.added == "exists"
    follow(store)
    assert places(store, "order-7") == [B]
    assert again.refresh().queue == B


@pytest.mark.parametrize("minutes", [0, 30, 90])
def test_a_later_job_with_the_same_id_goes_the_same_way(store: Store, clock: Any, minutes: int) -> None:
    """The queues may remember, for an hour more than the id, that the earlier job has left them."""
    roads = [(A, 1, (B, A)), (B, 2, (A,)), (A, 3, ())]
    wander.using(job_id="order-7").enqueue(B, A)
    run(store, clock)
    assert roads == RAN
    clock.advance(DAY * 1_000 + minutes * 60_000)
    for queue in (A, B):
        store.prune(queue)
    again = wander.using(job_id="order-7").enqueue(B, A)
    assert again.added == "added"
    run(store, clock)
    assert roads + roads == RAN
    assert again.refresh().state == "succeeded"


@pytest.mark.parametrize(("unique", "in_first"), [("success", "added"), (timedelta(hours=1), "duplicate")])
def test_its_unique_key_moves_with_it(store: Store, clock: Any, unique: Any, in_first: str) -> None:
    """A key for a period is also kept for it in the first queue."""
    stay.using(unique=unique).enqueue(B)
    attempt_all(store)
    follow(store)
    assert [stay.using(unique=unique, queue=queue).enqueue(B).added for queue in (A, B)] == [in_first, "duplicate"]
    clock.advance(3_600_000)
    assert stay.using(unique=unique, queue=B).enqueue(B).added == ("duplicate" if unique == "success" else "added")


def test_it_waits_without_its_key_if_another_job_of_that_queue_has_it(store: Store) -> None:
    unique = stay.using(unique="success")
    other, mine = unique.using(queue=B).enqueue(B), unique.enqueue(B)
    (claim,) = [claim for claim in claims(store) if claim.id == mine.id]
    settle(store, Executor(close_connections=False).attempt(claim, store))
    follow(store)
    assert (mine.refresh().queue, mine.state) == (B, "retry")
    assert unique.using(queue=B).enqueue(B).id == other.id


@pytest.mark.parametrize("queue", ["nowhere", "", 7, [B]])
def test_an_unknown_queue_fails_the_attempt(store: Store, queue: Any) -> None:
    handle = stay.enqueue(queue)
    attempt_all(store)
    assert (handle.refresh().state, handle.queue) == ("retry", A)
    assert str(handle.error).startswith(f"django_jobs.exceptions.UnknownQueue: Queue {queue!r} is not in")


def test_the_same_queue_is_an_ordinary_retry(store: Store) -> None:
    handle = stay.enqueue(A)
    attempt_all(store)
    assert (handle.refresh().state, handle.queue, store.unread([A])) == ("retry", A, [])


def test_a_workflow_goes_on_with_what_a_step_returned_in_the_other_queue(store: Store, clock: Any) -> None:
    handle = chain(roam.s(B), act.s("next", PREVIOUS)).enqueue()
    run(store, clock)
    assert (handle.state, handle.wait(0)) == ("succeeded", ["next", B])


def test_the_end_of_a_step_in_the_other_queue_counts_after_those_in_the_first(store: Store, clock: Any) -> None:
    stay.enqueue_many([(A,)] * 50)  # the numbers of the first queue are higher
    handle = chain(roam.s("dead"), act.s("next", PREVIOUS)).enqueue()
    run(store, clock)
    assert handle.state == "stopped"
    FATES.append(B)
    assert handle.retry() == 1
    run(store, clock)
    assert (handle.state, handle.wait(0)) == ("succeeded", ["next", B])


def test_a_step_that_is_dead_in_the_other_queue_is_retried_there(store: Store, clock: Any) -> None:
    handle = chain(roam.s(B, "dead"), act.s("next", PREVIOUS)).enqueue()
    run(store, clock)
    assert handle.state == "stopped"
    FATES.append(C)
    assert handle.retry() == 1
    run(store, clock)
    assert (handle.state, handle.wait(0)) == ("succeeded", ["next", C])


@pytest.mark.parametrize("arrived", [False, True], ids=["on its way", "arrived"])
def test_a_workflow_that_is_cancelled_cancels_its_step_in_the_other_queue(store: Store, arrived: bool) -> None:
    handle = group(roam.s(B, in_=600), act.s("x")).enqueue()
    attempt_all(store)
    if arrived:
        follow(store)
    handle.cancel()
    follow(store)
    assert handle.state == "cancelled"
    assert [info.state for info in store.page(B, State.CANCELLED)] == ["cancelled"]


def test_a_step_may_wait_in_the_other_queue_for_months_and_its_end_is_found(store: Store, clock: Any) -> None:
    """No check takes it for lost, or enqueues it again; and one finds its end if the note of it is lost."""
    handle = chain(roam.s(B, in_=90 * DAY), act.s("next", PREVIOUS)).enqueue()
    attempt_all(store)
    follow(store)
    for _ in range(89):
        clock.advance(DAY * 1000)
        check_all(store)
    assert handle.state == "running"
    clock.advance(2 * DAY * 1000)
    attempt_all(store)
    lose_notes(store, B)
    check_all(store)
    run(store, clock)
    assert (handle.state, handle.wait(0)) == ("succeeded", ["next", B])
    assert len(RAN) == 2


def check_all(store: Store) -> None:
    """Do the checks that are due, as maintenance does, and prune."""
    for id in store.workflows_due(100, 1000):
        engine.check(store, id, DAY)
    for queue in (A, B):
        store.prune(queue)
    attempt_all(store)
    follow(store)


@pytest.mark.parametrize("fate", [B, "dead"])
def test_a_batch_ends_when_its_job_has_ended_in_the_other_queue(store: Store, clock: Any, fate: str) -> None:
    with Batch(on_success=act.s("good"), on_complete=act.s("all")) as batch:
        roam.enqueue(B, *[fate] * (fate == "dead"))
    run(store, clock)
    run(store, clock)
    assert batch.handle.counts["dead" if fate == "dead" else "succeeded"] == 1
    assert sorted(name for name, *_ in STEPPED) == (["all"] if fate == "dead" else ["all", "good"])


def test_the_last_attempt_ends_where_it_is(store: Store) -> None:
    handle = stay.using(max_attempts=1).enqueue(B)
    attempt_all(store)
    assert (handle.refresh().state, handle.queue) == ("dead", A)


STEPS = ("run", "run", "read", "bring", "bring and remove", "follow", "enqueue again", "cancel")


@settings(max_examples=dose(40, long=600), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    road=st.lists(st.sampled_from([A, B]), min_size=2, max_size=6),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), min_size=15, max_size=30),
)
def test_whoever_does_what_in_whatever_order_there_is_one_job(redis_store: Store, road: Any, steps: Any) -> None:
    """Followers stop anywhere, and go on later, while the job moves on, comes back, is cancelled and enqueued again."""
    number = next(_numbers)
    clock, id = Clock(1_800_000_000_000 + number * 100_000_000), f"j{number}"
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": QUEUES}):
        store = type(redis_store)(redis_store.transport, replace(redis_store.options, clock=clock))
        use_store(store)
        RAN.clear()
        handle = wander.using(job_id=id).enqueue(*road)
        late: list[_Late] = []
        cancelled = False
        for step, n in steps:
            if step == "run":
                clock.advance(60_000)
                attempt_all(store)
            elif step == "read":
                late += [each for queue in (A, B) if (each := _Late(store, queue)).keys]
            elif step in ("bring", "bring and remove") and late:
                follower = late[n % len(late)]
                keys = follower(follower.now)
                if step != "bring":
                    store.drop_end_calls(follower.queue, keys)
            elif step == "follow":
                follow(store)
            elif step == "enqueue again":
                assert wander.using(job_id=id, queue=(A, B, C)[n % 3]).enqueue().added == "exists"
            elif step == "cancel" and n == 0:
                cancelled = handle.cancel() or cancelled
            assert len(places(store, id)) <= 1
            handle.refresh()
        run(store, clock)
        assert len(places(store, id)) == 1
        assert [number for _, number, _ in RAN] == list(range(1, len(RAN) + 1)), "each attempt once"
        assert handle.refresh().state == ("cancelled" if cancelled else "succeeded")
        assert cancelled or len(RAN) == 1 + len(road)
        use_store(None)
