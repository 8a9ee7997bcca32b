"""Pull workers over HTTP: claim, extend, report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import remote, signals
from django_jobs.models import RemoteJobType
from django_jobs.remote import knowledge
from django_jobs.stores.base import Store
from django_jobs.values import Lane, State
from django_jobs.worker.executor import Executor
from django_jobs.worker.remote import RemoteWatch
from tests.conftest import Clock
from tests.integration.api import work
from tests.integration.api.conftest import Api


@pytest.fixture
def kind(api: Api) -> str:
    """A remote type whose jobs are fetched."""
    made = api.post("v1/job-types", {"name": "php.resize", "queue": "pull", "attempts": 3, "timeout": 60})
    assert made.status_code == 201, made.content
    return "php.resize"


@pytest.fixture
def claim(api: Api, kind: str) -> Callable[..., list[dict[str, Any]]]:
    """Claim over HTTP."""

    def claim(**body: Any) -> list[dict[str, Any]]:
        answer = api.post("v1/queues/pull/claim", body)
        assert answer.status_code == 200, answer.content
        jobs: list[dict[str, Any]] = answer.json()["jobs"]
        return jobs

    return claim


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

    def test_a_job_of_django_that_a_dying_web_process_had_looked_past_is_not_counted(
        self, api: Api, store: Store, clock: Clock, work_off: Callable[..., int]
    ) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        store.claim("default", "remote", 1, lease=1000, lease_each=True)
        clock.advance(1001)
        RemoteWatch(store, lambda: ["default"]).tick()
        assert store.get("default", "1").failures == 0  # type: ignore[union-attr]
        assert work_off() == 1

    def test_a_token_for_some_jobs_cannot_claim_where_others_wait(self, kind: str, api: Api) -> None:
        assert Api("work", jobs=("php.resize",)).post("v1/queues/pull/claim", {}).status_code == 200
        api.post("v1/job-types", {"name": "php.other", "queue": "pull"})
        assert Api("work", jobs=("php.resize",)).post("v1/queues/pull/claim", {}).status_code == 403

    def test_workers_of_django_leave_those_queues_and_jobs_alone(
        self, api: Api, store: Store, kind: str, work_off: Callable[..., int], clock: Clock, claim: Callable[..., Any]
    ) -> None:
        assert remote.pull_queues() == {"pull"}
        api.put("v1/jobs/php.resize/1")
        (held,) = store.claim("pull", "worker", 1, lease=30_000).claims
        Executor(close_connections=False, clock=store.now).run(held, store)
        assert store.get("pull", "1").state is State.SCHEDULED  # type: ignore[union-attr]
        clock.advance(6_000)
        assert [job["attempt"] for job in claim()] == [1]


class TestReport:
    def test_success_keeps_the_result(self, api: Api, claim: Callable[..., Any]) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim()
        done = api.post("v1/jobs/php.resize/1", {"status": "succeeded", "token": job["token"], "result": {"w": 40}})
        assert done.status_code == 200
        assert (done.json()["state"], done.json()["result"]) == ("succeeded", {"w": 40})

    @pytest.mark.accepts("K13")
    def test_a_failure_is_retried_a_little_later_and_a_permanent_one_is_not(
        self, api: Api, store: Store, clock: Clock, claim: Callable[..., Any]
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim()
        failed = api.post("v1/jobs/php.resize/1", {"status": "failed", "attempt": 1, "error": "no memory"})
        assert failed.json()["state"] == "retry"
        assert "no memory" in failed.json()["error"]
        assert failed.json()["log"][0]["traceback"] == ""

        clock.advance(60_000)
        (job,) = claim()
        assert job["attempt"] == 2
        body = {"status": "failed", "attempt": 2, "token": job["token"], "retryable": False, "error": "no such file"}
        assert api.post("v1/jobs/php.resize/1", body).json()["state"] == "dead"

    def test_attempts_are_as_many_as_the_type_says(self, api: Api, clock: Clock, claim: Callable[..., Any]) -> None:
        api.put("v1/jobs/php.resize/1")
        states = []
        for _ in range(3):
            (job,) = claim()
            states.append(api.post("v1/jobs/php.resize/1", {"status": "failed", "token": job["token"]}).json()["state"])
            clock.advance(3_600_000)
        assert states == ["retry", "retry", "dead"]

    @pytest.mark.accepts("K12")
    @pytest.mark.parametrize("wrong", [{"attempt": 2}, {"token": 999_999}, {"attempt": 1, "token": 999_999}])
    def test_a_report_on_another_attempt_is_409_and_changes_nothing(
        self, api: Api, store: Store, claim: Callable[..., Any], wrong: dict[str, int]
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        claim()
        before = store.get("pull", "1")
        for status in ("succeeded", "failed"):
            assert api.post("v1/jobs/php.resize/1", {"status": status, **wrong}).status_code == 409
        assert store.get("pull", "1") == before

    @pytest.mark.accepts("K12")
    def test_a_late_report_of_an_attempt_that_was_given_up_changes_nothing(
        self, api: Api, store: Store, clock: Clock, claim: Callable[..., Any]
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (late,) = claim(lease=10)
        clock.advance(10_001)
        RemoteWatch(store, lambda: ["pull"]).tick()
        clock.advance(60_000)
        (again,) = claim()
        body = {"status": "succeeded", "attempt": late["attempt"], "token": late["token"], "result": "late"}
        assert api.post("v1/jobs/php.resize/1", body).status_code == 409
        assert api.post("v1/jobs/php.resize/1", {"status": "succeeded", "token": late["token"]}).status_code == 409
        assert api.post("v1/jobs/php.resize/1", {"status": "succeeded", "token": again["token"]}).status_code == 200

    @pytest.mark.accepts("K18")
    def test_a_report_whose_answer_was_lost_may_be_sent_again(
        self, api: Api, store: Store, claim: Callable[..., Any]
    ) -> None:
        for status in ("succeeded", "failed"):
            api.put(f"v1/jobs/php.resize/{status}")
            claim()
            first = api.post(f"v1/jobs/php.resize/{status}", {"status": status, "attempt": 1})
            before = store.get("pull", status)
            again = api.post(f"v1/jobs/php.resize/{status}", {"status": status, "attempt": 1})
            other = {"status": "failed" if status == "succeeded" else "succeeded", "attempt": 1}
            assert (first.status_code, again.status_code) == (200, 200)
            assert api.post(f"v1/jobs/php.resize/{status}", other).status_code == 409
            assert store.get("pull", status) == before

    def test_which_attempt_must_be_said(self, api: Api, claim: Callable[..., Any]) -> None:
        api.put("v1/jobs/php.resize/1")
        claim()
        assert api.post("v1/jobs/php.resize/1", {"status": "succeeded"}).status_code == 422

    def test_nobody_can_report_on_a_job_that_runs_in_django(self, api: Api, store: Store) -> None:
        api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
        (held,) = store.claim("default", "worker", 1, lease=30_000).claims
        assert api.post("v1/jobs/tests.greet/1", {"status": "succeeded", "token": held.token}).status_code == 409
        assert store.get("default", "1").state is State.RUNNING  # type: ignore[union-attr]

    def test_an_error_text_of_any_kind_is_kept_short_and_clean(self, api: Api, claim: Callable[..., Any]) -> None:
        api.put("v1/jobs/php.resize/1")
        claim()
        text = "\x1b[31m\x00 <script> " + "x" * 50_000
        answer = api.post("v1/jobs/php.resize/1", {"status": "failed", "attempt": 1, "error": text})
        assert answer.status_code == 200
        error = answer.json()["error"]
        assert len(error) < 3000
        assert not {"\x1b", "\x00"} & set(error)


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

    def test_a_stale_token_extends_nothing(self, api: Api, store: Store, claim: Callable[..., Any]) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim(lease=10)
        assert api.post("v1/jobs/php.resize/1/extend", {"token": job["token"] + 1, "message": "x"}).status_code == 409
        assert store.get("pull", "1").checkin is None  # type: ignore[union-attr]


@pytest.mark.accepts("R31")
def test_the_end_of_a_remote_job_is_told_like_any_other(
    api: Api, clock: Clock, claim: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, str]] = []

    def hear(signal: Any, job_id: str, name: str, **_: Any) -> None:
        told.append((job_id, "succeeded" if signal is signals.job_succeeded else "failed"))

    for signal in (signals.job_succeeded, signals.job_failed):
        signal.connect(hear)
    try:
        for number, status in enumerate(("succeeded", "failed")):
            api.put(f"v1/jobs/php.resize/{number}")
            (job,) = claim()
            api.post(f"v1/jobs/php.resize/{number}", {"status": status, "token": job["token"]})
            api.post(f"v1/jobs/php.resize/{number}", {"status": status, "token": job["token"]})
    finally:
        for signal in (signals.job_succeeded, signals.job_failed):
            signal.disconnect(hear)
    assert told == [("0", "succeeded"), ("1", "failed")]


@pytest.mark.accepts("K19", "K20")
def test_without_a_report_in_time_the_attempt_has_failed(
    api: Api, store: Store, clock: Clock, claim: Callable[..., Any]
) -> None:
    api.put("v1/jobs/php.resize/1")
    claim(lease=300)
    watch = RemoteWatch(store, lambda: ["pull"])
    clock.advance(299_000)
    assert watch.tick() == 0
    clock.advance(1_001)
    assert watch.tick() == 1
    job = api.get("v1/jobs/1").json()
    assert job["state"] == "retry"
    assert job["log"][0]["outcome"] == "timeout"


class TestTypes:
    @pytest.mark.accepts("K07", "K22")
    def test_a_type_made_over_http_is_listed_with_those_of_python(self, api: Api, kind: str) -> None:
        types = {entry["name"]: entry for entry in api.get("v1/job-types").json()}
        assert types["php.resize"] == {
            "name": "php.resize", "queue": "pull", "delivery_strategy": "at_least_once", "attempts": 3,
            "concurrency": 0, "timeout": 60, "url": None, "remote": True,
        }  # fmt: skip
        assert types["tests.greet"]["remote"] is False
        assert "tests.private" not in types
        assert api.get("v1/job-types/php.resize").json() == types["php.resize"]
        assert api.get("v1/job-types/tests.private").status_code == 404

    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({"name": "tests.greet"}, 409),
            ({"name": "php.resize"}, 409),
            ({"name": "a b"}, 422),
            ({"queue": "nowhere"}, 422),
            ({"attempts": 0}, 422),
            ({"timeout": 0}, 422),
            ({"delivery_strategy": "exactly_once"}, 422),
            ({"url": "http://example.com/"}, 422),
            ({"url": "ftp://example.com/"}, 422),
            ({"url": "https://user:secret@example.com/"}, 422),
            ({"credentials": "shop"}, 422),
        ],
    )
    def test_a_type_that_cannot_work_is_refused(self, api: Api, kind: str, changes: Any, status: int) -> None:
        body = {"name": "php.new", "queue": "push", "url": "https://example.com/jobs", **changes}
        assert api.post("v1/job-types", body).status_code == status
        assert RemoteJobType.objects.count() == 1

    @pytest.mark.accepts("K24", "K31")
    def test_a_type_made_elsewhere_is_known_within_five_seconds(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [100.0]
        monkeypatch.setattr(knowledge, "_known", knowledge.Known(lambda: now[0]))
        assert api.put("v1/jobs/php.late/1").status_code == 404
        RemoteJobType.objects.create(name="php.late", queue="pull")
        now[0] += 4.0
        assert api.put("v1/jobs/php.late/1").status_code == 201


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
