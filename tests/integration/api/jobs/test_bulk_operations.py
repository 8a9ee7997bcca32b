"""Bulk operations over HTTP: a preview, then the act with what it showed, once, and never on more than it showed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from django_jobs.admin.common.acts import sentence
from django_jobs.core.values import Attempt, Lane, State
from django_jobs.models import ApiToken, AuditEntry
from django_jobs.operations import bulk
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import Api

ADA = 'arg.name="Ada"'
VERBS = {"retry": "dead", "cancel": "queued", "kill": "queued", "delete": "dead", "reschedule": "queued"}


@pytest.fixture
def manager(api: Api) -> Api:
    return Api("manage", "read")


def put(api: Api, id: str, name: str = "Ada", kind: str = "tests.greet") -> None:
    assert api.put(f"v1/jobs/{kind}/{id}", {"data": [name]}).status_code == 201


def bury(store: Store, number: int) -> None:
    """Let the jobs that wait first die."""
    for held in store.claim("default", "w", number, lease=60_000).claims:
        store.bury(held, Attempt(1, "failed", 0, error="no"))


def ask(api: Api, **wanted: Any) -> Any:
    return api.get(f"v1/bulk-operations/preview?{urlencode(wanted)}")


def preview(api: Api, verb: str, query: str) -> dict[str, Any]:
    answer = ask(api, verb=verb, query=query)
    assert answer.status_code == 200, answer.content
    shown: dict[str, Any] = answer.json()
    return shown


def order(shown: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {key: shown[key] for key in ("verb", "query", "matching", "preview")} | more


def problem(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


def test_a_preview_says_how_many_match_and_shows_the_first_and_changes_nothing(
    api: Api, manager: Api, store: Store
) -> None:
    for n in range(7):
        put(api, str(n), "Ada" if n < 6 else "Adam")
    bury(store, 7)
    shown = preview(manager, "delete", f"state:dead {ADA}")
    assert (shown["matching"], shown["whole"], shown["checked"], shown["total"]) == (6, True, 7, 7)
    assert ([job["data"] for job in shown["sample"]], shown["notes"]) == ([["Ada"]] * 5, [])
    assert preview(manager, "delete", "state:dead arg.nam=1")["notes"] == ["No job that was checked has arg.nam."]
    assert store.stats(["default"])[0].counts[State.DEAD] == 7


@pytest.mark.parametrize(("verb", "state"), VERBS.items())
def test_each_verb_is_applied_to_what_matches_and_audited_with_the_query(
    api: Api, manager: Api, store: Store, verb: str, state: str
) -> None:
    for id, name in (("1", "Ada"), ("2", "Adam"), ("3", "Ada")):
        put(api, id, name)
    if state == "dead":
        bury(store, 3)
    query = f"state:{state} {ADA}"
    more = {"run_after": "2035-01-01T00:00:00Z"} if verb == "reschedule" else {}
    done = manager.put("v1/bulk-operations/mine", order(preview(manager, verb, query), **more))
    assert (done.status_code, done.json()["moved"], done.json()["percent"]) == (201, 2, 100)
    assert done.json()["finished_at"]
    assert store.get("default", "2").state == state  # type: ignore[union-attr]
    left = {store.get("default", id) for id in ("1", "3")}
    assert all(info is None or info.state != state for info in left)
    entry = AuditEntry.objects.get(kind="bulk")
    assert (entry.source, entry.actor, entry.details["query"]) == ("http", manager_name(manager), query)
    assert sorted(entry.details["ids"]) == [["default", "1"], ["default", "3"]]
    assert query in sentence(entry)
    assert manager.get("v1/bulk-operations/mine").json() == done.json()


def manager_name(api: Api) -> str:
    token = ApiToken.objects.with_secret(api.headers["Authorization"].partition(" ")[2])
    assert token is not None
    return token.name


def test_jobs_that_come_after_the_preview_are_left_alone_in_every_state(
    api: Api, manager: Api, store: Store, clock: Clock
) -> None:
    put(api, "1")
    put(api, "2")
    bury(store, 1)
    of_dead, of_queued = preview(manager, "delete", "state:dead"), preview(manager, "cancel", "state:queued")
    assert (of_dead["matching"], of_queued["matching"]) == (1, 1)
    clock.advance(10)
    put(api, "3")
    bury(store, 1)
    for id, shown in (("dead", of_dead), ("queued", of_queued)):
        assert manager.put(f"v1/bulk-operations/{id}", order(shown)).status_code == 201
    assert store.get("default", "1") is None
    assert {id: store.get("default", id).state for id in "23"} == {"2": "dead", "3": "queued"}  # type: ignore[union-attr]


def test_the_act_needs_the_number_that_was_shown_to_this_token_within_the_hour(
    api: Api, manager: Api, store: Store, clock: Clock
) -> None:
    put(api, "1")
    shown = preview(manager, "cancel", "state:queued")
    odd = [{"matching": 2}, {"query": "state:queued id:1"}, {"verb": "kill"}, {"preview": "x"}]
    odd += [{"preview": f"{store.now() + 10**9}.{shown['preview'].partition('.')[2]}"}, {"preview": "9" * 200}]
    for change in odd:
        answer = manager.put("v1/bulk-operations/1", order(shown) | change)
        assert problem(answer) == (409, "preview-differs"), change
    assert problem(Api("manage", "read").put("v1/bulk-operations/1", order(shown))) == (409, "preview-differs")
    clock.advance(3_600_001)
    assert problem(manager.put("v1/bulk-operations/1", order(shown))) == (409, "preview-differs")
    assert store.get("default", "1").state is State.QUEUED  # type: ignore[union-attr]
    assert manager.get("v1/bulk-operations/1").status_code == 404


def test_the_same_call_again_acts_on_nothing_more_however_late(
    api: Api, manager: Api, store: Store, clock: Clock
) -> None:
    put(api, "1")
    shown = preview(manager, "cancel", "state:queued")
    first = manager.put("v1/bulk-operations/1", order(shown))
    clock.advance(7_200_000)
    put(api, "2")
    again = manager.put("v1/bulk-operations/1", order(shown))
    assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
    assert store.get("default", "2").state is State.QUEUED  # type: ignore[union-attr]
    other = preview(manager, "kill", "state:queued")
    assert problem(manager.put("v1/bulk-operations/1", order(other))) == (409, "id-used")
    assert AuditEntry.objects.filter(kind="bulk").count() == 1


def test_an_operation_that_was_forgotten_and_is_sent_again_moves_no_job_that_came_back(
    api: Api, manager: Api, store: Store, clock: Clock
) -> None:
    put(api, "1")
    bury(store, 1)
    shown = preview(manager, "retry", "state:dead")
    assert manager.put("v1/bulk-operations/1", order(shown)).json()["moved"] == 1
    store.update_document(bulk.DOCUMENT, dict.fromkeys(store.get_document(bulk.DOCUMENT)))
    clock.advance(10)
    bury(store, 1)
    again = manager.put("v1/bulk-operations/1", order(shown))
    assert (again.status_code, again.json()["moved"]) == (201, 0)


def test_a_token_for_some_types_finds_counts_and_moves_jobs_of_these_only(api: Api, store: Store) -> None:
    put(api, "1")
    put(api, "2", kind="tests.rename")
    limited = Api("manage", "read", jobs=("tests.greet",))
    for query in ("state:queued", 'state:queued arg.name="Ada"', "state:queued Ada"):
        shown = preview(limited, "cancel", query)
        assert (shown["matching"], shown["checked"], shown["total"]) == (1, 1, None)
        assert [job["id"] for job in shown["sample"]] == ["1"]
    assert preview(limited, "cancel", "state:queued id:2")["matching"] == 0
    assert preview(limited, "cancel", "state:queued name:tests.rename")["matching"] == 0
    assert limited.put("v1/bulk-operations/1", order(shown)).json()["moved"] == 1
    all_of_them = preview(limited, "cancel", "state:queued")
    assert limited.put("v1/bulk-operations/2", order(all_of_them)).json()["moved"] == 0
    assert store.get("default", "2").state is State.QUEUED  # type: ignore[union-attr]


def test_a_token_for_some_types_learns_nothing_of_the_arguments_of_others(api: Api) -> None:
    put(api, "1")
    limited = Api("manage", "read", jobs=("tests.pay",))
    notes = [preview(limited, "cancel", f"state:queued arg.{name}=1")["notes"] for name in ("name", "nothing")]
    assert notes == [["No job that was checked has arg.name."], ["No job that was checked has arg.nothing."]]


def test_failed_jobs_of_other_types_are_not_counted_by_the_index(api: Api, store: Store) -> None:
    put(api, "1")
    put(api, "2", kind="tests.rename")
    bury(store, 2)
    limited = Api("manage", "read", jobs=("tests.greet",))
    for query in ("state:dead", "state:dead name:tests.rename", "state:dead error:failed", "state:dead tag:vip"):
        shown = preview(limited, "delete", query)
        assert shown["matching"] == (query == "state:dead"), query
        assert limited.put(f"v1/bulk-operations/{len(query)}", order(shown)).status_code == 201
    assert store.get("default", "1") is None
    assert store.get("default", "2") is not None


def test_sensitive_arguments_are_found_by_nobody(api: Api, manager: Api) -> None:
    put(api, "1", "4111", kind="tests.charge")
    for value in ('"4111"', '"4112"', '"•••"'):
        shown = preview(manager, "cancel", f"state:queued arg.card={value}")
        assert (shown["matching"], shown["notes"]) == (0, ["No job that was checked has arg.card."])
    assert preview(manager, "cancel", "state:queued 4111")["matching"] == 0


def test_who_may_not_read_searches_no_arguments_and_sees_none(api: Api) -> None:
    put(api, "1")
    blind = Api("manage")
    answer = ask(blind, verb="cancel", query=f"state:queued {ADA}")
    assert problem(answer) == (422, "invalid")
    assert preview(blind, "cancel", "state:queued Ada")["matching"] == 0
    (job,) = preview(blind, "cancel", "state:queued")["sample"]
    assert (job["id"], "data" in job, "args" in job) == ("1", False, False)


@pytest.mark.parametrize("scopes", [("read",), ("enqueue",), ("work",), ("metrics",), ("targets",)])
def test_only_the_scope_manage_may_look_and_act(api: Api, scopes: tuple[str, ...]) -> None:
    other = Api(*scopes)
    calls = [ask(other, verb="retry", query="state:dead")]
    calls.append(other.put("v1/bulk-operations/1", {"verb": "retry", "query": "x", "matching": 0, "preview": "x"}))
    calls += [other.get("v1/bulk-operations/1"), other("DELETE", "v1/bulk-operations/1")]
    assert [problem(answer) for answer in calls] == [(403, "scope-missing")] * 4


def test_jobs_that_may_have_been_started_once_stay_and_are_counted(api: Api, manager: Api, store: Store) -> None:
    api.put("v1/jobs/tests.pay/1", {"data": [7]})
    held = store.claim("default", "w", 1, lease=60_000, lane=Lane.ALONE).claims
    store.bury(held[0], Attempt(1, "failed", 0, error="no"))
    done = manager.put("v1/bulk-operations/1", order(preview(manager, "retry", "state:dead"))).json()
    assert (done["moved"], done["held"]) == (0, 1)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"verb": "retry", "query": "name:tests.greet"}, "names no state"),
        ({"verb": "retry", "query": "state:running"}, "does not apply"),
        ({"verb": "delete", "query": "state:dead stat:x"}, "There is no field 'stat'"),
        ({"verb": "delete", "query": "state:dead arg.a=NaN"}, "not JSON"),
        ({"verb": "move", "query": "state:dead"}, "not valid"),
        ({"verb": "delete", "query": ""}, "not valid"),
        ({"verb": "delete", "query": "x" * 2001}, "not valid"),
    ],
)
def test_what_cannot_be_read_is_refused(manager: Api, body: dict[str, Any], why: str) -> None:
    answer = ask(manager, **body)
    assert (answer.status_code, why in answer.json()["detail"]) == (422, True), answer.content


def test_a_time_goes_with_reschedule_and_a_reason_with_kill(api: Api, manager: Api) -> None:
    put(api, "1")
    cancel, later = preview(manager, "cancel", "state:queued"), preview(manager, "reschedule", "state:queued")
    bodies = [order(cancel, run_after="2035-01-01T00:00:00Z"), order(cancel, reason="no"), order(later)]
    for body in (*bodies, order(later, run_after="1960-01-01T00:00:00Z")):
        assert manager.put("v1/bulk-operations/1", body).status_code == 422
    assert problem(manager.get("v1/bulk-operations/1")) == (404, "no-operation")


def test_a_large_operation_goes_on_by_the_call_again_or_by_workers_and_can_be_stopped(
    api: Api, manager: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        put(api, str(n))
    bury(store, 6)
    monkeypatch.setattr(bulk, "INDEXED_BATCH", 2)
    monkeypatch.setattr("django_jobs.api.endpoints.bulk_operations.STRETCH", 0.0)
    shown = preview(manager, "delete", "state:dead name:tests.greet")
    first = manager.put("v1/bulk-operations/1", order(shown)).json()
    assert (first["moved"], first["finished_at"], first["percent"]) == (2, None, 33)
    assert manager.put("v1/bulk-operations/1", order(shown)).json()["moved"] == 4
    bulk.tick(0.0)
    assert manager.get("v1/bulk-operations/1").json()["moved"] == 6
    for _ in range(2):
        stopped = manager("DELETE", "v1/bulk-operations/1")
        assert (stopped.status_code, stopped.json()["stopped"]) == (200, True)
    while bulk.tick(0.0):
        pass
    assert manager.get("v1/bulk-operations/1").json()["finished_at"]
    entries = AuditEntry.objects.order_by("pk")
    assert [(entry.verb, entry.source, bool(entry.details.get("ended"))) for entry in entries] == [
        ("delete", "http", False), ("stop", "http", False), ("delete", "http", True)
    ]  # fmt: skip
    assert entries.last().details["moved"] == 6  # type: ignore[union-attr]


def test_an_operation_is_that_of_one_token(api: Api, manager: Api) -> None:
    put(api, "1")
    manager.put("v1/bulk-operations/1", order(preview(manager, "cancel", "state:queued")))
    other = Api("manage", "read")
    assert problem(other.get("v1/bulk-operations/1")) == (404, "no-operation")
    assert problem(other("DELETE", "v1/bulk-operations/1")) == (404, "no-operation")


def test_the_limit_of_a_token_holds_for_the_worker_that_goes_on_and_if_it_is_damaged_nothing_is_moved(
    api: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        put(api, str(n), kind="tests.rename" if n % 2 else "tests.greet", name=str(n))
    bury(store, 4)
    limited = Api("manage", "read", jobs=("tests.greet",))
    monkeypatch.setattr(bulk, "INDEXED_BATCH", 2)
    monkeypatch.setattr("django_jobs.api.endpoints.bulk_operations.STRETCH", 0.0)
    limited.put("v1/bulk-operations/1", order(preview(limited, "delete", "state:dead before:2100-01-01")))
    (key,) = [key for key in store.get_document(bulk.DOCUMENT) if "/" not in key]
    task = store.get_document(bulk.DOCUMENT)[key]
    store.update_document(bulk.DOCUMENT, {key: task | {"match": task["match"] | {"types": "{"}}})
    while bulk.tick(0.0):
        pass
    assert limited.get("v1/bulk-operations/1").json()["moved"] == 1
