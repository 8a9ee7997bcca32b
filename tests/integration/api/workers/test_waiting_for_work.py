"""A pull worker that waits for work gets a job as soon as a worker of Django would."""

from __future__ import annotations

from collections.abc import Callable
from threading import Timer
from time import monotonic
from typing import Any

import pytest

from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import SETTINGS, Api
from tests.support.pace import Pace

pytestmark = pytest.mark.timed


@pytest.fixture
def store(make_store: Callable[..., Store], settings: Any) -> Store:
    """One store of each kind in turn, in use, on its own clock."""
    settings.DJANGO_JOBS = SETTINGS
    store = make_store(archive=True, clock=None)
    use_store(store)
    return store


@pytest.mark.accepts("G07", "K17")
@pytest.mark.parametrize("queue", ["pull", "default"])
def test_a_scheduled_job_is_handed_out_on_time(
    api: Api, claim: Callable[..., Any], store: Store, make_job: Any, pace: Pace, queue: str
) -> None:
    """Also in a queue that workers of Django serve, too."""
    api.post("v1/job-types", {"name": "php.mixed"})
    name = "php.resize" if queue == "pull" else "php.mixed"
    assert api.post(f"v1/queues/{queue}/claim", {}).json() == {"jobs": []}
    due = store.now() + 700
    store.enqueue(queue, [make_job("late", name=name, run_at=due)])
    jobs = api.post(f"v1/queues/{queue}/claim", {"wait": 20}).json()["jobs"]
    late = store.now() - due

    assert [job["id"] for job in jobs] == ["late"]
    assert late >= 0
    pace.took(late / 1000, 0.1, "after its time")


def test_a_pause_that_ends_is_noticed_at_once(
    claim: Callable[..., Any], store: Store, make_job: Any, pace: Pace
) -> None:
    store.enqueue("pull", [make_job("held", name="php.resize")])
    end = store.now() + 700
    store.pause("pull", until=end)
    assert [job["id"] for job in claim(wait=20)] == ["held"]
    pace.took((store.now() - end) / 1000, 0.1, "after the end of the pause")


@pytest.mark.parametrize("alone", [False, True])
def test_a_job_that_comes_while_a_worker_waits_is_handed_out_at_once(
    claim: Callable[..., Any], store: Store, make_job: Any, pace: Pace, alone: bool
) -> None:
    """Also one that is delivered at most once: it waits in a lane of its own."""
    claim()
    came: list[float] = []

    def put() -> None:
        store.enqueue("pull", [make_job("new", name="php.resize", alone=alone)])
        came.append(monotonic())

    timer = Timer(0.3, put)
    timer.start()
    assert [job["id"] for job in claim(wait=20)] == ["new"]
    pace.within(came[0], 0.1, "from the job to the worker")
    timer.join()
