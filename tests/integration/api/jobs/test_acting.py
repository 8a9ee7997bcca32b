"""Moving jobs over HTTP: retry in place, kill, edit.  Each call may be sent twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.archiver import Archiver
from tests.conftest import Clock
from tests.integration.api import work
from tests.integration.api.conftest import Api


def dead(api: Api, store: Store, name: str = "tests.greet", data: Any = ("Ada",)) -> dict[str, Any]:
    """A job that was killed while it waited, as the API shows it."""
    api.put(f"v1/jobs/{name}/1", {"data": list(data)})
    store.kill("default", ["1"], "a test")
    shown: dict[str, Any] = api.get("v1/jobs/1").json()
    return shown


def ended(api: Api, state: str, work_off: Callable[..., int]) -> None:
    """A job that was brought to this state."""
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    if state == "succeeded":
        work_off()
    elif state == "cancelled":
        api("DELETE", "v1/jobs/tests.greet/1")
    else:
        api.post("v1/jobs/tests.greet/1/kill")
    assert api.get("v1/jobs/1").json()["state"] == state


class TestRetry:
    @pytest.mark.accepts("K05")
    @pytest.mark.parametrize("state", ["dead", "cancelled"])
    def test_the_same_job_runs_again(self, api: Api, work_off: Callable[..., int], state: str) -> None:
        ended(api, state, work_off)
        again = api.post("v1/jobs/tests.greet/1/retry")
        assert (again.status_code, again.json()["state"], again.json()["attempts"]) == (200, "queued", 0)
        assert work_off() == 1
        assert api.get("v1/jobs/1").json()["state"] == "succeeded"

    def test_sent_late_it_leaves_a_later_end_alone(self, api: Api, store: Store, clock: Clock) -> None:
        seen = dead(api, store)["finished_at"]
        body = {"finished_at": seen}
        assert api.post("v1/jobs/tests.greet/1/retry", body).json()["state"] == "queued"
        assert api.post("v1/jobs/tests.greet/1/retry", body).status_code == 200
        clock.advance(1)
        store.kill("default", ["1"], "again")
        late = api.post("v1/jobs/tests.greet/1/retry", body)
        assert late.status_code == 409
        assert seen[:19] in late.json()["detail"]
        assert api.get("v1/jobs/1").json()["state"] == "dead"

    def test_a_job_delivered_at_most_once_is_not_started_again_unless_that_is_asked_for(
        self, api: Api, store: Store
    ) -> None:
        seen = dead(api, store, "tests.pay", [7])["finished_at"]
        refused = api.post("v1/jobs/tests.pay/1/retry", {"finished_at": seen})
        assert refused.status_code == 409
        assert "at most once" in refused.json()["detail"]
        assert "start_again" in refused.json()["detail"]
        assert api.post("v1/jobs/tests.pay/1/retry", {"start_again": True}).status_code == 422
        assert api.get("v1/jobs/1").json()["state"] == "dead"

        asked = {"finished_at": seen, "start_again": True}
        assert api.post("v1/jobs/tests.pay/1/retry", asked).json()["state"] == "queued"
        assert api.post("v1/jobs/tests.pay/1/retry", asked).status_code == 200

    def test_a_job_whose_key_another_holds_stays_and_the_answer_says_whose_it_is(self, api: Api, store: Store) -> None:
        before = dead(api, store, "tests.rename", ["Ada"])
        api.put("v1/jobs/tests.rename/2", {"data": ["Ada"]})
        for body in ({}, {"finished_at": before["finished_at"]}):
            refused = api.post("v1/jobs/tests.rename/1/retry", body)
            assert refused.status_code == 409
            assert "job '2' has its unique key" in refused.json()["detail"]
        assert api.get("v1/jobs/1").json() == before
        api("DELETE", "v1/jobs/tests.rename/2")
        assert api.post("v1/jobs/tests.rename/1/retry").json()["state"] == "queued"

    def test_one_that_has_not_been_started_runs_now_without_asking(self, api: Api) -> None:
        api.put("v1/jobs/tests.pay/1", {"data": [7], "run_after": "2099-01-01T00:00:00Z"})
        assert api.post("v1/jobs/tests.pay/1/retry").json()["state"] == "queued"

    def test_of_two_that_saw_the_same_end_only_one_moves_it(self, api: Api, store: Store, clock: Clock) -> None:
        """Both have looked; the job runs and dies again before the second acts."""
        dead(api, store)
        seen = store.get("default", "1")
        assert seen is not None
        assert store.revive("default", ["1"], at=seen.at) == ["1"]
        clock.advance(1)
        store.kill("default", ["1"], "again")
        assert store.revive("default", ["1"], at=seen.at) == []

    def test_a_job_that_has_left_for_the_archive_is_409(
        self, api: Api, store: Store, work_off: Callable[..., int]
    ) -> None:
        ended(api, "dead", work_off)
        Archiver(store, lambda: ["default"]).tick()
        store.delete("default", ["1"])
        answer = api.post("v1/jobs/tests.greet/1/retry")
        assert (answer.status_code, "archive" in answer.json()["detail"]) == (409, True)
        assert api.post("v1/jobs/tests.greet/2/retry").status_code == 404


class TestKill:
    @pytest.mark.accepts("K05", "K06")
    def test_a_waiting_job_is_dead_and_says_who_and_why(self, api: Api, work_off: Callable[..., int]) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        first = api.post("v1/jobs/tests.greet/1/kill", {"reason": "wrong customer"})
        again = api.post("v1/jobs/tests.greet/1/kill", {"reason": "wrong customer"})
        assert (first.status_code, first.json()["state"]) == (200, "dead")
        assert again.json() == first.json()
        assert "token 0: wrong customer" in first.json()["error"]
        assert work_off() == 0

    @pytest.mark.parametrize("state", ["succeeded", "cancelled"])
    def test_a_job_that_has_ended_otherwise_is_409(self, api: Api, work_off: Callable[..., int], state: str) -> None:
        ended(api, state, work_off)
        assert api.post("v1/jobs/tests.greet/1/kill").status_code == 409
        assert api.get("v1/jobs/1").json()["state"] == state


class TestEdit:
    @pytest.mark.accepts("K31", "K05")
    def test_a_job_that_waits_gets_other_arguments(self, api: Api, work_off: Callable[..., int]) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        edited = api("PATCH", "v1/jobs/tests.greet/1", {"data": {"name": "Bob"}})
        again = api("PATCH", "v1/jobs/tests.greet/1", {"data": {"name": "Bob"}})
        assert (edited.status_code, edited.json()["data"]) == (200, {"name": "Bob"})
        assert again.json() == edited.json()
        work_off()
        assert work.ran == [("Bob", "Hello")]
        assert api("PATCH", "v1/jobs/tests.greet/1", {"data": {"name": "Bob"}}).status_code == 200, "it has these"
        assert api("PATCH", "v1/jobs/tests.greet/1", {"data": {"name": "Eve"}}).status_code == 409

    def test_the_put_that_made_it_may_still_be_sent_again(self, api: Api) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        api("PATCH", "v1/jobs/tests.greet/1", {"data": {"name": "Bob"}})
        again = api.put("v1/jobs/tests.greet/1", {"data": {"name": "Ada"}})
        assert (again.status_code, again.json()["data"]) == (200, {"name": "Bob"})

    def test_a_masked_value_stays_what_it_is(self, api: Api, store: Store) -> None:
        made = api.put("v1/jobs/tests.charge/1", {"data": {"card": "4111", "amount": 5}}).json()
        api("PATCH", "v1/jobs/tests.charge/1", {"data": {**made["data"], "amount": 6}})
        info = store.get("default", "1")
        assert info is not None
        assert info.record.endswith(b'[[],{"card":"4111","amount":6}]')

    def test_typed_values_cannot_be_slipped_in(self, api: Api, store: Store) -> None:
        api.put("v1/jobs/tests.swallow/1", {"data": [1]})
        data = [{"$model": "auth.User", "pk": 1}]
        assert api("PATCH", "v1/jobs/tests.swallow/1", {"data": data}).json()["data"] == data

    @pytest.mark.parametrize(
        ("body", "status"), [({}, 422), ({"data": {"nobody": 1}}, 422), ({"data": ["Ada"], "x": 1}, 422)]
    )
    def test_what_does_not_fit_is_refused(self, api: Api, body: Any, status: int) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        assert api("PATCH", "v1/jobs/tests.greet/1", body).status_code == status
        assert api.get("v1/jobs/1").json()["data"] == ["Ada"]

    def test_an_equal_unique_job_is_409(self, api: Api) -> None:
        api.put("v1/jobs/tests.rename/1", {"data": ["Ada"]})
        api.put("v1/jobs/tests.rename/2", {"data": ["Bob"]})
        assert api("PATCH", "v1/jobs/tests.rename/2", {"data": ["Ada"]}).status_code == 409
        assert api.get("v1/jobs/2").json()["data"] == ["Bob"]
