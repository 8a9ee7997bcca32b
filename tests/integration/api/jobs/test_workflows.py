"""Workflows and batches over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_jobs import Batch, Workflow, browse, chain, group
from django_jobs.core.values import Attempt, Lane
from django_jobs.stores import use_store
from django_jobs.workflows import engine
from tests.integration.api import work
from tests.integration.api.conftest import SETTINGS, Api

pytestmark = pytest.mark.django_db
TYPES = "urn:problem-type:django-jobs:"


@pytest.fixture(autouse=True)
def at_once(store, settings):
    """What is enqueued is stored at once, although each test is a transaction."""
    settings.DJANGO_JOBS = {**SETTINGS, "ON_COMMIT": False}
    use_store(store)


def order():
    flow = Workflow("order")
    paid = flow.add(work.greet.s("paid"), name="paid")
    parts = [flow.add(work.greet.s(name), name=name, after=[paid]) for name in ("packed", "invoiced")]
    flow.add(work.greet.s("mailed"), name="mailed", after=parts)
    return flow.enqueue().id


def stopped(store, step=None):
    """A chain whose first step is dead."""
    first = step or work.greet.s("a")
    handle = chain(first, work.greet.s("b")).enqueue()
    (held,) = [claim for lane in Lane for claim in store.claim("default", "w", 1, lane=lane, lease=60_000).claims]
    store.bury(held, Attempt(1, "failed", store.now(), error_type="ValueError", error="the bank does not answer"))
    engine.advance(store, "default")
    return handle.id


def test_the_list_has_pages_and_filters(api, store):
    ids = [order() for _ in range(5)]
    first = api.get("v1/workflows?limit=2").json()
    second = api.get(f"v1/workflows?limit=2&cursor={first['cursor']}").json()
    third = api.get(f"v1/workflows?limit=2&cursor={second['cursor']}").json()
    assert third["cursor"] is None
    found = [each["id"] for page in (first, second, third) for each in page["workflows"]]
    assert sorted(found) == sorted(ids)
    assert len(api.get("v1/workflows?state=running&kind=workflow").json()["workflows"]) == 5
    assert api.get("v1/workflows?state=stopped").json() == {"workflows": [], "cursor": None}
    assert api.get("v1/workflows?state=asleep").status_code == 422
    assert api.get("v1/workflows?cursor=x").json()["type"] == f"{TYPES}invalid"


def test_one_with_its_steps(api, store):
    id = order()
    found = api.get(f"v1/workflows/{id}").json()
    assert (found["kind"], found["name"], found["state"], found["total"]) == ("workflow", "order", "running", 4)
    assert found["counts"] == {**dict.fromkeys(found["counts"], 0), "live": 1, "waiting": 3}
    page = api.get(f"v1/workflows/{id}/steps?limit=3").json()
    assert [step["name"] for step in page["steps"]] == ["paid", "packed", "invoiced"]
    assert [step["job_state"] for step in page["steps"]] == ["queued", None, None]
    last = api.get(f"v1/workflows/{id}/steps?limit=3&cursor={page['cursor']}").json()
    assert (last["steps"][0]["after"], last["cursor"]) == ([1, 2], None)
    assert api.get(f"v1/workflows/{id}/steps?cursor=x").json()["type"] == f"{TYPES}invalid"


def test_a_batch_with_its_jobs(api, store):
    batch = Batch("import", on_success=work.greet.s("done"))
    with batch:
        work.greet.enqueue_many([(f"{n}",) for n in range(5)])
    found = api.get(f"v1/workflows/{batch.handle.id}").json()
    assert (found["closed"], found["callbacks"]) == (True, {"on_success": False})
    first = api.get(f"v1/workflows/{batch.handle.id}/steps?limit=3").json()
    second = api.get(f"v1/workflows/{batch.handle.id}/steps?limit=3&cursor={first['cursor']}").json()
    assert second["cursor"] is None
    assert len({step["job_id"] for step in first["steps"] + second["steps"]}) == 5
    assert first["steps"][0]["job"] == "tests.greet"


def test_retry_lets_it_go_on(api, store, work_off):
    id = stopped(store)
    found = api.get(f"v1/workflows/{id}").json()
    assert (found["state"], found["stopped_by"]) == ("stopped", {"dead": 1})
    assert api.get(f"v1/workflows/{id}/steps").json()["steps"][0]["error"] == "ValueError: the bank does not answer"
    answer = api.post(f"v1/workflows/{id}/retry").json()
    assert (answer["state"], answer["counts"]["live"], answer["held"]) == ("running", 1, [])
    assert (answer["ended_at"], answer["restarted"]) == (None, [f"{id}.0"])
    assert api.post(f"v1/workflows/{id}/retry").json() == answer
    while work_off():
        engine.advance(store, "default")
    done = api.get(f"v1/workflows/{id}").json()
    assert done["state"] == "succeeded"
    assert done["ended_at"] is not None
    assert api.post(f"v1/workflows/{id}/retry").json()["restarted"] == []
    problem = api.post(f"v1/workflows/{id}/cancel").json()
    assert (problem["status"], problem["type"]) == (409, f"{TYPES}workflow-ended")


def test_a_step_that_may_have_started_is_held(api, store):
    id = stopped(store, work.pay.s(1))
    answer = api.post(f"v1/workflows/{id}/retry").json()
    assert (answer["state"], answer["held"], answer["restarted"]) == ("stopped", [f"{id}.0"], [])
    assert answer["ended_at"] is not None


def test_a_job_of_a_batch_whose_key_another_has_stays(api, store):
    with Batch("import") as batch:
        member = work.rename.enqueue("Ada")
    (held,) = store.claim("default", "w", 1, lease=60_000).claims
    store.bury(held, Attempt(1, "failed", store.now(), error_type="ValueError", error="no"))
    engine.advance(store, "default")
    other = work.rename.enqueue("Ada")
    answer = api.post(f"v1/workflows/{batch.handle.id}/retry").json()
    assert (answer["taken"], answer["restarted"]) == ({member.id: other.id}, [])


def test_cancel(api, store):
    id = group(*[work.greet.s(f"{n}") for n in range(3)]).enqueue().id
    answer = api.post(f"v1/workflows/{id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    problem = api.post(f"v1/workflows/{id}/retry").json()
    assert (problem["status"], problem["type"]) == (409, f"{TYPES}workflow-ended")


def test_one_that_is_stopped_can_be_cancelled(api, store):
    id = stopped(store)
    for _ in range(2):  # it may be sent again
        answer = api.post(f"v1/workflows/{id}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert api.post(f"v1/workflows/{id}/retry").json()["type"] == f"{TYPES}workflow-ended"


@pytest.mark.parametrize("path", ["", "/steps", "/cancel", "/retry"])
def test_what_is_not_there(api, path):
    method = "GET" if path in ("", "/steps") else "POST"
    answer = api(method, f"v1/workflows/w123{path}")
    assert (answer.status_code, answer.json()["type"]) == (404, f"{TYPES}no-workflow")


def test_a_token_for_some_job_types_neither_sees_nor_changes_them(store):
    id = order()
    for path in ("v1/workflows", f"v1/workflows/{id}", f"v1/workflows/{id}/steps"):
        assert Api("read", jobs=("tests.greet",)).get(path).json()["type"] == f"{TYPES}job-not-allowed"
    for verb in ("cancel", "retry"):
        answer = Api("manage", jobs=("tests.greet",)).post(f"v1/workflows/{id}/{verb}")
        assert answer.json()["type"] == f"{TYPES}job-not-allowed"
    assert browse.workflow(id).state == "running"


def test_the_replay_of_an_expired_step_is_no_step(api, store, clock):
    flow = Workflow("two")
    late = flow.add(work.brief.s("late"))
    flow.add(work.greet.using(run_at=datetime.fromtimestamp(clock.now / 1000, UTC) + timedelta(days=1)).s("goes on"))
    flow.add(work.greet.s("after"), after=[late])
    handle = flow.enqueue()
    clock.advance(61_000)
    store.expire("default")
    engine.advance(store, "default")
    before = handle.state, handle.counts
    replayed = api.post(f"v1/jobs/tests.brief/{handle.steps[0].job_id}/replay")
    engine.advance(store, "default")
    assert (replayed.status_code, replayed.json()["state"]) == (201, "expired")
    assert (before[0], before[1]["live"], before[1]["expired"]) == ("running", 1, 1)
    assert (handle.state, handle.counts) == before
