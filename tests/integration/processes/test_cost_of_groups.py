"""A group of 10,000 costs at most twice its jobs alone, in enqueueing and in finishing, by processor time."""

from __future__ import annotations

import pytest
import redis

from bench.groups import group_against_jobs
from django_jobs import job
from django_jobs.stores import use_store
from django_jobs.stores.redis import RedisStore
from django_jobs.stores.sqlite import SqliteStore


@job(name="tests.groups.nothing")
def nothing() -> None:
    """Costs nothing itself."""


@pytest.mark.redis
@pytest.mark.timed
def test_on_redis(redis_store: RedisStore, redis_server: str) -> None:
    use_store(redis_store)
    with redis.Redis.from_url(redis_server) as server:
        found = group_against_jobs(nothing, (), "default", redis_store, server)
    assert found["enqueue ×"] <= 2, found
    assert found["finish ×"] <= 2, found


@pytest.mark.timed
def test_in_a_file(embedded_store: SqliteStore) -> None:
    use_store(embedded_store)
    found = group_against_jobs(nothing, (), "default", embedded_store, None)
    assert found["enqueue ×"] <= 2, found
    assert found["finish ×"] <= 2, found
