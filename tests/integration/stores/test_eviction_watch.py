"""A Redis that may throw jobs away is reported by every worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import redis

from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from django_jobs.worker.maintenance.eviction import EvictionWatch
from tests.support.backends.servers import running_redis

pytestmark = pytest.mark.redis


@pytest.fixture
def own_server() -> Iterator[str]:
    with running_redis() as url:
        yield url


def test_a_policy_made_for_caches_is_told_once_and_again_when_it_changes(
    own_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.from_setting(own_server, options=StoreOptions(namespace="evict"))
    watch = EvictionWatch(store)
    with redis.Redis.from_url(own_server) as client, caplog.at_level(logging.CRITICAL):
        watch.tick()
        assert caplog.messages == []
        client.config_set("maxmemory-policy", "allkeys-lru")
        watch.tick()
        watch.tick()
        client.config_set("maxmemory-policy", "noeviction")
        watch.tick()
        client.config_set("maxmemory-policy", "volatile-ttl")
        watch.tick()
    assert [message.partition(".")[0] for message in caplog.messages] == [
        "Redis may delete jobs: its maxmemory-policy is allkeys-lru",
        "Redis may delete jobs: its maxmemory-policy is volatile-ttl",
    ]
    store.close()
