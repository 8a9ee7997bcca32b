"""Schedules over HTTP: list, run now, pause, resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import schedules
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.models import Schedule
from django_jobs.models.audit import AuditEntry
from django_jobs.schedules import state
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api import work
from tests.integration.api.conftest import SETTINGS, Api

NIGHTLY = "v1/schedules/settings:nightly"


@pytest.fixture
def store(make_store: Callable[..., Store], settings: Any) -> Store:
    settings.DJANGO_JOBS = {
        **SETTINGS,
        "SCHEDULES": {
            "nightly": {"job": "tests.greet", "cron": "0 3 * * *", "args": ["Ada"]},
            "broken": {"job": "tests.nobody", "cron": "0 3 * * *"},
        },
    }
    store = make_store(archive=True)
    use_store(store)
    return store


def state_of(api: Api, id: str = "settings:nightly") -> str:
    return {each["id"]: each["state"] for each in api.get("v1/schedules").json()["schedules"]}[id]


@pytest.mark.accepts("K05")
def test_they_are_listed_with_what_is_wrong_with_them(api: Api) -> None:
    row = Schedule.objects.create(name="five", job="tests.greet", cron="*/5 * * * *", args=["Bob"], enabled=False)
    found = api.get("v1/schedules").json()
    assert [each["id"] for each in found["schedules"]] == [f"db:{row.pk}", "settings:broken", "settings:nightly"]
    assert found["cursor"] is None
    off, broken, nightly = found["schedules"]
    assert (off["state"], off["next_runs"]) == ("off", [])
    assert "tests.nobody" in broken["problem"]
    assert (nightly["state"], nightly["job"], len(nightly["next_runs"])) == ("on", "tests.greet", 3)


def test_pages_meet_each_of_them_once(api: Api) -> None:
    for n in range(7):
        Schedule.objects.create(name=f"number {n}", job="tests.greet", cron="*/5 * * * *", args=["Bob"])
    ids: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.get(f"v1/schedules?limit=2&cursor={cursor}").json()
        ids += [each["id"] for each in page["schedules"]]
        cursor = page["cursor"]
    assert ids == sorted(entry.id for entry in schedules.entries())


@pytest.mark.accepts("K05", "K06")
def test_run_now_under_an_id_runs_once_however_often_it_is_sent(api: Api, work_off: Callable[..., int]) -> None:
    answers = [api.put(f"{NIGHTLY}/runs/tonight") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["meta"] == {"schedule": "settings:nightly"}
    assert work_off() == 1
    again = api.put(f"{NIGHTLY}/runs/tonight")
    assert (again.status_code, again.json()["state"]) == (200, "succeeded")
    assert work.ran == [("Ada", "Hello")]


def for_a_tenant(get_next: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def layer(new_job: Any) -> Any:
        new_job.scope = "acme"
        return get_next(new_job)

    return layer


@pytest.mark.parametrize("middleware", [[], [f"{__name__}.for_a_tenant"]], ids=["plain", "with a scope"])
def test_a_run_that_has_left_the_history_is_known(
    api: Api, store: Store, settings: Any, work_off: Callable[..., int], middleware: list[str]
) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ENQUEUE_MIDDLEWARE": middleware}
    use_store(store)
    assert api.put(f"{NIGHTLY}/runs/tonight").status_code == 201
    assert work_off() == 1
    assert store.delete("default", ["tonight"]) == ["tonight"]
    again = api.put(f"{NIGHTLY}/runs/tonight")
    assert (again.status_code, again.json()["state"]) == (200, "succeeded")
    assert work_off() == 0


@pytest.mark.parametrize("id", ["pause", "resume"])
def test_a_run_may_have_the_name_of_an_action_as_its_id(api: Api, id: str) -> None:
    assert api.put(f"{NIGHTLY}/runs/{id}").status_code == 201


def test_an_id_that_is_another_jobs_is_409(api: Api) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    assert api.put(f"{NIGHTLY}/runs/1").status_code == 409


@pytest.mark.accepts("K05", "K06")
def test_pause_and_resume_sent_twice_are_the_same_as_once(api: Api, store: Store, clock: Clock) -> None:
    entry = schedules.get_entry("settings:nightly")
    assert api.post(f"{NIGHTLY}/pause").json()["state"] == "paused"
    since = schedules.paused_at(entry)
    clock.advance(5000)
    assert api.post(f"{NIGHTLY}/pause").status_code == 200
    assert (schedules.paused_at(entry), state_of(api)) == (since, "paused")

    assert api.post(f"{NIGHTLY}/resume").json()["state"] == "on"
    begun = state.read_state(store).since(entry)
    clock.advance(5000)
    assert api.post(f"{NIGHTLY}/resume").status_code == 200
    assert state.read_state(store).since(entry) == begun, "what was due since the first call must still run"
    assert api.post("v1/queues/default/resume", {}).status_code == 200
    assert [entry.verb for entry in AuditEntry.objects.order_by("pk")] == ["pause", "resume"], "no queue was paused"


def test_what_is_not_there_or_cannot_run_says_so(api: Api) -> None:
    assert api.post("v1/schedules/settings:none/pause").status_code == 404
    broken = api.put("v1/schedules/settings:broken/runs/1")
    assert broken.status_code in {404, 409}
    assert "tests.nobody" in broken.json()["detail"]


def test_a_caller_sees_the_schedules_of_its_job_types_only(api: Api) -> None:
    assert Api("read", jobs=("tests.charge",)).get("v1/schedules").json()["schedules"] == []


def nothing() -> None:
    """A job."""


def test_a_run_whose_arguments_a_waiting_job_took_is_in_the_audit_log(api: Api) -> None:
    registry.register(JobDefinition(nothing, name="tests.twin", unique="queued", on_conflict="replace", api=True))
    row = Schedule.objects.create(name="twin", job="tests.twin", cron="@daily")
    try:
        assert api.put(f"v1/schedules/db:{row.pk}/runs/1", {}).status_code == 201
        answer = api.put(f"v1/schedules/db:{row.pk}/runs/2", {})
    finally:
        registry.unregister("tests.twin")
    assert (answer.status_code, answer.json()["outcome"]) == (409, "replaced")
    told = [entry.details for entry in AuditEntry.objects.filter(verb="run").order_by("pk")]
    assert [(entry["job"], entry["replaced"]) for entry in told] == [
        (["default", "1"], False),
        (["default", "1"], True),
    ]
