"""What becomes of a job that was claimed over HTTP: its worker reports, or does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import remote, signals
from django_jobs.core.values import State
from django_jobs.events.receivers import here
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.remote.models import RemoteJobType
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import Api


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

    def test_an_attempt_ends_where_it_is_when_its_type_has_another_queue_by_then(
        self, api: Api, store: Store, claim: Callable[..., Any]
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (job,) = claim()
        RemoteJobType.objects.filter(name="php.resize").update(queue="push")
        remote.forget()
        for _ in range(2):  # the second finds that the job has left the history
            report = {"status": "succeeded", "token": job["token"]}
            assert api.post("v1/jobs/php.resize/1", report).status_code == 200
            store.delete("pull", ["1"])
        assert api.put("v1/jobs/php.resize/1").status_code == 200
        assert store.get("push", "1") is None

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

    def test_a_late_report_does_not_count_for_the_attempt_after_a_retry_by_hand(
        self, api: Api, store: Store, claim: Callable[..., Any]
    ) -> None:
        api.put("v1/jobs/php.resize/1")
        (late,) = claim()
        store.kill("pull", ["1"], "hangs")
        store.recover("pull", worker=f"{store.get('pull', '1').attempts[-1].worker}")  # type: ignore[union-attr]
        assert store.revive("pull", ["1"]) == ["1"]
        (job,) = claim()
        assert (late["attempt"], job["attempt"]) == (1, 2)
        assert api.post("v1/jobs/php.resize/1", {"status": "succeeded", "attempt": late["attempt"]}).status_code == 409
        assert api.post("v1/jobs/php.resize/1", {"status": "failed", "attempt": 2}).json()["state"] == "retry"

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
        assert here().finish(30)
    finally:
        for signal in (signals.job_succeeded, signals.job_failed):
            signal.disconnect(hear)
    assert told == [("0", "succeeded"), ("1", "failed")]
