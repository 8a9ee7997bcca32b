"""`wait()` and the connections to Redis that its threads use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest
import redis

from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import JobFailed
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.contract.acts import Q, enqueue
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis


def listening() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"ends of {Q}"]


def is_listening(client: redis.Redis) -> bool:
    return any(each["cmd"] == "xread" for each in client.client_list())


def waits_in_vain() -> None:
    with pytest.raises(TimeoutError):
        JobHandle("a", "tests.job", Q).wait(0.05)


def test_a_store_that_is_closed_while_it_listens_leaves_no_connection(
    redis_store: Store, redis_server: str, make_job: Any
) -> None:
    """The call that was cut off must not connect again: nobody would close that connection."""
    with redis.Redis.from_url(redis_server) as client:

        def connected() -> set[str]:
            return {each["id"] for each in client.client_list()}

        before = connected()
        use_store(redis_store)
        enqueue(redis_store, make_job("a"))
        # Again and again: on a busy machine, the time may be over before the thread begins to listen.
        wait_until(lambda: waits_in_vain() or is_listening(client), "it listens")
        use_store(None)
        redis_store.close()
        wait_until(lambda: not listening(), "it listens no more")
        wait_until(lambda: connected() <= before, "all connections are closed")


def test_who_waits_is_answered_although_the_connections_were_closed(
    redis_store: Store, redis_server: str, make_job: Any
) -> None:
    use_store(redis_store)
    enqueue(redis_store, make_job("a"))
    with redis.Redis.from_url(redis_server) as client, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(JobHandle("a", "tests.job", Q).wait, 20)
        wait_until(lambda: is_listening(client), "it listens")
        redis_store.close()
        redis_store.cancel(Q, ["a"])
        with pytest.raises(JobFailed, match="ended as cancelled"):
            waiting.result(10)


def test_listening_may_take_longer_than_other_answers(
    make_redis_store: Callable[..., Store], redis_server: str, make_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`?socket_timeout=0.2` is for calls that the server answers at once: it must not connect again all the time."""
    url = f"{redis_server}{'&' if '?' in redis_server else '?'}socket_timeout=0.2"
    store = Store.from_setting(url, options=make_redis_store().options)
    try:
        use_store(store)
        enqueue(store, make_job("a"))
        with redis.Redis.from_url(redis_server) as client:
            before = client.info("stats")["total_connections_received"]
            began = monotonic()
            with pytest.raises(TimeoutError):
                JobHandle("a", "tests.job", Q).wait(1.0)
            assert monotonic() - began >= 1.0
            # Two: the listening thread's, and one that a thread of another test may have needed.
            assert client.info("stats")["total_connections_received"] - before <= 2
    finally:
        use_store(None)
        store.close()
