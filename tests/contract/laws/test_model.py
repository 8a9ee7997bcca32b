"""The whole contract against a plain model (machine.py).  A small dose by default; DOSE=long makes it long."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.contract.machine import StoreMachine, run_on_redis
from tests.support.dose import dose

SETTINGS = settings(
    max_examples=dose(60, quick=15, ci=300, long=2000),
    stateful_step_count=dose(60, long=100),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_the_store_does_as_the_model(redis_server):
    run_on_redis(StoreMachine, SETTINGS, redis_server)
