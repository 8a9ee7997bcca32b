"""Which jobs a claim gets: those of the caller's job types, wherever they wait, and never those of another caller."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobs import remote
from django_jobs.api.endpoints import jobs as job_calls
from django_jobs.api.endpoints import work
from django_jobs.models import ApiToken, RemoteJobType
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import Api

OTHER = {"name": "php.other", "queue": "pull"}


def kind_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


class TestARequestId:
    def test_gets_no_job_of_another_token(self, api: Api, kind: str) -> None:
        api.post("v1/job-types", OTHER)
        api.put(f"v1/jobs/{kind}/1", {"data": "secret"})
        mine, other = Api("work", jobs=(kind,)), Api("work", jobs=("php.other",))
        body = {"request_id": "1"}
        first = mine.post("v1/queues/pull/claim", body).json()["jobs"]
        assert [job["id"] for job in first] == ["1"]
        assert other.post("v1/queues/pull/claim", body).json() == {"jobs": []}
        assert mine.post("v1/queues/pull/claim", body).json()["jobs"] == first

    def test_is_one_for_each_token_so_that_no_job_is_given_to_two_workers(self, api: Api, kind: str) -> None:
        api.put(f"v1/jobs/{kind}/1")
        api.put(f"v1/jobs/{kind}/2")
        claims = [Api("work").post("v1/queues/pull/claim", {"request_id": "1"}).json()["jobs"] for _ in range(2)]
        assert [[job["id"] for job in jobs] for jobs in claims] == [["1"], ["2"]]

    def test_gets_no_job_of_a_type_that_the_token_may_no_longer_use(self, api: Api, kind: str) -> None:
        api.post("v1/job-types", OTHER)
        api.put(f"v1/jobs/{kind}/1")
        worker = Api("work")
        assert worker.post("v1/queues/pull/claim", {"request_id": "1"}).json()["jobs"]
        ApiToken.objects.filter(scopes=["work"]).update(jobs=["php.other"])
        assert worker.post("v1/queues/pull/claim", {"request_id": "1"}).json() == {"jobs": []}


class TestJobsThatATypeLeftInItsOldQueue:
    def test_are_claimed_there(self, api: Api, kind: str, claim: Callable[..., Any]) -> None:
        api.put(f"v1/jobs/{kind}/1")
        assert api("PATCH", f"v1/job-types/{kind}", {"queue": "push"}).status_code == 200
        (job,) = claim()
        assert api.post(f"v1/jobs/{kind}/1", {"status": "succeeded", "token": job["token"]}).status_code == 200
        assert kind_of(api.post("v1/queues/pull/claim", {})) == (409, "nothing-to-fetch")

    def test_are_claimed_there_when_their_next_attempt_is_due(
        self, api: Api, kind: str, claim: Callable[..., Any], clock: Clock
    ) -> None:
        api.put(f"v1/jobs/{kind}/1")
        (job,) = claim()
        api("PATCH", f"v1/job-types/{kind}", {"queue": "push"})
        api.post(f"v1/jobs/{kind}/1", {"status": "failed", "token": job["token"]})
        assert claim() == []
        clock.advance(60_000)
        assert [job["attempt"] for job in claim()] == [2]

    def test_are_claimed_there_by_a_token_for_that_type_only(self, api: Api, kind: str) -> None:
        api.post("v1/job-types", OTHER)
        api.put(f"v1/jobs/{kind}/1")
        api.put("v1/jobs/php.other/2")
        api("PATCH", f"v1/job-types/{kind}", {"queue": "push"})
        worker = Api("work", jobs=(kind,))
        answer = worker.post("v1/queues/pull/claim", {"limit": 9})
        assert [job["id"] for job in answer.json()["jobs"]] == ["1"]
        assert kind_of(worker.post("v1/queues/pull/claim", {})) == (403, "job-not-allowed")


class TestAClaimThatWaits:
    @pytest.fixture
    def meanwhile(self, monkeypatch: pytest.MonkeyPatch, store: Store, kind: str) -> Callable[..., None]:
        """Let this happen while the next claim waits; then a job is there."""

        def let(happen: Callable[[], Any]) -> None:
            def waits(queues: Any, *_: Any, **__: Any) -> None:
                happen()
                remote.forget()
                remote.known()
                Api("enqueue").put("v1/jobs/php.resize/1")

            monkeypatch.setattr(store, "wait_for_work", waits)
            monkeypatch.setattr(work, "sleep", waits)

        return let

    def test_gets_no_job_when_its_token_was_revoked_meanwhile(
        self, store: Store, meanwhile: Callable[..., None]
    ) -> None:
        worker = Api("work")
        meanwhile(lambda: ApiToken.objects.get(scopes=["work"]).revoke())
        assert kind_of(worker.post("v1/queues/pull/claim", {"wait": 20})) == (401, "not-authenticated")
        assert store.get("pull", "1").state == "queued"  # type: ignore[union-attr]

    def test_gets_no_job_of_a_type_that_was_taken_from_its_token(
        self, api: Api, store: Store, meanwhile: Callable[..., None]
    ) -> None:
        api.post("v1/job-types", OTHER)
        worker = Api("work")
        meanwhile(lambda: ApiToken.objects.filter(scopes=["work"]).update(jobs=["php.other"]))
        assert worker.post("v1/queues/pull/claim", {"wait": 0.2}).json() == {"jobs": []}
        assert store.get("pull", "1").state == "queued"  # type: ignore[union-attr]

    def test_gets_no_job_of_a_type_that_is_posted_by_now(self, store: Store, meanwhile: Callable[..., None]) -> None:
        worker = Api("work")
        meanwhile(lambda: RemoteJobType.objects.update(url="https://localhost/"))
        assert kind_of(worker.post("v1/queues/pull/claim", {"wait": 20})) == (409, "nothing-to-fetch")
        assert store.get("pull", "1").state == "queued"  # type: ignore[union-attr]

    def test_takes_no_job_of_a_type_that_was_removed(
        self, api: Api, store: Store, kind: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        once = {"name": "php.once", "queue": "pull", "delivery_strategy": "at_most_once"}
        assert api.post("v1/job-types", once).status_code == 201
        due = datetime.fromtimestamp(store.now() / 1000 + 5, UTC).isoformat()
        api.put("v1/jobs/php.once/1", {"run_after": due})

        def removed(*_: Any, **__: Any) -> None:
            RemoteJobType.objects.filter(name="php.once").delete()
            remote.forget()
            clock.advance(6_000)

        monkeypatch.setattr(store, "wait_for_work", removed)
        assert api.post("v1/queues/pull/claim", {"wait": 0.2}).json() == {"jobs": []}
        assert store.get("pull", "1").state != "running"  # type: ignore[union-attr]

    def test_counts_once_for_the_limit_of_its_token(self, meanwhile: Callable[..., None]) -> None:
        worker = Api("work")
        ApiToken.objects.filter(scopes=["work"]).update(per_minute=1)
        meanwhile(lambda: None)
        assert [job["id"] for job in worker.post("v1/queues/pull/claim", {"wait": 20}).json()["jobs"]] == ["1"]


@pytest.mark.parametrize("path", ["v1/jobs/php.resize/1", "v1/jobs/1"])
def test_a_call_that_waits_for_the_end_of_a_job_shows_nothing_when_its_token_was_revoked_meanwhile(
    api: Api, kind: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(f"v1/jobs/{kind}/1", {"data": "secret"})
    reader = Api("read")
    monkeypatch.setattr(job_calls.futures, "wait", lambda *_: ApiToken.objects.get(scopes=["read"]).revoke())
    assert kind_of(reader.get(f"{path}?wait=20")) == (401, "not-authenticated")
