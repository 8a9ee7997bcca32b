"""Answers that Redis remembers for calls sent twice: few, however many threads and processes come and go."""

from __future__ import annotations

import os
from threading import Barrier, Thread
from typing import Any
from uuid import uuid4

import pytest
import redis

from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.part import Channels

pytestmark = pytest.mark.redis


def in_a_thread(do: Any) -> None:
    thread = Thread(target=do)
    thread.start()
    thread.join(60)


def test_a_server_with_a_thread_for_each_request_does_not_fill_redis_with_answers(
    redis_store: Store, make_job: Any
) -> None:
    for _ in range(30):
        in_a_thread(lambda: redis_store.enqueue("default", [make_job()]))
    assert redis_store.transport.client.hlen(redis_store.keys.of("default")["answers"]) <= 2
    assert redis_store.stats(["default"])[0].counts["queued"] == 30


@pytest.mark.accepts("G12")
def test_connections_are_as_many_as_threads_that_enqueue_at_once(redis_server: str, make_job: Any) -> None:
    """Threads come and go; what they opened is used again."""
    name = uuid4().hex
    store = Store.from_setting(f"{redis_server}{'&' if '?' in redis_server else '?'}client_name={name}")
    barrier = Barrier(5)

    def enqueue() -> None:
        barrier.wait(60)
        store.enqueue("default", [make_job(uuid4().hex)])
        barrier.wait(60)

    for _ in range(6):
        threads = [Thread(target=enqueue) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    with redis.Redis.from_url(redis_server) as client:
        ours = [each for each in client.client_list() if each["name"] == name]
        assert len(ours) == 5
    store.delete("default", store.ids("default", State.QUEUED)[0])
    store.close()


def test_calls_at_the_same_time_have_channels_of_their_own() -> None:
    channels = Channels()
    one, two = channels.begin("q"), channels.begin("q")
    assert one.name != two.name
    channels.answered(one)
    assert channels.begin("q").key == (one.name, "2"), "numbers go on where they were"
    assert channels.begin("another").key[1] == "1", "a late call is refused by a later one to the same queue"


def test_the_next_call_to_the_queue_voids_one_that_was_given_up() -> None:
    channels = Channels()
    given_up = channels.begin("q")
    channels.unanswered(given_up, None)
    assert channels.begin("q").key == (given_up.name, "2+"), "it leaves its number, whatever it does"
    channels.answered(given_up)
    assert channels.begin("q").key == (given_up.name, "3")


def test_it_is_voided_by_the_next_call_whoever_was_answered_meanwhile() -> None:
    channels = Channels()
    other, given_up = channels.begin("q"), channels.begin("q")
    channels.unanswered(given_up, None)
    channels.answered(other)
    assert channels.begin("q").key == (given_up.name, "2+")


def test_of_calls_that_nobody_makes_again_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobs.stores.redis.connection.part.MOST_UNANSWERED", 3)
    channels = Channels()
    begun = {name: channels.begin("q") for name in "abcd"}
    for name in "abcd":
        channels.unanswered(begun[name], lambda name=name: name)
    assert [channels.begin("q", lambda name=name: name).name == begun[name].name for name in "dcb"] == [True] * 3
    assert channels.begin("q", lambda: "a").key == (begun["a"].name, "2+"), "its channel was free for others"


def test_a_forked_process_uses_none_of_its_parents_channels() -> None:
    channels = Channels()
    idle, kept = channels.begin("q"), channels.begin("q")
    channels.answered(idle)
    channels.unanswered(kept, lambda: "call")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, f"{channels.begin('q', lambda: 'call').name} {channels.begin('q').name}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read) as file:
        assert not {kept.name, idle.name} & set(file.read().split())
    assert channels.begin("q", lambda: "call") is kept


def test_a_pause_that_cannot_be_read_does_not_stop_redis(redis_store: Store, make_job: Any) -> None:
    """A member of `blocked` that looks like a pause's and is none: nobody may walk in a circle there."""
    redis_store.enqueue("default", [make_job("a")])
    redis_store.transport.client.zadd(redis_store.keys.of("default")["blocked"], {b"\x02nobody knows": 0})
    assert [claim.id for claim in redis_store.claim("default", "w", 1, lease=1000).claims] == ["a"]
    redis_store.promote("default")
    info = redis_store.get("default", "a")
    assert info is not None
    assert info.state is State.RUNNING
