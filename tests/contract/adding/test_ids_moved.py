"""An id that the caller gives has one job in the namespace, whatever queue its type sends it to today."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs import Batch, InvalidArguments, JobHandle, StoreUnavailable, job
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Added, Completed, Job, Lane, NewJob
from django_jobs.exceptions import StoreError
from django_jobs.serialization.record import encode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.transport import Call
from django_jobs.workflows import engine
from tests.conftest import Clock
from tests.support.dose import dose

QUEUES = ("a", "b", "c")
DAY = 86_400_000


@job(name="tests.moved.pay", queue="a")
def pay(order: int = 0) -> None:
    """What must not be done twice."""


class Killed(BaseException):
    """The process ends here."""


class Line:
    """A transport between a process and its store.  `before` is called before each call, and `after` after it; what
    they raise ends the process there."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        self.sent: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, script: Any, keys: Any, args: Any) -> Any:
        return self._call(lambda: self.inner.run(script, keys, args), [(script, keys, args)])

    def run_together(self, calls: list[Call]) -> Any:
        return self._call(lambda: self.inner.run_together(calls), calls)

    def _call(self, call: Callable[[], Any], sent: list[Call]) -> Any:
        self.before()
        self.sent += sent
        answer = call()
        self.after()
        return answer


@pytest.fixture
def process(make_store: Callable[..., Store]) -> Iterator[Callable[..., Store]]:
    """Make the store of another process; keyword arguments are fields of StoreOptions."""

    def make(**options: Any) -> Store:
        store = make_store(**options)
        store.transport = Line(store.transport)
        return store

    use_store(None)
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": {queue: {} for queue in QUEUES}}):
        yield make
        use_store(None)


def enqueue(store: Store, queue: str, id: str) -> JobHandle:
    """Enqueue as this process does, whose release sends the type to that queue."""
    use_store(store)
    return pay.using(queue=queue, job_id=id).enqueue(7)


def homes(store: Store, id: str) -> list[str]:
    """The queues that have the job, as another program sees it."""
    line, store.transport = store.transport, getattr(store.transport, "inner", store.transport)
    try:
        return [queue for queue in QUEUES if store.get(queue, id) is not None]
    finally:
        store.transport = line


def run_and_forget(store: Store, queue: str, id: str) -> None:
    """The job runs, and leaves the history."""
    claims = store.claim(queue, "w", 10, lane=Lane.SHARED, lease=60_000).claims
    assert [claim.id for claim in claims] == [id]
    assert store.complete(queue, [Completed(claim) for claim in claims]) == []
    assert store.delete(queue, [id]) == [id]


# -- one job -------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True])
def test_the_id_of_a_job_adds_no_other_when_its_type_has_another_queue(
    process: Callable[..., Store], ended: bool
) -> None:
    store = process()
    use_store(store)
    registry.register(JobDefinition(lambda: None, name="tests.moved.charge", queue="a"))
    try:
        first = enqueue_by_name("order-7")
        registry.unregister("tests.moved.charge")
        registry.register(JobDefinition(lambda: None, name="tests.moved.charge", queue="b"))
        if ended:
            run_and_forget(store, "a", "order-7")
        again = enqueue_by_name("order-7")
    finally:
        registry.unregister("tests.moved.charge")
    assert (first.added, again.added) == (Added.ADDED, Added.EXISTS)
    assert (again.queue, again.state) == ("a", "succeeded" if ended else "queued")
    assert again == first
    assert homes(store, "order-7") == ([] if ended else ["a"])


def enqueue_by_name(id: str) -> JobHandle:
    from django_jobs.enqueueing.submit import enqueue_by_name as submit_by_name

    return submit_by_name("tests.moved.charge", job_id=id)


def test_of_many_in_one_call_each_handle_names_the_queue_of_its_job(process: Callable[..., Store]) -> None:
    store = process()
    for n in range(0, 30, 3):
        enqueue(store, "a", f"o-{n}")
    handles = pay.using(queue="b").enqueue_many([(n,) for n in range(30)], job_ids=[f"o-{n}" for n in range(30)])
    assert [handle.queue for handle in handles] == ["a", "b", "b"] * 10
    assert [homes(store, handle.id) for handle in handles] == [[handle.queue] for handle in handles]


def test_an_id_is_free_when_its_time_is_over(process: Callable[..., Store], clock: Clock) -> None:
    store = process()
    enqueue(store, "a", "x")
    clock.advance(3 * DAY)
    store.forget_identities()
    assert enqueue(store, "b", "x").queue == "a", "its job has not ended"
    run_and_forget(store, "a", "x")
    clock.advance(DAY - 1)
    store.forget_identities()
    assert enqueue(store, "b", "x").queue == "a"
    clock.advance(1)
    store.prune("a")
    clock.advance(DAY)
    while store.forget_identities():
        pass
    keys = [name for n in range(16) for name in store.keys.of(f"/{n}").values() if not name.endswith("answers")]
    assert [store.transport.command("EXISTS", name) for name in keys] == [0] * len(keys)
    assert enqueue(store, "b", "x").queue == "b"


def test_maintenance_forgets_no_id_that_was_just_given_again(process: Callable[..., Store], clock: Clock) -> None:
    """It looks; a process reserves the id, and enqueues its job; then it forgets what it has looked at."""
    store, other = process(), process()
    other.reserve("a", ["x"])
    clock.advance(2 * DAY)
    line: Any = store.transport
    line.after = lambda: setattr(line, "after", lambda: None) or enqueue(other, "a", "x")
    store.forget_identities()
    assert enqueue(store, "b", "x").queue == "a"
    assert homes(store, "x") == ["a"]


@given(id=st.text(min_size=1, max_size=200), moved=st.booleans())
@settings(max_examples=dose(60, long=1000), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_id_is_refused_or_has_one_job(process: Callable[..., Store], id: str, moved: bool) -> None:
    store = process()
    try:
        pay.using(job_id=id)
    except InvalidArguments:
        return
    enqueue(store, "a", id)
    enqueue(store, "b" if moved else "a", id)
    assert homes(store, id) == ["a"]


@given(ids=st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=5, unique=True))
@settings(max_examples=dose(60, long=1000), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_store_takes_ids_in_any_script(process: Callable[..., Store], make_job: Any, ids: list[str]) -> None:
    """Middleware may give others than `using` takes."""
    store = process()
    ids = [id for id in ids if id.encode("utf-8", "ignore").decode() == id]
    used = {id for id in ids if homes(store, id)}
    known = store.reserve("a", ids)
    store.enqueue("a", [make_job(id, queue="a", digest="d") for id in ids if id not in known])
    assert store.reserve("b", ids) == dict.fromkeys(ids, "a")
    assert used <= {id for id in ids if homes(store, id) == ["a"]}


# -- processes that end, and calls that come late --------------------------------


@pytest.mark.parametrize("answered", [False, True])
def test_a_process_may_end_before_or_after_any_call(process: Callable[..., Store], answered: bool) -> None:
    """The first at its call `i`, the second, of another release, at its call `j`; two more do all of theirs."""
    for i in range(3):
        for j in range(8):
            id = f"x-{i}-{j}"
            for queue, calls in (("a", i), ("b", j), ("a", 99), ("b", 99)):
                store = process()
                end_at(store, calls, answered=answered)
                try:
                    handle = enqueue(store, queue, id)
                except Killed:
                    assert len(homes(store, id)) <= 1
                else:
                    assert homes(store, id) == [handle.queue], (i, j, queue)


def end_at(store: Store, calls: int, *, answered: bool) -> None:
    line: Any = store.transport
    left = [calls]

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    setattr(line, "after" if answered else "before", count)


def test_whatever_processes_do_at_once_there_is_one_job(process: Callable[..., Store]) -> None:
    """Before each call, another process may do all of its own, and so on; any may end there.  At last, all that was
    sent comes once more."""
    for seed in range(dose(40, long=1000)):
        dice, id = random.Random(seed), f"x-{seed}"
        stores = [process() for _ in range(3)]
        depth = [0]

        def interrupt(dice: random.Random = dice, id: str = id, stores: Any = stores, depth: Any = depth) -> None:
            if dice.random() < 0.1:
                raise Killed
            if depth[0] < 2 and dice.random() < 0.4:
                depth[0] += 1
                attempt(dice, stores, id)
                depth[0] -= 1

        for store in stores:
            line: Any = store.transport
            line.before = line.after = interrupt
        for _ in range(4):
            attempt(dice, stores, id)
            assert len(homes(stores[0], id)) <= 1, seed
        for store in stores:
            store.transport.before = store.transport.after = lambda: None
        for store in stores:
            for call in dice.sample(store.transport.sent, len(store.transport.sent)):
                late(store, call)
        handle = enqueue(stores[0], dice.choice(QUEUES), id)
        assert homes(stores[0], id) == [handle.queue], seed


def attempt(dice: random.Random, stores: list[Store], id: str) -> None:
    queue, store = dice.choice(QUEUES), dice.choice(stores)
    with suppress(Killed, StoreUnavailable):
        enqueue(store, queue, id)


def late(store: Store, call: Call) -> None:
    with suppress(StoreError):  # it came after a later one of its sender
        store.transport.inner.run(*call)


def test_who_loses_an_id_again_and_again_gives_up(process: Callable[..., Store]) -> None:
    """Whenever the queue of the first has the id, the other takes it away."""
    first, other = process(), process()
    line: Any = first.transport
    line.inner = Interrupt(line.inner, lambda: other.reserve("b", ["x"]))
    with pytest.raises(StoreUnavailable):
        enqueue(first, "a", "x")
    line.inner = line.inner.inner
    assert enqueue(first, "a", "x").queue == "a"
    assert homes(first, "x") == ["a"]


class Interrupt:
    """A network on which something happens before each call that enqueues."""

    def __init__(self, inner: Any, act: Callable[[], object]) -> None:
        self.inner, self.act = inner, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, script: Any, *call: Any) -> Any:
        if script.name.startswith("enqueue"):
            self.act()
        return self.inner.run(script, *call)


@pytest.mark.parametrize("seconds", [0, 86_400])
def test_an_enqueue_that_comes_after_its_id_was_taken_away_has_no_effect(
    process: Callable[..., Store], clock: Clock, seconds: int
) -> None:
    """It may be late by an hour, however short ids are remembered."""
    first, second = (process(idempotency=1000 * seconds) for _ in range(2))
    held: list[Call] = []
    line: Any = first.transport
    inner, line.inner = line.inner, Hold(line.inner, held)
    with pytest.raises(StoreUnavailable):
        enqueue(first, "a", "x")
    assert enqueue(second, "b", "x").queue == "b"
    clock.advance(3_599_999)
    while second.prune("a")["remembered"]:
        pass
    assert [call[0].name for call in held] == ["enqueue_one"]
    for call in held:
        inner.run(*call)
    assert homes(second, "x") == ["b"]
    line.inner = inner
    assert enqueue(first, "a", "x").queue == "b"


def test_a_queue_takes_no_id_that_another_process_is_about_to_take_away(process: Callable[..., Store]) -> None:
    """Each of two goes on where the other stands still, between any two of its calls."""
    for steps in itertools.product(range(7), range(4)):
        id = "x-{}-{}".format(*steps)
        dead, first, second = process(), process(), process()
        first.reserve("a", [id])
        end_at(dead, 2, answered=False)
        with pytest.raises(Killed):  # it has told queue a to refuse the id, and no more
            enqueue(dead, "b", id)
        met, go_on = Event(), Event()
        stop_at(second, steps[1], lambda met=met, go_on=go_on: met.set() or go_on.wait(10))
        other = Thread(target=put, args=(second, "b", id))
        stop_at(first, steps[0], lambda met=met, other=other: other.start() or met.wait(10))
        put(first, "a", id)
        go_on.set()
        if other.ident is None:
            other.start()
        other.join()
        assert len(homes(dead, id)) == 1, steps


def put(store: Store, queue: str, id: str) -> None:
    """Enqueue as one batch is: without what `use_store` shares with other threads."""
    known = store.reserve(queue, [id])
    new = NewJob(id, encode(Job(id, queue, "tests.moved.pay", b"[[],{}]", 0, meta={"by": queue})), digest="d")
    while id not in known and store.enqueue(queue, [new]) == [Added.MOVED]:
        known = store.reserve(queue, [id], lost=True)


def stop_at(store: Store, call: int, act: Callable[[], object]) -> None:
    """Do this before the call of that number."""
    line: Any = store.transport
    left = [call]

    def count() -> None:
        left[0] -= 1
        if left[0] == -1:
            act()

    line.before = count


class Hold:
    """A network that delivers reservations, and keeps every other call for later."""

    def __init__(self, inner: Any, held: list[Call]) -> None:
        self.inner, self.held = inner, held

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, script: Any, *call: Any) -> Any:
        if script.name == "reserve":
            return self.inner.run(script, *call)
        self.held.append((script, *call))
        raise StoreUnavailable("no answer")


# -- other features ----------------------------------------------------------------


def test_a_member_of_a_batch_that_was_not_enqueued_is_waited_for_where_it_is(process: Callable[..., Store]) -> None:
    """Its process ended when it had told the batch; the next one belongs to another release."""
    first, second = process(), process()
    use_store(first)
    with Batch() as batch:
        end_at(first, 3, answered=False)
        with pytest.raises(Killed):
            pay.using(queue="a", job_id="x").enqueue(1)
        assert homes(second, "x") == []
        use_store(second)
        assert pay.using(queue="b", job_id="x").enqueue(1).queue == "b"
    assert [queue for queue, _ in engine.live_jobs(second, batch.id)] == ["b"]


def test_an_old_release_is_told_of_a_job_that_was_moved_and_adds_none(
    process: Callable[..., Store], make_job: Any
) -> None:
    """It knows of no reservations, and sends its job to the queue that it knows."""
    store = process()
    store.reserve("a", ["x"])
    assert enqueue(store, "b", "x").queue == "b"
    old: NewJob = make_job("x", queue="a", digest="d")
    assert store.enqueue("a", [old]) != [Added.ADDED]
    assert homes(store, "x") == ["b"]


def test_an_id_that_an_old_release_has_given_is_known_in_its_queue(
    process: Callable[..., Store], make_job: Any
) -> None:
    store = process()
    old: NewJob = make_job("x", queue="a", digest="d")
    assert store.enqueue("a", [old]) == [Added.ADDED]
    assert enqueue(store, "a", "x").added is Added.EXISTS
    assert enqueue(store, "b", "x").queue == "a"


def test_what_another_program_wrote_where_identities_are_stops_no_call(process: Callable[..., Store]) -> None:
    store = process()
    place = store.keys.of(store.keys.identity("x"))
    store.transport.command("HSET", place["homes"], "x", b"\xff\nnobody")
    assert enqueue(store, "a", "x").added is Added.ADDED
    assert enqueue(store, "b", "x").queue == "a"
    store.transport.command("DEL", place["homes"])
    store.transport.command("SET", place["homes"], "text")
    with pytest.raises(StoreError):
        enqueue(store, "a", "y" if store.keys.identity("y") == store.keys.identity("x") else "x")
    store.forget_identities()
    assert enqueue(store, "a", "x").queue == "a"
