"""What users read when Redis is not as it should be: which value, and what to do."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from django_jobs.exceptions import StoreCorrupt, StoreFull, StoreMisconfigured, StoreUnavailable
from django_jobs.stores.base import StoreOptions
from django_jobs.stores.redis import RedisStore
from django_jobs.values import State
from tests.servers import running_redis
from tests.support.pace import Pace


def store_at(setting: str) -> RedisStore:
    return RedisStore.from_setting(setting, options=StoreOptions(namespace="errors"))


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Somebody who listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.mark.accepts("K28")
def test_an_absent_redis_is_said_at_once(make_job: Any, pace: Pace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store, started = store_at(f"redis://:s3cret@127.0.0.1:{port}/0"), time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}.*cannot be reached.*same job_id is safe") as told:
        store.enqueue("default", [make_job()])
    pace.within(started, 5)
    assert "s3cret" not in str(told.value)


@pytest.mark.redis
def test_a_redis_that_does_not_answer_is_given_up_within_five_seconds(
    black_hole: str, make_job: Any, pace: Pace
) -> None:
    store, started = store_at(black_hole), time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.enqueue("default", [make_job()])
    pace.within(started, 5)
    store.close()


@pytest.fixture
def locked_server() -> Iterator[str]:
    with running_redis() as url:
        client = redis.Redis.from_url(url)
        client.config_set("requirepass", "right")
        yield url
        client.close()


@pytest.mark.redis
@pytest.mark.parametrize("password", ["", ":wrong@"])
def test_a_wrong_password_names_the_setting(locked_server: str, password: str, make_job: Any) -> None:
    store = store_at(locked_server.replace("unix://", f"unix://{password}"))
    with pytest.raises(StoreMisconfigured, match=r"DJANGO_JOBS\['STORE'\]") as told:
        store.enqueue("default", [make_job()])
    assert "wrong@" not in str(told.value)
    store.close()


@pytest.mark.redis
def test_a_key_of_another_type_is_named_as_damage_and_nothing_is_half_written(
    redis_store: RedisStore, make_job: Any
) -> None:
    redis_store.transport.command("SET", redis_store.keys.of("default")["jobs"], "rubbish")
    with pytest.raises(StoreCorrupt, match="doctor"):
        redis_store.enqueue("default", [make_job("a")])
    assert redis_store.backlog(["default"]) == {"default": 0}
    assert redis_store.reconcile("default")["wrong_type"] == 1
    redis_store.enqueue("default", [make_job("a")])
    info = redis_store.get("default", "a")
    assert info is not None
    assert info.state is State.QUEUED


@pytest.mark.redis
def test_a_full_redis_refuses_new_jobs_and_drains_the_old_ones(
    locked_server: str, make_job: Callable[..., Any]
) -> None:
    from django_jobs.values import Attempt, Done

    url = locked_server.replace("unix://", "unix://:right@")
    store, client = store_at(url), redis.Redis.from_url(url)
    store.enqueue("default", [make_job() for _ in range(20)])
    store.claim("default", "w", 1, lease=30_000)  # the scripts are loaded before memory is gone
    client.config_set("maxmemory", 1)
    with pytest.raises(StoreFull, match="maxmemory"):
        store.enqueue("default", [make_job("refused")])
    assert store.get("default", "refused") is None
    claims = store.claim("default", "w", 19, lease=30_000).claims
    assert len(claims) == 19
    assert store.extend("default", ["w"], 30_000) == {"w": []}
    assert store.retry(claims[0], Attempt(1, "failed", 0, error="x"), 1000) is State.RETRY
    assert store.bury(claims[1], Attempt(1, "failed", 0, error="x"))
    assert store.complete("default", [Done(claim) for claim in claims[2:]]) == []
    store.close()
    client.close()
