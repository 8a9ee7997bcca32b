"""`GET …/why`: the same answer as in the console, for callers who may read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_jobs import remote
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import SETTINGS, Api
from tests.support.console_data import worker_info


def test_a_caller_learns_why_a_job_does_not_start(api: Api, store: Store) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    told = api.get("v1/jobs/tests.greet/1/why").json()
    found = told.pop("findings")
    assert told | {"since": None} == {
        "id": "1", "queue": "default", "state": "queued", "cause": "no_workers", "reason": "No worker runs.",
        "since": None, "until": None, "about": {"kind": "workers"},
    }  # fmt: skip
    assert found == [each for each in api.get("v1/findings").json() if each["cause"] == "no_workers"]
    api.post("v1/queues/default/pause", {"reason": "moving house"})
    answer = api.get("v1/jobs/tests.greet/1/why").json()
    assert (answer["cause"], answer["about"]) == ("queue_paused", {"kind": "queue", "name": "default"})
    assert "by token 0 (HTTP)" in answer["reason"]


def test_a_job_that_remote_workers_fetch_waits_for_one_that_asks(
    api: Api, store: Store, kind: str, clock: Clock, claim: Callable[..., list[dict[str, Any]]]
) -> None:
    for id in ("1", "2", "3"):
        api.put(f"v1/jobs/{kind}/{id}", {"data": {}})
    answer = api.get(f"v1/jobs/{kind}/3/why").json()
    assert (answer["cause"], answer["since"]) == ("not_fetched", None)
    assert [each["id"] for each in claim()] == ["1"]
    answer = api.get(f"v1/jobs/{kind}/3/why").json()
    assert (answer["cause"], answer["reason"][-2:]) == ("fetched", "1.")
    assert api.get(f"v1/jobs/{kind}/1/why").json()["cause"] == "running_remotely"
    clock.advance(61_000)
    answer = api.get(f"v1/jobs/{kind}/3/why").json()
    assert answer["cause"] == "not_fetched"
    assert answer["since"].startswith("2027-")


def test_remote_jobs_whose_queue_has_left_the_settings_wait_for_a_worker_of_that_queue(
    api: Api, store: Store, kind: str, settings: Any
) -> None:
    """Nobody can fetch them any more, and the finding that nobody serves the queue is not held back."""
    api.put(f"v1/jobs/{kind}/1", {"data": {}})
    settings.DJANGO_JOBS = {**SETTINGS, "QUEUES": {"default": {}}}
    use_store(store)
    remote.forget()
    store.publish_worker("web-1", worker_info(queues=["default"]), 60_000)
    assert api.post("v1/queues/pull/claim", {}).status_code == 404
    answer = api.get(f"v1/jobs/{kind}/1/why").json()
    assert answer["cause"] == "no_worker_takes_queue"
    assert [each["cause"] for each in answer["findings"] if each["queue"] == "pull"] == ["no_worker"]
