"""The whole contract against a plain model (machine.py).  A small dose by default; DOSE=long makes it long."""

from __future__ import annotations

import uuid

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from django_jobs.stores.contract.store import StoreOptions
from django_jobs.stores.redis import RedisStore
from tests.contract.machine import StoreMachine
from tests.support.dose import dose

SETTINGS = settings(
    max_examples=dose(60, quick=15, ci=300, long=2000),
    stateful_step_count=dose(60, long=100),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_the_sqlite_store_does_as_the_model():
    run_state_machine_as_test(StoreMachine, settings=SETTINGS)


@pytest.mark.redis
def test_the_redis_store_does_as_the_model(redis_server):
    namespaces = []

    class RedisMachine(StoreMachine):
        @staticmethod
        def make(options):
            namespaces.append(f"m{uuid.uuid4().hex[:12]}")
            options = StoreOptions(clock=options.clock, max_crashes=options.max_crashes, namespace=namespaces[-1])
            return RedisStore.from_setting(redis_server, options=options)

    try:
        run_state_machine_as_test(RedisMachine, settings=SETTINGS)
    finally:
        with redis.Redis.from_url(redis_server) as client:
            for namespace in namespaces:
                for key in client.scan_iter(match=f"{{{namespace}*", count=1000):
                    client.delete(key)
