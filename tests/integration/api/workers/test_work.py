"""Pull workers over HTTP: claim and extend."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs import remote
from django_jobs.api.endpoints import work as endpoint
from django_jobs.core.values import Lane, State
from django_jobs.execution import replicas
from django_jobs.execution.executor import Executor
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api import work
from tests.integration.api.conftest import Api


def unreadable(call: bytes) -> Any:
    """What `stored_data` does with a call that this release cannot read."""
    raise ValueError(call)


class TestClaim:
    @pytest.mark.accepts("K17")
    def test_a_worker_gets_the_data_as_it_was_sent_with_attempt_and_token(
        self, api: Api, claim: Callable[..., Any]
    ) -> None:
        for number, data in enumerate([{"$ref": "a", "b": [1, None]}, [1, 2], "text", None]):
            api.put(f"v1/jobs/php.resize/{number}", {"data": data})
        jobs = claim(limit=10, lease=30)

        assert [job["data"] for job in jobs] == [{"$ref": "a", "b": [1, None]}, [1, 2], "text", None]
        assert all(job["attempt"] == 1 and job["token"] > 0 and job["name"] == "php.resize" for job in jobs)
        assert api.get("v1/jobs/0").json()["data"] == {"$ref": "a", "b": [1, None]}
        assert claim() == []

    @pytest.mark.parametrize("limit", [1, 10])
    def test_jobs_delivered_at_most_once_are_handed_out_too(
        self, api: Api, claim: Callable[..., Any], limit: int
    ) -> None:
        once = {"name": "php.pay", "queue": "pull", "delivery_strategy": "at_most_once", "attempts": 1}
        assert api.post("v1/job-types", once).status_code == 201
        api.put("v1/jobs/php.resize/1")
        api.put("v1/jobs/php.pay/2")
        ids = {job["id"] for _ in range(2) for job in claim(limit=limit)}
        assert ids == {"1", "2"}
        assert claim(limit=limit) == []

    def test_a_job_that_a_worker_parked_because_it_did_not_know_the_type_yet_is_handed_out(
        self, api: Api, claim: Callable[..., Any], store: Store
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (early,) = store.claim("pull", "django", 1, lease=30_000, knows="an earlier digest").claims
        assert store.park(early, "an earlier digest") == State.BLOCKED
        assert [job["id"] for job in claim()] == ["1"]

    def test_waiting_for_work_ends_when_there_is_some_or_the_time_is_over(
        self, api: Api, claim: Callable[..., Any]
    ) -> None:
        assert claim(wait=0.05) == []
        api.put("v1/jobs/php.resize/1")
        assert [job["id"] for job in claim(wait=5)] == ["1"]

    def test_the_concurrency_of_the_type_is_kept(self, api: Api, claim: Callable[..., Any]) -> None:
        api.post("v1/job-types", {"name": "php.one", "queue": "pull", "concurrency": 1})
        for number in range(3):
            api.put(f"v1/jobs/php.one/{number}")
        (first,) = claim(limit=10)
        assert claim(limit=10) == []
        api.post(f"v1/jobs/php.one/{first['id']}", {"status": "succeeded", "token": first["token"]})
        assert len(claim(limit=10)) == 1

    def test_a_queue_that_django_works_cannot_be_claimed_from(self, api: Api, kind: str) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        assert api.post("v1/queues/default/claim", {}).status_code == 409
        assert api.post("v1/queues/nowhere/claim", {}).status_code == 404

    def test_in_a_queue_of_both_nobody_is_given_what_is_not_his_and_nothing_changes_its_place(
        self, api: Api, store: Store, work_off: Callable[..., int], clock: Clock
    ) -> None:
        api.post("v1/job-types", {"name": "php.mixed"})
        for number in range(6):
            name, data = ("php.mixed", number) if number % 2 else ("tests.greet", [str(number)])
            api.put(f"v1/jobs/{name}/{number}", {"data": data})
        assert "default" not in remote.pull_queues()
        jobs = api.post("v1/queues/default/claim", {"limit": 2}).json()["jobs"]
        assert [job["data"] for job in jobs] == [1, 3]
        assert [info.id for info in store.page("default", State.QUEUED)] == ["0", "2", "4", "5"]
        work_off()
        assert work.ran == [("0", "Hello"), ("2", "Hello"), ("4", "Hello")]
        clock.advance(6_000)
        assert [job["attempt"] for job in api.post("v1/queues/default/claim", {"limit": 2}).json()["jobs"]] == [1]

    def test_a_token_for_some_jobs_gets_only_these(self, kind: str, api: Api) -> None:
        api.post("v1/job-types", {"name": "php.other", "queue": "pull"})
        api.put("v1/jobs/php.other/1")
        api.put("v1/jobs/php.resize/2")
        answer = Api("work", jobs=("php.resize",)).post("v1/queues/pull/claim", {"limit": 10})
        assert [job["id"] for job in answer.json()["jobs"]] == ["2"]
        assert Api("work", jobs=("php.none",)).post("v1/queues/pull/claim", {}).status_code == 403

    def test_a_web_process_that_dies_while_it_claims_holds_no_job_of_django(
        self, api: Api, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api.post("v1/job-types", {"name": "php.mixed"})
        for number in range(300):
            api.put(f"v1/jobs/tests.greet/{number}", {"data": ["Ada"]})
        api.put("v1/jobs/php.mixed/mine")
        monkeypatch.setattr(store, "release", lambda *_: pytest.fail("a job was taken that has to be given back"))
        assert [job["id"] for job in api.post("v1/queues/default/claim", {"limit": 9}).json()["jobs"]] == ["mine"]
        assert store.stats(["default"])[0].counts["running"] == 1


class TestRequestId:
    def test_a_claim_whose_answer_was_lost_is_asked_for_again(self, api: Api, claim: Callable[..., Any]) -> None:
        for number in range(4):
            api.put(f"v1/jobs/php.resize/{number}")
        first = claim(limit=2, request_id="r1")
        assert [job["id"] for job in first] == ["0", "1"]
        assert claim(limit=2, request_id="r1") == first
        api.post("v1/jobs/php.resize/0", {"status": "succeeded", "token": first[0]["token"]})
        assert claim(limit=2, request_id="r1") == first[1:]
        assert [job["id"] for job in claim(limit=2, request_id="r2")] == ["2", "3"]

    def test_a_claim_that_only_met_jobs_whose_time_was_over_goes_on_looking(
        self, api: Api, store: Store, kind: str, claim: Callable[..., Any], clock: Clock
    ) -> None:
        soon = datetime.fromtimestamp(store.now() / 1000 + 5, UTC).isoformat()
        assert api.put("v1/jobs/php.resize/1", {"expires_at": soon}).status_code == 201
        clock.advance(6_000)
        assert claim(request_id="r1") == []
        assert api.get("v1/jobs/1").json()["state"] == "expired"
        api.put("v1/jobs/php.resize/2")
        assert [job["id"] for job in claim(request_id="r1")] == ["2"]

    @pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
    def test_a_claim_that_nobody_confirms_goes_back_within_seconds_and_is_not_counted(
        self, api: Api, store: Store, claim: Callable[..., Any], clock: Clock, delivery: str
    ) -> None:
        api.post("v1/job-types", {"name": "php.once", "queue": "pull", "delivery_strategy": delivery})
        api.put("v1/jobs/php.once/1")
        (job,) = claim(lease=300, request_id="r1")
        assert job["lease"] == 10
        clock.advance(10_001)
        assert [late.id for late in store.overdue("pull")] == ["1"], "and the process that looked has died"
        assert RemoteWatch(store, lambda: ["pull"]).tick() == 1
        assert api.post("v1/jobs/php.once/1/extend", {"token": job["token"]}).status_code == 409
        assert claim(request_id="r1") == []
        (again,) = claim(request_id="r2")
        assert (again["id"], again["attempt"]) == ("1", 1)

    def test_a_claim_that_is_confirmed_has_the_lease_it_asks_for_and_then_counts(
        self, api: Api, store: Store, claim: Callable[..., Any], clock: Clock
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim(lease=300, request_id="r1")
        assert api.post("v1/jobs/php.resize/1/extend", {"token": job["token"], "lease": 300}).status_code == 200
        watch = RemoteWatch(store, lambda: ["pull"])
        clock.advance(299_001)
        assert watch.tick() == 0
        clock.advance(1_000)
        assert watch.tick() == 1
        assert api.get("v1/jobs/1").json()["log"][0]["outcome"] == "timeout"

    def test_a_claim_that_is_confirmed_while_it_is_given_back_is_one_or_the_other(
        self, api: Api, store: Store, claim: Callable[..., Any], clock: Clock
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim(request_id="r1")
        clock.advance(10_001)
        found = store.overdue("pull")
        assert api.post("v1/jobs/php.resize/1/extend", {"token": job["token"]}).status_code == 200
        assert store.release("pull", found) == ["1"]
        assert store.get("pull", "1").state is State.RUNNING  # type: ignore[union-attr]

    @pytest.mark.parametrize("change", ["limit", "replicas", "record"])
    def test_a_claim_that_comes_late_leaves_a_confirmed_job_to_its_worker_whatever_has_changed(
        self, api: Api, store: Store, claim: Callable[..., Any], change: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api.post("v1/job-types", {"name": "php.once", "queue": "pull", "delivery_strategy": "at_most_once"})
        api.put("v1/jobs/php.once/1")
        (job,) = claim(request_id="r1")
        assert api.post("v1/jobs/php.once/1/extend", {"token": job["token"]}).status_code == 200
        if change == "limit":
            assert api("PATCH", "v1/job-types/php.once", {"concurrency": 2}).status_code == 200
        elif change == "replicas":
            monkeypatch.setattr(replicas, "may_start", lambda *_: False)
        else:  # the earlier answer came from a process of another release
            monkeypatch.setattr(endpoint, "stored_data", unreadable)
        claim(request_id="r1")
        assert claim(request_id="r2") == []
        report = {"status": "succeeded", "token": job["token"]}
        assert api.post("v1/jobs/php.once/1", report).status_code == 200

    @pytest.mark.parametrize("worker", ["", "web-1.7"])
    def test_repairs_leave_the_leases_of_claims_that_are_not_confirmed(
        self, api: Api, store: Store, claim: Callable[..., Any], clock: Clock, worker: str
    ) -> None:
        many = 20
        for number in range(many):
            api.put(f"v1/jobs/php.resize/{number:070}")  # Redis reads a hash of such ids in parts
        assert len(claim(limit=many, request_id="r1", worker=worker)) == many
        clock.advance(10_001)
        for _ in range(many):
            store.reconcile("pull", 1)
        assert RemoteWatch(store, lambda: ["pull"]).tick() == many
        assert [job["attempt"] for job in claim(limit=many)] == [1] * many


class TestLease:
    def test_a_claim_that_asks_for_no_lease_has_the_time_out_of_each_type(
        self, api: Api, store: Store, kind: str, clock: Clock, claim: Callable[..., Any]
    ) -> None:
        api.post("v1/job-types", {"name": "php.long", "queue": "pull", "timeout": 600})
        for name in (kind, "php.long"):
            api.put(f"v1/jobs/{name}/{name}")
        leases = {job["name"]: job["lease"] for job in claim(limit=2)}
        assert leases == {kind: 60, "php.long": 600}
        watch = RemoteWatch(store, lambda: ["pull"])
        clock.advance(59_001)
        assert watch.tick() == 0
        clock.advance(1_000)
        assert watch.tick() == 1
        clock.advance(539_000)
        vars(store).pop("_steps_of_clocks")  # as a process that starts now: it knows of no step of the clock
        assert watch.tick() == 0
        clock.advance(1_000)
        assert watch.tick() == 1

    @pytest.mark.parametrize("timeout", [5, 60])
    def test_a_confirmed_claim_has_it_too(
        self, api: Api, store: Store, clock: Clock, claim: Callable[..., Any], timeout: int
    ) -> None:
        api.post("v1/job-types", {"name": "php.other", "queue": "pull", "timeout": timeout})
        api.put("v1/jobs/php.other/1")
        (job,) = claim(request_id="r1")
        assert job["lease"] == min(timeout, 10)
        extended = api.post("v1/jobs/php.other/1/extend", {"token": job["token"]})
        assert extended.json() == {"lease": timeout, "stop": False}
        watch = RemoteWatch(store, lambda: ["pull"])
        clock.advance(timeout * 1000 - 999)
        assert watch.tick() == 0
        clock.advance(1_000)
        assert watch.tick() == 1


class TestIdentity:
    @pytest.mark.parametrize("request_id", [None, "r1"])
    def test_users_see_who_runs_a_job_and_who_lost_it(
        self, api: Api, store: Store, clock: Clock, claim: Callable[..., Any], request_id: str | None
    ) -> None:
        api.put("v1/jobs/php.resize/a:1")
        (job,) = claim(worker="web-1.7", request_id=request_id)
        if request_id:
            assert api.get("v1/jobs/a:1").json()["worker"] == "remote:web-1.7"
            assert claim(worker="web-1.7", request_id=request_id) == [job]
            assert api.post("v1/jobs/php.resize/a:1/extend", {"token": job["token"]}).status_code == 200
        assert api.get("v1/jobs/a:1").json()["worker"] == "remote:web-1.7"
        assert "web-1.7" in api.get("v1/jobs/php.resize/a:1/why").json()["reason"]
        clock.advance(60_001)
        assert RemoteWatch(store, lambda: ["pull"]).tick() == 1
        assert [each["worker"] for each in api.get("v1/jobs/a:1").json()["log"]] == ["remote:web-1.7"]
        assert store.overdue("pull") == []

    @pytest.mark.parametrize("name", ["a:b", "a@b", "a b", "?", "ä", "x" * 65])
    def test_a_name_that_could_be_mistaken_is_refused(self, api: Api, kind: str, name: str) -> None:
        assert api.post("v1/queues/pull/claim", {"worker": name}).status_code == 422


class TestExtend:
    def test_it_renews_the_lease_and_tells_how_far_the_work_is(
        self, api: Api, store: Store, clock: Clock, claim: Callable[..., Any]
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim(lease=10)
        clock.advance(9_000)
        body = {"token": job["token"], "lease": 10, "message": "page 3", "progress": 0.5}
        extended = api.post("v1/jobs/php.resize/1/extend", body)
        clock.advance(9_000)
        RemoteWatch(store, lambda: ["pull"]).tick()

        assert extended.json() == {"lease": 10, "stop": False}
        seen = api.get("v1/jobs/1").json()
        assert (seen["state"], seen["checkin"]["message"], seen["checkin"]["progress"]) == ("running", "page 3", 0.5)

    def test_it_tells_when_a_person_asked_the_job_to_stop(self, api: Api, claim: Callable[..., Any]) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim()
        api("DELETE", "v1/jobs/php.resize/1")
        assert api.post("v1/jobs/php.resize/1/extend", {"token": job["token"]}).json()["stop"] is True
        assert api.post("v1/jobs/php.resize/1", {"status": "failed", "attempt": 1}).json()["state"] == "cancelled"

    def test_many_claims_are_extended_in_one_call_and_each_is_answered_by_itself(
        self, api: Api, store: Store, clock: Clock, claim: Callable[..., Any]
    ) -> None:
        for id in "123":
            api.put(f"v1/jobs/php.resize/{id}")
        held = claim(lease=10, limit=3)
        clock.advance(9_000)
        each = [{"name": "php.resize", "id": job["id"], "token": job["token"], "lease": 10} for job in held]
        each[1]["token"] += 7
        answers = api.post("v1/extensions", {"extensions": [*each, {"name": "no.type", "id": "1", "token": 1}]}).json()
        assert [answer["status"] for answer in answers["extensions"]] == [200, 409, 200, 404]
        assert [answer.get("lease") for answer in answers["extensions"]] == [10, None, 10, None]
        clock.advance(9_000)
        RemoteWatch(store, lambda: ["pull"]).tick()
        states = [api.get(f"v1/jobs/{job['id']}").json()["state"] for job in held]
        assert states == ["running", "retry", "running"]
        assert api.post("v1/extensions", {"extensions": each * 34}).status_code == 422


def test_a_pull_job_that_a_worker_of_django_met_expires_at_its_time(api: Api, store: Store, clock: Any) -> None:
    api.post("v1/job-types", {"name": "php.soon", "queue": "pull"})
    until = datetime.fromtimestamp(clock.now / 1000, UTC) + timedelta(minutes=1)
    api.put("v1/jobs/php.soon/1", {"expires_at": until.isoformat()})
    (held,) = store.claim("pull", "worker", 1, lease=30_000).claims
    Executor(close_connections=False, clock=store.now).run(held, store)
    clock.advance(60_000)
    assert store.claim("pull", "worker", 1, lease=30_000).claims == []
    store.expire("pull")
    assert store.get("pull", "1").state is State.EXPIRED  # type: ignore[union-attr]


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_pull_job_that_a_worker_of_django_met_has_not_started_and_waits_for_its_own(
    api: Api, store: Store, delivery: str
) -> None:
    api.post("v1/job-types", {"name": "php.once", "queue": "pull", "delivery_strategy": delivery})
    api.put("v1/jobs/php.once/1")
    lane = Lane.ALONE if delivery == "at_most_once" else Lane.SHARED
    (held,) = store.claim("pull", "worker", 1, lane=lane, lease=30_000).claims
    Executor(close_connections=False, clock=store.now).run(held, store)
    info = store.get("pull", "1")
    assert info is not None
    assert (info.state, info.attempts) == (State.SCHEDULED, ())
