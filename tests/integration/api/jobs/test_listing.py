"""Jobs of a state over HTTP: filters, pages, and what a page does when jobs move meanwhile."""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobs.core.values import Attempt
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import Api

STATES = ["scheduled", "queued", "running", "retry", "blocked", "succeeded", "dead", "cancelled", "expired"]


def written(*mark: str) -> str:
    return urlsafe_b64encode(json.dumps(mark).encode()).decode().rstrip("=")


def walk(api: Api, query: str, act: Any = None) -> list[str]:
    """The ids of all pages; `act(id)` is done to each job before the next page is asked for."""
    ids: list[str] = []
    cursor = ""
    while True:
        page = api.get(f"v1/jobs?{query}&cursor={cursor}").json()
        for job in page["jobs"]:
            ids.append(job["id"])
            if act is not None:
                act(job["id"])
        cursor = page["cursor"]
        if cursor is None:
            return ids


def fill(api: Api, number: int, name: str = "tests.greet") -> list[str]:
    ids = [f"{name}-{n:03}" for n in range(number)]
    for id in ids:
        assert api.put(f"v1/jobs/{name}/{id}", {"data": ["Ada"]}).status_code == 201
    return ids


@pytest.mark.accepts("K05", "K31")
def test_pages_meet_each_job_once(api: Api) -> None:
    ids = fill(api, 230)
    found = walk(api, "state=queued&limit=100")
    assert (len(found), sorted(found)) == (230, ids)
    assert sorted(walk(api, "state=queued&limit=7")) == ids
    assert walk(api, "state=dead") == []


@pytest.mark.accepts("K05")
def test_jobs_that_are_moved_while_they_are_listed_hide_no_other(api: Api, store: Store) -> None:
    ids = fill(api, 150)
    store.kill("default", ids, "a test")

    def retry(id: str) -> None:
        assert api.post(f"v1/jobs/tests.greet/{id}/retry").status_code == 200

    assert sorted(walk(api, "state=dead&limit=20", retry)) == ids
    assert store.stats(["default"])[0].counts["queued"] == 150


def test_jobs_that_end_again_while_they_are_listed_keep_no_list_going(api: Api, store: Store, clock: Clock) -> None:
    ids = fill(api, 30)
    store.kill("default", ids, "a test")

    def dies_again(id: str) -> None:
        clock.advance(1)
        store.revive("default", [id])
        store.kill("default", [id], "again")

    assert sorted(walk(api, "state=dead&limit=4", dies_again)) == ids


def test_a_page_has_what_a_job_has_but_for_results_and_logs(api: Api) -> None:
    fill(api, 1)
    (job,) = api.get("v1/jobs?state=queued").json()["jobs"]
    whole = api.get(f"v1/jobs/{job['id']}").json()
    assert job == {key: value for key, value in whole.items() if key not in ("result", "log")}


def test_filters_by_type_and_queue(api: Api) -> None:
    greetings, renamed = fill(api, 3), []
    for n in range(2):
        api.put(f"v1/jobs/tests.rename/r{n}", {"data": [str(n)]})
        renamed.append(f"r{n}")
    api.put("v1/jobs/tests.swallow/s", {"data": [1]})
    assert sorted(walk(api, "state=queued&name=tests.rename&limit=1")) == renamed
    assert walk(api, "state=queued&queue=small") == ["s"]
    assert sorted(walk(api, "state=queued")) == sorted([*greetings, *renamed, "s"])
    assert walk(api, "state=queued&name=nobody") == []


def test_every_state_can_be_asked_for(api: Api) -> None:
    for state in STATES:
        assert api.get(f"v1/jobs?state={state}").json() == {"jobs": [], "cursor": None}


def test_a_caller_sees_its_own_job_types_only_and_needs_the_scope_read(api: Api) -> None:
    fill(api, 2)
    api.put("v1/jobs/tests.rename/mine", {"data": ["x"]})
    assert walk(Api("read", jobs=("tests.rename",)), "state=queued") == ["mine"]
    assert Api("read", jobs=("tests.rename",)).get("v1/jobs?state=queued&name=tests.greet").status_code == 403
    assert Api("enqueue", "manage").get("v1/jobs?state=queued").status_code == 403


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 422),
        ("state=lost", 422),
        ("state=dead&limit=101", 422),
        ("state=dead&limit=0", 422),
        ("state=dead&cursor=nonsense", 422),
        ("state=dead&cursor=WzEsICJkZWZhdWx0IiwgIngiXQ", 422),
        ("state=dead&queue=nowhere", 404),
    ],
)
def test_what_cannot_be_listed_is_refused(api: Api, query: str, status: int) -> None:
    fill(api, 1)
    api.post("v1/jobs/tests.greet/tests.greet-000/kill")
    answer = api.get(f"v1/jobs?{query}")
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "cursor",
    [
        [1, "default", "dead:1790000000000:a"],  # of an earlier release
        [1, "default", "some-id"],
        [1, "", written("1790000000000", "default", "a")],
        [1, "dead:1790000000000:a"],
        [1, written("nan", "default", "a")],
        [1, written("[1", "default", "a")],
        [1, "W10"],
        [True, ""],
        [1.5, ""],
        {},
    ],
)
def test_a_cursor_of_another_list_or_release_is_refused(api: Api, store: Store, state: str, cursor: Any) -> None:
    fill(api, 2)
    store.kill("default", ["tests.greet-000"], "a test")
    text = urlsafe_b64encode(json.dumps(cursor).encode()).decode().rstrip("=")
    assert api.get(f"v1/jobs?state={state}&cursor={text}").status_code == 422


@pytest.mark.parametrize(
    "mark",
    [("1_0", "default", "a"), (" 1 ", "default", "a"), ("1e400", "default", "a"), ("-inf", "", "a"),
     ("1", "\ud800", "a"), ("1", "default", "\u0416")],
)  # fmt: skip
def test_a_cursor_that_somebody_has_made_up_is_no_error(api: Api, store: Store, mark: tuple[str, str, str]) -> None:
    fill(api, 2)
    store.kill("default", ["tests.greet-000"], "a test")
    for until in (0, -1, 10**400):
        text = urlsafe_b64encode(json.dumps([until, written(*mark)]).encode()).decode()
        for state in STATES:
            assert api.get(f"v1/jobs?state={state}&cursor={text}").status_code in (200, 422)


def test_a_page_that_finds_nothing_costs_a_bounded_number_of_commands(
    api: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may see few job types is shown all of these jobs, over pages of bounded cost."""
    fill(api, 300)
    api.put("v1/jobs/tests.rename/mine", {"data": ["x"]})
    monkeypatch.setattr(sys.modules["django_jobs.browse.listing"], "SCAN", 50)
    calls = list[Any]()
    for name in ("run", "command", "pipeline"):
        real = getattr(store.transport, name)
        monkeypatch.setattr(store.transport, name, lambda *args, real=real: (calls.append(args), real(*args))[1])
    caller, found, cursor, pages = Api("read", jobs=("tests.rename",)), list[str](), "", 0
    while cursor is not None:
        calls.clear()
        page = caller.get(f"v1/jobs?state=queued&limit=5&cursor={cursor}").json()
        assert len(calls) < 26
        found, cursor, pages = found + [job["id"] for job in page["jobs"]], page["cursor"], pages + 1
    assert found == ["mine"]
    assert pages > 5


def test_when_each_job_could_run_is_in_every_list(api: Api, store: Store, clock: Clock) -> None:
    at = datetime.fromtimestamp(clock.now / 1000 + 60, UTC).isoformat()
    api.put("v1/jobs/tests.greet/later", {"data": ["Ada"], "run_after": at, "tags": ["t"]})
    clock.advance(60_000)
    store.promote("default")
    (claimed,) = store.claim("default", "w", 1, lease=30_000).claims
    store.bury(claimed, Attempt(1, "failed", 0, 1, "w", "ValueError", "no"))
    ready = api.get("v1/jobs/later").json()["ready_at"]
    assert ready != api.get("v1/jobs/later").json()["enqueued_at"]
    for query in ("", "&tag=t", "&from=2000-01-01T00:00:00Z"):
        (job,) = api.get(f"v1/jobs?state=dead{query}").json()["jobs"]
        assert job["ready_at"] == ready


def test_a_list_of_a_stretch_of_time(api: Api, store: Store, clock: Clock) -> None:
    clock.now = clock.now // 1000 * 1000
    ids, began = fill(api, 40), clock.now
    for id in ids:
        store.kill("default", [id], "a test")
        clock.advance(1000)

    def at(seconds: int) -> str:
        return datetime.fromtimestamp(began / 1000 + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    assert walk(api, f"state=dead&limit=7&from={at(5)}&until={at(30)}") == ids[5:30]
    assert walk(api, f"state=dead&limit=7&from={at(5)}&name=tests.greet") == ids[5:]
    assert walk(api, f"state=dead&until={at(5)}") == ids[:5]
    assert walk(api, f"state=dead&until={at(5)[:-1]}") == ids[:5], "without an offset it is UTC"
    assert walk(api, f"state=succeeded&from={at(5)}") == []

    def dies_again(id: str) -> None:
        clock.advance(1)
        store.revive("default", [id])
        store.kill("default", [id], "again")

    assert walk(api, f"state=dead&limit=4&from={at(5)}", dies_again) == ids[5:], (
        "jobs that die again keep no list going"
    )


@pytest.mark.parametrize(
    "query",
    ["state=dead&from=yesterday", "state=dead&until=2026-13-01", "state=dead&from=0001-01-01T00:00:00%2B10:00",
     "state=queued&from=2026-01-01T00:00:00Z", "state=running&until=2026-01-01T00:00:00Z",
     "state=dead&from=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "state=dead&from=1960-01-01T00:00:00Z",
     "state=dead&from=2026-01-01T00:00:00Z&cursor=WzEsICIiLCAieCJd"],
)  # fmt: skip
def test_wrong_times_are_refused(api: Api, query: str) -> None:
    answer = api.get(f"v1/jobs?{query}")
    assert answer.status_code == 422, answer.text
