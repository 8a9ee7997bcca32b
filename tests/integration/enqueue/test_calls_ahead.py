"""Calls that are sent before their answers are wanted: what may happen in between."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from math import inf
from pathlib import Path
from threading import Barrier, Thread
from time import monotonic
from typing import Any

import pytest
from django.test import override_settings
from redis import exceptions as driver

from django_jobs import QueueFull, job
from django_jobs.core.values import Added, State
from django_jobs.exceptions import InvalidArguments, StoreCorrupt, StoreUnavailable
from django_jobs.signals import job_enqueued
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.thread_connection import ThreadConnection
from django_jobs.stores.redis.connection.transport import Transport
from tests.support.backends.redis_process import RedisServer
from tests.support.pace import Pace

pytestmark = pytest.mark.redis

MANY = 2500  # three batches


@job(name="ahead.nothing")
def nothing(number: int) -> None:
    """Costs nothing itself."""


@pytest.fixture
def store(redis_store: Store) -> Iterator[Store]:
    use_store(redis_store)
    redis_store.enqueue("default", [])
    yield redis_store
    use_store(None)


@pytest.fixture
def quiet_tcp(tmp_path: Path) -> Iterator[Store]:
    """A store on a server of its own, over TCP: writing into a socket that the server has closed is no error there."""
    server = RedisServer(tmp_path).start()
    store = Store.from_setting(server.url)
    yield store
    store.close()
    server.kill()


def queued(store: Store) -> int:
    return store.stats(["default"])[0].counts["queued"]


def test_the_next_batch_is_made_while_the_store_adds_the_last(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing.enqueue_many([(0,), (1,)])  # the server has the script
    order: list[str] = []
    send, receive = ThreadConnection.write, ThreadConnection.receive
    monkeypatch.setattr(ThreadConnection, "write", lambda it, data: (order.append("sent"), send(it, data)))
    monkeypatch.setattr(ThreadConnection, "receive", lambda it, **how: (order.append("read"), receive(it, **how))[1])

    def calls() -> Iterator[tuple[int]]:
        for number in range(MANY):
            if number % 1000 == 500:
                order.append(f"made {number}")
            yield (number,)

    nothing.enqueue_many(calls())
    assert order == ["made 500", "sent", "made 1500", "read", "sent", "read", "sent", "read"]
    assert queued(store) == 2 + MANY


def test_an_answer_that_is_lost_is_asked_for_again_and_adds_nothing_twice(store: Store, make_job: Any) -> None:
    store.enqueue("default", [make_job("first")])
    wait = store.enqueue_ahead("default", [make_job(f"j{n}") for n in range(10)])
    store.transport._connection().drop()
    assert wait() == [Added.ADDED] * 10
    assert queued(store) == 11


def test_jobs_that_ran_before_their_lost_answer_was_asked_for_run_once(store: Store, make_job: Any) -> None:
    """The idempotency key has the answer; the jobs themselves are gone."""
    store.enqueue_ahead("default", [make_job("first")])()  # the server has the script
    wait = store.enqueue_ahead("default", [make_job("a")])
    used = store.transport._connection()
    assert used._poll is not None
    assert used._poll(5000)
    used.drop()
    claims = store.claim("default", "w", 5, lease=30_000).claims
    assert [claim.id for claim in claims] == ["first", "a"]
    store.kill("default", ["first", "a"], "gone")
    store.delete("default", ["first", "a"])
    assert wait() == [Added.ADDED]
    assert queued(store) == 0


def test_a_server_that_forgot_the_script_is_given_it(store: Store, make_job: Any) -> None:
    store.transport.client.script_flush()
    wait = store.enqueue_ahead("default", [make_job("a")])
    assert wait() == [Added.ADDED]
    assert queued(store) == 1


def test_a_refusal_is_told_when_the_answer_is_wanted_and_to_nobody_else(store: Store, make_job: Any) -> None:
    store.enqueue("default", [make_job("first")])
    store.transport.client.set(store.keys.of("broken")["jobs"], "of another type")
    wait = store.enqueue_ahead("broken", [make_job("a")])
    assert store.enqueue("default", [make_job("b")]) == [Added.ADDED]
    with pytest.raises(StoreCorrupt, match="wrong type"):
        wait()


def test_a_thread_that_ends_leaves_no_answer_for_the_next_one(store: Store, make_job: Any) -> None:
    """Its connection goes back to the pool, and another thread takes it before the answer comes."""
    store.enqueue("default", [make_job("first"), make_job("one more")])  # from here on, the server knows the script
    answers: list[list[Added]] = []
    both_have_one = Barrier(2, timeout=60)

    def leave() -> None:
        store.enqueue("default", [make_job("second")])
        store.transport.client.client_pause(300)
        store.enqueue_ahead("default", [make_job(f"left{n}") for n in range(3)])

    def go_on(id: str) -> None:
        transport._connection()
        both_have_one.wait()
        answers.append(store.enqueue("default", [make_job(f"{id}1"), make_job(f"{id}2")]))

    transport = store.transport
    assert isinstance(transport, Transport)
    leaving = Thread(target=leave)
    leaving.start()
    leaving.join(60)
    # Of these two threads, each takes one connection: that of the thread which has ended, and that which paused.
    threads = [Thread(target=go_on, args=(id,)) for id in "pq"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [[Added.ADDED] * 2] * 2


def test_a_copy_of_the_process_leaves_the_answer_and_the_channel_to_its_parent(store: Store, make_job: Any) -> None:
    """The child must not end the parent's call: both would go on with the same number, and the second would lose."""
    store.enqueue("default", [make_job("first")])
    wait = store.enqueue_ahead("default", [make_job("a"), make_job("b")])
    child = os.fork()
    if child == 0:
        try:
            good = store.enqueue("default", [make_job("c")]) == [Added.ADDED]
            try:
                wait()
            except StoreUnavailable:
                good &= store.enqueue("default", [make_job("d")]) == [Added.ADDED]
            else:
                good = False
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert wait() == [Added.ADDED, Added.ADDED]
    assert store.enqueue("default", [make_job("e")]) == [Added.ADDED]
    assert sorted(store.ids("default", State.QUEUED)[0]) == ["a", "b", "c", "d", "e", "first"]


def test_a_call_over_a_connection_that_the_server_has_closed_is_sent_at_once(quiet_tcp: Store, make_job: Any) -> None:
    """Not when its answer is wanted: the next item of an iterator may come much later."""
    store = quiet_tcp
    store.enqueue("default", [make_job("first")])
    used, id = store.transport._connection(), store.transport.command("CLIENT", "ID")
    store.transport.client.client_kill_filter(_id=id)
    assert used._poll is not None
    assert used._poll(5000)
    wait = store.enqueue_ahead("default", [make_job("a")])
    assert queued(store) == 2
    assert wait() == [Added.ADDED]


@pytest.mark.parametrize("inside", ["nothing", "an except block"])
def test_a_server_that_is_away_is_an_error_at_once_in_a_new_thread(inside: str, pace: Pace) -> None:
    """Its connection is made by this call."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        store = Store.from_setting(f"redis://127.0.0.1:{free.getsockname()[1]}")
    store._registered = {"default": inf}
    use_store(store)

    def enqueue() -> None:
        calls = ((number,) for number in range(MANY))
        if inside == "nothing":
            nothing.enqueue_many(calls)
        try:
            raise ValueError
        except ValueError:
            nothing.enqueue_many(calls)

    began = monotonic()
    try:
        with pytest.raises(StoreUnavailable, match="cannot be reached") as told:
            enqueue()
    finally:
        use_store(None)
    assert len(told.value.job_ids) == MANY
    pace.within(began, 2, "no second try")


def test_a_lost_answer_is_the_error_of_the_call_that_finds_it(
    store: Store, make_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise that call would wait for the answer and then for its own, twice as long as it may."""
    store.enqueue("default", [make_job("first")])
    wait = store.enqueue_ahead("default", [make_job("a")])
    used = store.transport._connection()

    def lost(connection: ThreadConnection) -> None:
        raise driver.TimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(ThreadConnection, "_read", lost)
        with pytest.raises(driver.ConnectionError, match="before this call was sent"):
            used.make_ready()
    assert wait() == [Added.ADDED]
    assert queued(store) == 2


@pytest.mark.parametrize("when", ["sending", "reading"])
def test_a_call_that_is_interrupted_leaves_nothing_for_the_next(
    store: Store, make_job: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    store.enqueue("default", [make_job("first")])
    write = ThreadConnection.write

    def interrupted(*args: Any) -> None:
        if when == "sending":  # half of the call is in the socket
            write(args[0], args[1][:50])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if when == "sending":
            patched.setattr(ThreadConnection, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.enqueue_ahead("default", [make_job("a")])
        else:
            wait = store.enqueue_ahead("default", [make_job("a")])
            patched.setattr(ThreadConnection, "_read", interrupted)
            with pytest.raises(KeyboardInterrupt):
                wait()
    assert store.enqueue("default", [make_job("b"), make_job("c")]) == [Added.ADDED, Added.ADDED]


def test_a_call_that_is_interrupted_twice_leaves_nothing_for_the_next(
    store: Store, make_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second interrupt comes before the connection is closed because of the first."""
    store.enqueue("default", [make_job("first")])

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ThreadConnection, "_read", interrupted)
        patched.setattr(ThreadConnection, "drop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.enqueue("default", [make_job("a"), make_job("b")])
    assert store.enqueue("default", [make_job("c")]) == [Added.ADDED]
    assert store.enqueue("default", [make_job("d"), make_job("e")]) == [Added.ADDED, Added.ADDED]


def test_a_store_that_is_closed_in_between_answers_or_says_so(store: Store, make_job: Any) -> None:
    """The answer may have come before."""
    store.enqueue("default", [make_job("first")])
    wait = store.enqueue_ahead("default", [make_job("a")])
    store.close()
    said = ""
    try:
        assert wait() == [Added.ADDED]
    except StoreUnavailable as error:
        said = str(error)
    assert said == "" or "closed during a call" in said
    assert store.enqueue("default", [make_job("a"), make_job("b")]) == [Added.ADDED, Added.ADDED]
    assert queued(store) == 3


def test_a_call_that_enqueues_while_its_arguments_are_made_gets_its_own_answer(store: Store) -> None:
    inner: list[str] = []

    def calls() -> Iterator[tuple[int]]:
        for number in range(MANY):
            if number % 600 == 599:
                inner.append(nothing.enqueue(-1).id)
                nothing.enqueue_many((n,) for n in range(3))
            yield (number,)

    handles = nothing.enqueue_many(calls())
    assert len({*inner, *(handle.id for handle in handles)}) == MANY + 4
    assert {handle.added for handle in handles} == {Added.ADDED}
    assert queued(store) == MANY + 4 * (1 + 3)


@pytest.mark.parametrize("error", [RuntimeError("mine"), InvalidArguments("mine"), KeyboardInterrupt("mine")])
def test_jobs_that_are_stored_are_announced_whatever_is_wrong_with_a_later_call(
    store: Store, error: BaseException
) -> None:
    announced: list[str] = []

    def receiver(job_id: str, **more: Any) -> None:
        announced.append(job_id)

    def calls() -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(1500))
        raise error

    job_enqueued.connect(receiver)
    try:
        with pytest.raises(type(error), match="mine") as told:
            nothing.enqueue_many(calls())
    finally:
        job_enqueued.disconnect(receiver)
    assert sorted(announced) == sorted(store.ids("default", State.QUEUED, limit=2000)[0])
    assert len(announced) == 1000
    if isinstance(error, InvalidArguments):
        assert "stored: 1000" in "".join(told.value.__notes__)
    assert store.transport.client.hlen(store.keys.of("default")["answers"]) <= 2, "the channel is used again"


def test_a_queue_with_a_limit_refuses_before_the_next_item_is_read(store: Store) -> None:
    read: list[int] = []

    def calls() -> Iterator[tuple[int]]:
        for number in range(3000):
            read.append(number)
            yield (number,)

    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": {"default": {"MAX_LENGTH": 1500}}}):
        use_store(store)
        with pytest.raises(QueueFull) as told:
            nothing.enqueue_many(calls())
    assert (told.value.accepted, len(read)) == (1000, 2001)


def test_an_unreachable_store_is_an_error_with_all_ids(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing.enqueue_many([(0,), (0,)])
    write, sent = ThreadConnection.write, 0

    def breaking(connection: ThreadConnection, data: bytes) -> None:
        nonlocal sent
        sent += 1
        if sent > 1:
            raise driver.ConnectionError("cut")
        write(connection, data)

    monkeypatch.setattr(ThreadConnection, "write", breaking)
    with pytest.raises(StoreUnavailable, match="may or may not exist") as told:
        nothing.enqueue_many((number,) for number in range(MANY))
    ids = told.value.job_ids
    assert (len(ids), len(set(ids)), len(ids.answered)) == (MANY, MANY, 1000)
    assert told.value.job_id == ids[1000]
    monkeypatch.undo()
    handles = nothing.enqueue_many([(number,) for number in range(MANY)], job_ids=ids)
    assert [handle.id for handle in handles] == list(ids)
    assert queued(store) == 2 + MANY
