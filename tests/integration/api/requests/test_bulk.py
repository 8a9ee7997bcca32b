"""Many jobs in one call: each item has its own answer, and the call may be sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import archive
from django_jobs.api.common.problems import TYPES
from django_jobs.api.common.schemas import MOST_IN_BULK
from django_jobs.core.values import State
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import SETTINGS, Api


def put_many(api: Api, *items: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    answer = api("POST", "v1/jobs", {"jobs": list(items)}, **headers)
    assert answer.status_code == 200, answer.content
    jobs: list[dict[str, Any]] = answer.json()["jobs"]
    return jobs


def report(api: Api, *items: dict[str, Any]) -> list[dict[str, Any]]:
    answer = api.post("v1/reports", {"reports": list(items)})
    assert answer.status_code == 200, answer.content
    reports: list[dict[str, Any]] = answer.json()["reports"]
    return reports


def statuses(answers: list[dict[str, Any]]) -> list[int | str]:
    """201, 200, or the kind of the problem."""
    return [each["problem"]["type"].removeprefix(TYPES) if each.get("problem") else each["status"] for each in answers]


def queued(store: Store) -> int:
    return store.stats(["default"])[0].counts.get("queued", 0)


def greet(id: str, name: Any = "Ada", **more: Any) -> dict[str, Any]:
    return {"name": "tests.greet", "id": id, "data": [name], **more}


class TestEnqueue:
    def test_each_item_is_answered_as_its_own_put_is(self, api: Api, store: Store) -> None:
        api.put("v1/jobs/tests.greet/there", {"data": ["Ada"]})
        api.put("v1/jobs/tests.greet/other", {"data": ["Bob"]})
        api.put("v1/jobs/tests.rename/first", {"data": ["Ada"]})
        items = [
            greet("new", priority=3),
            greet("there"),
            greet("other"),
            {"name": "tests.rename", "id": "second", "data": ["Ada"]},
            {"name": "tests.private", "id": "p"},
            {"name": "tests.greet", "id": "w", "data": {"wrong": 1}},
            greet("old", run_after="1960-01-01T00:00:00Z"),
            {"name": "tests.greet", "data": ["Ada"]},
        ]
        expected = [201, 200, "id-used", "key-used", "no-job-type", "data-refused", "invalid", "invalid"]
        alone = [
            api.put(f"v1/jobs/{item['name']}/{item['id']}", {k: v for k, v in item.items() if k not in ("name", "id")})
            for item in items[1:7]
        ]
        answers = put_many(api, *items)
        assert statuses(answers)[:6] == expected[:6]
        assert [each["status"] for each in answers[1:7]] == [each.status_code for each in alone]
        assert statuses(answers)[7] == "invalid"
        shown = api.get("v1/jobs/new").json()
        assert answers[0]["job"] | {"enqueued_at": "", "ready_at": ""} == shown | {"enqueued_at": "", "ready_at": ""}
        assert answers[1]["job"] == api.get("v1/jobs/there").json()
        assert queued(store) == 4

    @pytest.mark.usefixtures("types_stay_known")
    def test_a_thousand_are_one_call_to_the_store_and_two_queries(
        self, api: Api, store: Store, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
    ) -> None:
        put_many(api, greet("warm"))
        calls: list[int] = []
        real = store.enqueue

        def enqueue(queue: str, jobs: Any, **more: Any) -> Any:
            calls.append(len(jobs))
            return real(queue, jobs, **more)

        monkeypatch.setattr(store, "enqueue", enqueue)
        items = [greet(str(number)) for number in range(MOST_IN_BULK)]
        with django_assert_max_num_queries(3):  # the token, and 500 ids of the archive at a time
            assert statuses(put_many(api, *items)) == [201] * MOST_IN_BULK
        assert calls == [MOST_IN_BULK]
        assert statuses(put_many(api, *items)) == [200] * MOST_IN_BULK

    def test_one_more_than_a_thousand_or_none_is_refused_as_a_whole(self, api: Api, store: Store) -> None:
        for items in ([], [greet(str(number)) for number in range(MOST_IN_BULK + 1)]):
            assert api.post("v1/jobs", {"jobs": items}).status_code == 422
        assert api.post("v1/jobs", {"jobs": [greet("1"), greet("2", surprise=1)]}).status_code == 422
        assert queued(store) == 0

    def test_a_second_call_has_the_whole_result_as_its_own_put_has(
        self, api: Api, store: Store, work_off: Callable[..., int]
    ) -> None:
        item = greet("long", "Ada" * 1000)
        put_many(api, item)
        assert work_off() == 1
        (again,) = put_many(api, item)
        assert again["job"]["result"] == f"Hello, {item['data'][0]}"
        assert again["job"] == api.put("v1/jobs/tests.greet/long", {"data": item["data"]}).json()
        assert again["job"] == api.get("v1/jobs/tests.greet/long").json()

    def test_an_idempotency_key_makes_the_ids(self, api: Api, store: Store) -> None:
        items = [{"name": "tests.greet", "data": [name]} for name in ("Ada", "Ada", "Bob")]
        first = put_many(api, *items, **{"Idempotency-Key": "tuesday"})
        again = put_many(api, *items, **{"Idempotency-Key": "tuesday"})
        other = put_many(api, *items, **{"Idempotency-Key": "friday"})
        assert [each["id"] for each in first] == [each["id"] for each in again]
        assert (statuses(first), statuses(again), statuses(other)) == ([201] * 3, [200] * 3, [201] * 3)
        assert queued(store) == 6
        # Another caller may use the same words.
        assert statuses(put_many(Api("enqueue"), *items, **{"Idempotency-Key": "tuesday"})) == [201] * 3
        # The same key with another list is told.
        items[0]["data"] = ["Eve"]
        assert statuses(put_many(api, *items, **{"Idempotency-Key": "tuesday"})) == ["id-used", 200, 200]

    def test_an_id_that_stands_twice_in_one_call_is_one_job(self, api: Api, store: Store) -> None:
        answers = put_many(api, greet("1"), greet("1"), greet("1", "Bob"), {"name": "tests.swallow", "id": "1"})
        assert statuses(answers) == [201, 200, "id-used", "id-used"]
        assert answers[0]["job"] == answers[1]["job"]
        assert queued(store) == 1

    def test_jobs_that_have_left_the_store_are_known(
        self, api: Api, store: Store, work_off: Callable[..., int]
    ) -> None:
        put_many(api, greet("1"), greet("2"))
        assert work_off() == 2
        archive.write(store.get_many("default", ["1"]))
        store.delete("default", ["1", "2"])
        answers = put_many(api, greet("1"), greet("2"), greet("3"))
        assert statuses(answers) == [200, 200, 201]
        assert [each["job"]["archived"] for each in answers] == [True, False, False]
        assert statuses(put_many(api, greet("1", "Eve"), greet("2", "Eve"))) == ["id-used", "id-used"]
        assert work_off() == 1

    def test_a_full_queue_refuses_its_items_and_no_others(self, api: Api, store: Store) -> None:
        items = [{"name": "tests.swallow", "id": str(number), "data": number} for number in range(5)]
        answers = put_many(api, *items, greet("5"))
        assert statuses(answers) == [201] * 3 + ["queue-full"] * 2 + [201]
        store.cancel("small", ["0", "1"])
        # Those that were accepted stay so; the others get the room that there is now.
        assert statuses(put_many(api, *items)) == [200] * 3 + [201] * 2

    def test_a_token_for_some_types_enqueues_these(self, api: Api) -> None:
        api = Api("enqueue", jobs=("tests.swallow",))
        answers = put_many(api, greet("1"), {"name": "tests.swallow", "id": "1"})
        assert statuses(answers) == ["job-not-allowed", 201]
        assert "data" not in answers[1]["job"]

    def test_without_a_store_the_whole_call_is_503(self, api: Api, settings: Any) -> None:
        settings.DJANGO_JOBS = {**SETTINGS, "STORE": "redis://127.0.0.1:1/0"}
        use_store(None)
        answer = api.post("v1/jobs", {"jobs": [greet("1")]})
        assert (answer.status_code, answer.json()["type"]) == (503, f"{TYPES}store-away")
        assert answer["Retry-After"] == "5"


class TestReport:
    @pytest.fixture
    def held(self, api: Api, claim: Callable[..., Any]) -> list[dict[str, Any]]:
        """Six claimed jobs, reported as succeeded."""
        put_many(api, *({"name": "php.resize", "id": str(number)} for number in range(6)))
        jobs = claim(limit=10)
        return [
            {"name": job["name"], "id": job["id"], "token": job["token"], "status": "succeeded", "result": job["id"]}
            for job in sorted(jobs, key=lambda job: str(job["id"]))
        ]

    def test_each_report_is_answered_by_itself(
        self, api: Api, store: Store, held: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[tuple[str, int]] = []

        def counted(verb: str) -> Callable[[str, Any], Any]:
            real = getattr(store, verb)

            def call(queue: str, ends: Any) -> Any:
                calls.append((verb, len(ends)))
                return real(queue, ends)

            return call

        for verb in ("complete", "settle"):
            monkeypatch.setattr(store, verb, counted(verb))
        held[1] |= {"status": "failed", "error": "no memory"}
        held[2] |= {"status": "failed", "retryable": False}
        held[3] |= {"token": held[3]["token"] + 1_000}
        held[4] |= {"attempt": 7}
        unknown = {**held[0], "id": "nobody"}
        answers = report(api, *held, unknown)
        assert statuses(answers) == [200, 200, 200, "attempt-over", "attempt-over", 200, "no-job"]
        states = [store.get("pull", str(number)).state.value for number in range(6)]  # type: ignore[union-attr]
        assert states == ["succeeded", "retry", "dead", "running", "running", "succeeded"]
        assert api.get("v1/jobs/5").json()["result"] == "5"
        assert calls == [("complete", 2), ("settle", 2)], "all successes of a queue are one call, and all failures"
        assert statuses(report(api, *held, unknown)) == statuses(answers)

    def test_a_report_counts_once_whichever_call_brings_it(
        self, api: Api, store: Store, held: list[dict[str, Any]]
    ) -> None:
        first, second = held[:2]
        assert statuses(report(api, first, first, {**first, "result": "another"})) == [200, 200, "attempt-over"]
        alone = {key: value for key, value in first.items() if key not in ("name", "id")}
        assert api.post("v1/jobs/php.resize/0", alone).status_code == 200
        alone = {key: value for key, value in second.items() if key not in ("name", "id")}
        assert api.post("v1/jobs/php.resize/1", alone).status_code == 200
        assert statuses(report(api, second)) == [200]
        assert store.stats(["pull"])[0].totals["succeeded"] == 2

    def test_jobs_of_the_project_are_not_settled(self, api: Api, store: Store) -> None:
        put_many(api, greet("1"))
        (held,) = store.claim("default", "worker", 1, lease=30_000).claims
        ended = {"name": "tests.greet", "id": "1", "token": held.token, "status": "succeeded"}
        assert statuses(report(api, ended)) == ["not-remote"]
        assert store.get("default", "1").state is State.RUNNING  # type: ignore[union-attr]

    def test_a_token_for_other_types_settles_nothing(self, store: Store, held: list[dict[str, Any]]) -> None:
        assert statuses(report(Api("work", jobs=("tests.greet",)), held[0])) == ["job-not-allowed"]
        assert store.get("pull", "0").state is State.RUNNING  # type: ignore[union-attr]
