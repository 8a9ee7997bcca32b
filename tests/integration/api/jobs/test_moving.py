"""Rescheduling, deleting and replaying over HTTP, and the workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_jobs.samples.worker import ENDS, WorkerSamples
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api import work
from tests.integration.api.conftest import Api

LATER = {"run_after": "2035-01-01T00:00:00Z"}


def test_a_waiting_job_is_rescheduled_there_and_back(api: Api, work_off: Callable[..., int]) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    moved = api.post("v1/jobs/tests.greet/1/reschedule", LATER).json()
    assert (moved["state"], "2035-01-01T00:00:00.000+00:00" in moved.values()) == ("scheduled", True)
    assert work_off() == 0
    api.post("v1/jobs/tests.greet/1/reschedule", {"run_after": "2020-01-01T00:00:00Z"})
    assert work_off() == 1
    ended = api.post("v1/jobs/tests.greet/1/reschedule", LATER)
    assert (ended.status_code, ended.json()["type"].rsplit(":")[-1]) == (409, "job-ended")
    assert api.post("v1/jobs/tests.greet/2/reschedule", LATER).status_code == 404
    assert api.post("v1/jobs/tests.greet/1/reschedule", {}).status_code == 422


def test_a_running_job_is_neither_rescheduled_nor_deleted(api: Api, store: Store) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    store.claim("default", "worker", 1, lease=30_000)
    for action, body in (("reschedule", LATER), ("delete", None)):
        refused = api.post(f"v1/jobs/tests.greet/1/{action}", body)
        assert (refused.status_code, refused.json()["type"].rsplit(":")[-1]) == (409, "job-runs")


@pytest.mark.parametrize("ends", [False, True])
def test_a_job_is_deleted_whether_it_waits_or_has_ended(api: Api, work_off: Callable[..., int], ends: bool) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    if ends:
        work_off()
    for _ in range(2):
        assert api.post("v1/jobs/tests.greet/1/delete").json() == {"id": "1", "name": "tests.greet", "deleted": True}
    assert api.get("v1/jobs/1").status_code == 404
    assert work_off() == 0


def test_a_job_delivered_at_most_once_is_replayed_only_if_that_is_asked_for(
    api: Api, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/tests.pay/1", {"data": [7]})
    assert work_off() == 1
    for body in (None, {}, {"id": "2"}, {"start_again": True}):
        refused = api.post("v1/jobs/tests.pay/1/replay", body)
        assert (refused.status_code, refused.json()["type"].rsplit(":")[-1]) == (409, "may-have-started")
    asked = {"id": "2", "start_again": True}
    assert [api.post("v1/jobs/tests.pay/1/replay", asked).status_code for _ in range(2)] == [201, 200]
    assert work_off() == 1
    assert work.ran == [("pay", 7)] * 2


def test_workers_are_listed_with_their_jobs_and_problems(api: Api, store: Store, clock: Clock) -> None:
    assert api.get("v1/workers").json() == []
    jobs = [{"id": name, "name": name, "queue": "default", "since": clock.now} for name in ("tests.greet", "tests.pay")]
    info = {
        "host": "h", "pid": 7, "state": "running", "version": "1", "queues": ["default"], "processes": 2, "threads": 3,
        "started_at": clock.now, "children": [{"name": "c", "jobs": jobs}, "odd"], "problems": ["c has not answered."],
    }  # fmt: skip
    store.publish_worker("w1", info, 60_000)
    store.publish_worker("odd", {"children": 7, "queues": "x", "pid": "y"}, 60_000)
    odd, known = sorted(api.get("v1/workers").json(), key=lambda worker: str(worker["name"]))
    assert [job["id"] for job in known["jobs"]] == ["tests.greet", "tests.pay"]
    assert (known["host"], known["pid"], known["queues"]) == ("h", 7, ["default"])
    assert known["problems"] == ["c has not answered."]
    assert (odd["queues"], odd["pid"], odd["jobs"]) == ([], 0, [])
    assert (odd["totals"], known["totals"]) == (None, None), "a worker of an older version: not known, not 0"
    limited = Api("read", jobs=("tests.greet",)).get("v1/workers").json()
    assert [job["id"] for worker in limited for job in worker["jobs"]] == ["tests.greet"]


def test_how_long_other_jobs_wait_for_a_worker_is_not_for_a_token_that_is_limited_to_some(
    api: Api, store: Store, clock: Clock
) -> None:
    info = {"state": "running", "queues": ["default"], "started_at": clock.now, "problems": ["c hangs."]}
    api.put("v1/jobs/tests.pay/1", {"data": [7]})
    clock.advance(120_000)
    store.publish_worker("w1", info, 60_000)
    problems = {caller: caller.get("v1/workers").json()[0]["problems"] for caller in (api, Api("read", jobs=("a",)))}
    everything, some = problems.values()
    assert (len(everything), some) == (2, ["c hangs."])


def test_a_worker_says_what_it_has_done(api: Api, store: Store, clock: Clock) -> None:
    samples = WorkerSamples(clock.now)
    totals = dict.fromkeys(ENDS, 0) | {"succeeded": 7, "failed": 2, "dead": 1, "retried": 1}
    info = {"at": clock.now, "totals": totals, "samples": samples.as_json()}
    store.publish_worker("web-1:4711", info, 60_000)
    (worker,) = api.get("v1/workers").json()
    assert worker["totals"] == totals
    trend = api.get("v1/workers/web-1:4711/trend").json()
    assert (trend["period"], trend["seconds"], len(trend["stretches"])) == ("hour", 300, 12)
    *before, last = [(each["succeeded"], each["failed"], each["dead"]) for each in trend["stretches"]]
    assert (before, last) == ([(0, 0, 0)] * 11, (7, 2, 1)), "before it started it did nothing"
    store.publish_worker("old", {"pid": 7}, 60_000)
    week = api.get("v1/workers/old/trend?period=week").json()
    assert {each["succeeded"] for each in week["stretches"]} == {None}
    nobody = api.get("v1/workers/nobody/trend")
    assert (nobody.status_code, nobody.json()["type"].rsplit(":")[-1]) == (404, "no-worker")
