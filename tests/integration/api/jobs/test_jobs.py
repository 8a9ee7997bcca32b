"""Jobs over HTTP: put, look, replay, cancel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Timer
from typing import Any

import pytest

from django_jobs.core.values import Attempt, Ended, State
from django_jobs.execution.executor import Executor
from django_jobs.serialization.record import decode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.archiver import Archiver
from django_jobs.workflows import end_calls
from tests.conftest import Clock
from tests.integration.api import work
from tests.integration.api.conftest import Api


class TestPut:
    @pytest.mark.accepts("K05", "K08", "K06")
    def test_the_first_answers_201_and_the_next_200_with_the_same_job(self, api: Api, store: Store) -> None:
        first = api.put("v1/jobs/tests.greet/order-7", {"data": {"name": "Ada"}})
        again = api.put("v1/jobs/tests.greet/order-7", {"data": {"name": "Ada"}})

        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json() == again.json() | {"enqueued_at": None, "ready_at": None}, (
            "the store's time is not asked for"
        )
        assert again.json()["enqueued_at"] == again.json()["ready_at"] is not None
        assert first.json()["id"] == "order-7"
        assert first.json()["data"] == {"name": "Ada"}
        assert first.json()["state"] == "queued"
        assert store.stats(["default"])[0].counts["queued"] == 1

    def test_the_same_id_with_other_data_is_refused_and_changes_nothing(self, api: Api) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        refused = api.put("v1/jobs/tests.greet/1", {"data": {"name": "Bob"}})

        assert refused.status_code == 409
        assert refused["Content-Type"] == "application/problem+json"
        assert api.get("v1/jobs/tests.greet/1").json()["data"] == {"name": "Ada"}

    def test_the_same_id_is_known_after_the_job_has_run(self, api: Api, work_off: Callable[..., int]) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        work_off()
        again = api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})

        assert again.status_code == 200
        assert again.json()["state"] == "succeeded"
        assert again.json()["result"] == "Hello, Ada"
        assert work.ran == [("Ada", "Hello")]

    def test_the_body_may_repeat_the_id(self, api: Api) -> None:
        body = {"data": ["Ada"], "run_after": "2035-01-11T18:26:26.000Z", "expires_at": "2035-01-11T20:26:26.000Z"}
        path = "v1/jobs/tests.greet/job_282227eb-3c76-4ef7-af7e-25dff933077f"
        assert api.put(path, {**body, "id": path.rpartition("/")[2]}).status_code == 201
        assert api.put(path, body).status_code == 200
        assert api.put(path, {**body, "id": "job_123"}).status_code == 422

    @pytest.mark.parametrize("path", ["v1/jobs/1", "v1/jobs/tests.greet/1"])
    def test_a_call_waits_for_the_end_of_a_job(self, api: Api, store: Store, path: str) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        assert api.get(f"{path}?wait=0.05").json()["state"] == "queued"
        assert api.get(f"{path}?wait=21").status_code == 422
        (held,) = store.claim("default", "worker", 1, lease=30_000).claims
        timer = Timer(0.2, lambda: Executor(close_connections=False, clock=store.now).run(held, store))
        timer.start()
        job = api.get(f"{path}?wait=20").json()
        timer.join()
        assert (job["state"], job["result"]) == ("succeeded", "Hello, Ada")
        assert api.get(f"{path}?wait=20").json() == job

    def test_a_result_is_json_for_any_program(self, api: Api, work_off: Callable[..., int]) -> None:
        api.put("v1/jobs/tests.measure/1")
        work_off()
        assert api.get("v1/jobs/1").json()["result"] == {"at": "2026-03-29", "size": [1, 2], "part": "0.5"}

    @pytest.mark.accepts("K08")
    def test_the_same_id_is_known_after_the_job_has_left_the_history(
        self, api: Api, store: Store, work_off: Callable[..., int]
    ) -> None:
        first = api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        work_off()
        store.delete("default", ["1"])
        again = api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})

        assert (first.status_code, again.status_code) == (201, 200)
        known = ("id", "name", "queue", "data")
        assert {key: again.json()[key] for key in known} == {key: first.json()[key] for key in known}
        assert again.json()["state"] == "succeeded"
        assert api.put("v1/jobs/tests.greet/1", {"data": {"name": "Bob"}}).status_code == 409
        assert work_off() == 0

    def test_the_archive_remembers_ids_that_left_the_store(
        self, api: Api, store: Store, work_off: Callable[..., int]
    ) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        work_off()
        Archiver(store, lambda: ["default"]).tick()
        store.delete("default", ["1"])

        assert api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}}).status_code == 200
        assert api.put("v1/jobs/tests.greet/1", {"data": {"name": "Bob"}}).status_code == 409
        assert work_off() == 0

    @pytest.mark.parametrize("way", ["one", "many", "run"])
    def test_the_archive_remembers_an_id_whose_job_has_ended_in_another_queue(
        self, api: Api, store: Store, settings: Any, clock: Clock, work_off: Callable[..., int], way: str
    ) -> None:
        settings.DJANGO_JOBS = settings.DJANGO_JOBS | {
            "SCHEDULES": {"s": {"job": "tests.greet", "args": ["Ada"], "cron": "0 3 * * *"}}
        }
        use_store(store)

        def send() -> int:
            if way == "many":
                sent = [{"name": "tests.greet", "id": id, "data": ["Ada"]} for id in ("1", "other")]
                status: int = api.post("v1/jobs", {"jobs": sent}).json()["jobs"][0]["status"]
                return status
            if way == "run":
                return api.put("v1/schedules/settings:s/runs/1").status_code
            return api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]}).status_code

        assert send() == 201
        (claim, *_) = store.claim("default", "w", 9, lease=60_000).claims
        store.settle("default", [Ended(claim, "retry", Attempt(1, "retried", clock.now), 0, queue="small")])
        assert send() == 200, "on its way"
        end_calls.follow(store, "default")
        clock.advance(1)
        assert work_off("small") == 1
        Archiver(store, lambda: ["default", "small"]).tick()
        assert store.delete("small", ["1"]) == ["1"]
        assert send() == 200
        clock.advance(10 * 86_400_000)  # no queue remembers it
        for queue in ("default", "small"):
            store.prune(queue)
        store.forget_identities()
        assert send() == 200
        assert (store.find(["default", "small"], "1"), work.ran) == (None, [("Ada", "Hello")])

    @pytest.mark.accepts("K09")
    @pytest.mark.parametrize(
        "data", [None, 7, "text", [1, [2, {"$ref": 3}]], {"value": {"$date": "x", "a": None}}, {"value": [1.5, True]}]
    )
    def test_any_json_reaches_the_job(self, api: Api, work_off: Callable[..., int], data: Any) -> None:
        sent = [data] if isinstance(data, list) else data
        assert api.put("v1/jobs/tests.swallow/1", {"data": sent}).status_code == 201
        work_off("small")
        assert work.ran == [data["value"] if isinstance(data, dict) else data]

    @pytest.mark.accepts("K10")
    def test_run_after_holds_the_job_back(self, api: Api, clock: Clock, work_off: Callable[..., int]) -> None:
        later = datetime.fromtimestamp(clock.now / 1000, UTC) + timedelta(hours=1)
        made = api.put("v1/jobs/tests.greet/1", {"data": ["Ada"], "run_after": later.isoformat()})

        assert made.json()["state"] == "scheduled"
        assert made.json()["run_at"] == later.isoformat(timespec="milliseconds")
        assert work_off() == 0
        clock.advance(3_600_000)
        assert work_off() == 1

    @pytest.mark.accepts("K10")
    def test_run_after_null_is_now(self, api: Api, work_off: Callable[..., int]) -> None:
        made = api.put("v1/jobs/tests.greet/1", {"data": ["Ada"], "run_after": None})
        assert (made.json()["state"], made.json()["run_at"]) == ("queued", None)
        assert work_off() == 1

    @pytest.mark.accepts("K11")
    def test_a_job_past_expires_at_is_not_run(
        self, api: Api, store: Store, clock: Clock, work_off: Callable[..., int]
    ) -> None:
        soon = datetime.fromtimestamp(clock.now / 1000, UTC) + timedelta(minutes=1)
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"], "expires_at": soon.isoformat()})
        clock.advance(61_000)
        work_off()
        Archiver(store, lambda: ["default"]).tick()

        assert work.ran == []
        assert api.get("v1/jobs/tests.greet/1").json()["state"] == "expired"
        assert [job["id"] for job in api.get("v1/archived-jobs?status=expired").json()["jobs"]] == ["1"]

    def test_priority_and_unique_key_are_taken(self, api: Api, store: Store) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"], "priority": 5, "unique_key": {"a": 1}})
        other = api.put("v1/jobs/tests.greet/2", {"data": ["Bob"], "unique_key": {"a": 1}})

        info = store.get("default", "1")
        assert info is not None
        assert decode("1", "default", info.record).controls.priority == 5
        assert other.status_code == 409
        assert other.json()["outcome"] == "duplicate"
        assert store.get("default", "2") is None

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("tests.private/1", {}, 404),
            ("tests.none/1", {}, 404),
            ("os.system/1", {"data": ["true"]}, 404),
            ("tests.greet/1", {"data": {"nobody": 1}}, 422),
            ("tests.greet/1", {"data": ["Ada"], "priority": 101}, 422),
            ("tests.greet/1", {"data": ["Ada"], "run_after": "2030-01-01T00:00:00"}, 422),
            ("tests.greet/1", {"data": ["Ada"], "run_afer": None}, 422),
            ("tests.greet/a%20b", {"data": ["Ada"]}, 422),
            ("tests.greet/1", [], 422),
        ],
    )
    def test_what_cannot_be_enqueued_is_refused(
        self, api: Api, store: Store, path: str, body: Any, status: int
    ) -> None:
        refused = api.put(f"v1/jobs/{path}", body)
        assert refused.status_code == status
        assert refused["Content-Type"] == "application/problem+json"
        assert refused.json()["status"] == status
        assert store.stats(["default"])[0].counts["queued"] == 0

    def test_a_full_queue_answers_503_with_a_time_to_try_again(self, api: Api) -> None:
        for number in range(3):
            assert api.put(f"v1/jobs/tests.swallow/{number}").status_code == 201
        full = api.put("v1/jobs/tests.swallow/4")
        assert full.status_code == 503
        assert int(full["Retry-After"]) > 0


class TestLooking:
    @pytest.mark.accepts("K15")
    def test_one_address_shows_the_job_in_the_queue_and_then_in_the_archive(
        self, api: Api, store: Store, work_off: Callable[..., int]
    ) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        assert api.get("v1/jobs/1").json()["state"] == "queued"
        work_off()
        Archiver(store, lambda: ["default"]).tick()
        kept = api.get("v1/jobs/tests.greet/1").json()
        store.delete("default", ["1"])
        archived = api.get("v1/jobs/tests.greet/1").json()

        assert (kept["archived"], archived["archived"]) == (False, True)
        for key in ("id", "name", "queue", "state", "data", "result", "attempts", "finished_at", "enqueued_at"):
            assert archived[key] == kept[key], key
        assert api.get("v1/jobs/1").json() == archived

    def test_an_unknown_id_or_another_name_is_404(self, api: Api) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        for path in ("v1/jobs/2", "v1/jobs/tests.greet/2", "v1/jobs/tests.charge/1"):
            assert api.get(path).status_code == 404

    def test_sensitive_arguments_are_masked(self, api: Api) -> None:
        made = api.put("v1/jobs/tests.charge/1", {"data": {"card": "4111", "amount": 5}})
        assert "4111" not in made.content.decode()
        assert made.json()["data"] == {"card": "••••", "amount": 5}


class TestReplay:
    @pytest.mark.accepts("K14")
    def test_it_makes_a_new_job_that_runs_at_once(self, api: Api, work_off: Callable[..., int]) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        work_off()
        replayed = api.post("v1/jobs/tests.greet/1/replay")

        assert replayed.status_code == 201
        assert replayed.json()["id"] != "1"
        assert replayed.json()["data"] == {"name": "Ada"}
        work_off()
        assert work.ran == [("Ada", "Hello")] * 2

    @pytest.mark.accepts("K14")
    def test_an_expired_job_has_expired_again_at_once(
        self, api: Api, store: Store, clock: Clock, work_off: Callable[..., int]
    ) -> None:
        soon = datetime.fromtimestamp(clock.now / 1000, UTC) + timedelta(minutes=1)
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"], "expires_at": soon.isoformat()})
        clock.advance(61_000)
        work_off()
        replayed = api.post("v1/jobs/tests.greet/1/replay")
        Archiver(store, lambda: ["default"]).tick()

        assert replayed.status_code == 201
        assert replayed.json()["state"] == "expired"
        work_off()
        assert api.get(f"v1/jobs/{replayed.json()['id']}").json()["state"] == "expired"
        assert len(api.get("v1/archived-jobs?status=expired").json()["jobs"]) == 2
        assert work.ran == []

    def test_that_is_an_end_like_others(self, api: Api, store: Store, clock: Clock) -> None:
        """It is counted and followed by the job of `on_end`, and the id is remembered."""
        api.put("v1/jobs/tests.brief/1", {"data": ["Ada"]})
        clock.advance(61_000)
        store.expire("default")
        answers = [api.post("v1/jobs/tests.brief/1/replay", {"id": "again"}) for _ in range(2)]
        ends, _ = store.end_calls("default")

        assert [(each.status_code, each.json()["state"]) for each in answers] == [(201, "expired"), (200, "expired")]
        assert store.stats(["default"])[0].totals["expired"] == 2
        assert sorted(info.id for _, info in ends) == ["1", "again"]
        store.delete("default", ["again"])
        assert api.post("v1/jobs/tests.brief/1/replay", {"id": "again"}).json()["state"] == "expired"
        assert store.get("default", "again") is None


class TestCancel:
    def test_a_waiting_job_is_cancelled(self, api: Api, store: Store, work_off: Callable[..., int]) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        assert api("DELETE", "v1/jobs/tests.greet/1").json()["state"] == "cancelled"
        assert api("DELETE", "v1/jobs/tests.greet/1").json()["state"] == "cancelled"
        assert work_off() == 0

    def test_a_running_job_is_asked_and_a_finished_one_is_409(
        self, api: Api, store: Store, work_off: Callable[..., int]
    ) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        api.put("v1/jobs/tests.greet/2", {"data": ["Bob"]})
        (held,) = store.claim("default", "worker", 1, lease=30_000).claims
        asked = api("DELETE", f"v1/jobs/tests.greet/{held.id}")
        assert (asked.status_code, asked.json()["state"]) == (200, "running")
        assert list(store.extend("default", ["worker"], 30_000)["worker"]) == [held.id]
        work_off()
        assert api("DELETE", "v1/jobs/tests.greet/2").status_code == 409
        assert store.get("default", "2").state is State.SUCCEEDED  # type: ignore[union-attr]
