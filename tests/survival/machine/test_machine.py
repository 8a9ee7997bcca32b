"""Random histories against the model (model.py), some of them always the same and some new ones each time.

A new history that fails is printed with its seed: `SEED=… pytest tests/survival/machine` repeats it."""

from __future__ import annotations

import logging
import os
import random
import time

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from django_jobs.stores.redis import Store
from tests.support.dose import DOSE, dose
from tests.survival.machine.machine import Machine

pytestmark = [pytest.mark.django_db]

#: Histories of one run of Hypothesis; and for how many seconds further runs with other seeds follow.
HISTORIES, SECONDS = dose(40, quick=5, long=500), dose(0, long=1200)
#: A new fault must not keep others from landing their work: `make survival` looks for it, or SEED=….
of_the_long_dose = pytest.mark.skipif(DOSE != "long" and "SEED" not in os.environ, reason="make survival has them")
SETTINGS = settings(
    max_examples=HISTORIES, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck),
    database=None, print_blob=False, report_multiple_bugs=False, phases=(Phase.generate, Phase.shrink),
)  # fmt: skip


def check(url: str, number: int) -> None:
    """Run histories that follow from this number."""
    namespaces: list[str] = []

    @seed(number)
    class Seeded(Machine):
        @staticmethod
        def make(options):
            namespaces.append(options.namespace)
            return Store.from_setting(url, options=options)

    print(f"SEED={number}")
    logging.disable()
    try:
        run_state_machine_as_test(Seeded, settings=SETTINGS)
    finally:
        logging.disable(logging.NOTSET)
        clear(url, namespaces)


def clear(url: str, namespaces: list[str]) -> None:
    store = Store.from_setting(url)
    ours = tuple(f"{{{namespace}".encode() for namespace in namespaces)
    for key in store.transport.client.scan_iter(match="{m*", count=1000):
        if key.startswith(ours):
            store.transport.client.delete(key)
    store.close()


def check_new(url: str) -> None:
    end = time.monotonic() + SECONDS
    check(url, int(os.environ.get("SEED") or random.randrange(10**9)))
    while time.monotonic() < end:
        check(url, random.randrange(10**9))


def test_histories_that_are_always_the_same(redis_server):
    check(redis_server, 1)


@of_the_long_dose
def test_new_histories(redis_server):
    check_new(redis_server)


@of_the_long_dose
def test_new_histories_on_a_cluster(redis_cluster):
    check_new(redis_cluster)
