"""Job types made over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.models import RemoteJobType
from django_jobs.remote import type_cache
from tests.integration.api.conftest import Api


class TestTypes:
    @pytest.mark.accepts("K07", "K22")
    def test_a_type_made_over_http_is_listed_with_those_of_python(self, api: Api, kind: str) -> None:
        types = {entry["name"]: entry for entry in api.get("v1/job-types").json()}
        assert types["php.resize"] == {
            "name": "php.resize", "queue": "pull", "delivery_strategy": "at_least_once", "attempts": 3,
            "concurrency": 0, "timeout": 60, "url": None, "remote": True, "way": "fetched", "per_minute": None,
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

    @pytest.mark.accepts("K24")
    def test_a_type_made_elsewhere_is_known_within_five_seconds(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [100.0]
        monkeypatch.setattr(type_cache, "_known", type_cache.Known(lambda: now[0]))
        assert api.put("v1/jobs/php.late/1").status_code == 404
        RemoteJobType.objects.create(name="php.late", queue="pull")
        now[0] += 4.0
        assert api.put("v1/jobs/php.late/1").status_code == 201


class TestChanges:
    def test_a_type_is_changed_and_the_next_job_has_the_change(self, api: Api, kind: str) -> None:
        changed = api("PATCH", "v1/job-types/php.resize", {"attempts": 1, "timeout": 5})
        assert (changed.status_code, changed.json()["attempts"], changed.json()["timeout"]) == (200, 1, 5)
        assert changed.json() == api.get("v1/job-types/php.resize").json()
        api.put("v1/jobs/php.resize/1")
        (job,) = api.post("v1/queues/pull/claim", {}).json()["jobs"]
        ended = api.post("v1/jobs/php.resize/1", {"status": "failed", "token": job["token"]})
        assert ended.json()["state"] == "dead"
        assert api("PATCH", "v1/job-types/php.resize", {}).json() == changed.json()

    @pytest.mark.parametrize(
        "changes",
        [
            {"queue": "nowhere"},
            {"attempts": 0},
            {"attempts": None},
            {"timeout": 0},
            {"url": "http://10.0.0.1/"},
            {"delivery_strategy": "exactly_once"},
            {"name": "php.other"},
            {"credentials": "shop"},
        ],
    )
    def test_a_change_that_cannot_work_is_refused_and_changes_nothing(self, api: Api, kind: str, changes: Any) -> None:
        before = api.get("v1/job-types/php.resize").json()
        assert api("PATCH", "v1/job-types/php.resize", {"concurrency": 7, **changes}).status_code == 422
        assert api.get("v1/job-types/php.resize").json() == before

    def test_no_token_sends_credentials_to_another_address(self, api: Api, kind: str) -> None:
        RemoteJobType.objects.update(url="https://example.com/jobs", credentials="shop")
        answer = api("PATCH", "v1/job-types/php.resize", {"url": "https://example.org/"})
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:problem-type:django-jobs:has-credentials")
        same = api("PATCH", "v1/job-types/php.resize", {"url": "https://example.com/jobs", "attempts": 9})
        assert same.status_code == 200
        row = RemoteJobType.objects.get()
        assert (row.url, row.credentials, row.attempts) == ("https://example.com/jobs", "shop", 9)
        # A new type of that name has no credentials.
        assert api("DELETE", "v1/job-types/php.resize").status_code == 200
        assert api.post("v1/job-types", {"name": "php.resize", "queue": "push"}).status_code == 201
        assert RemoteJobType.objects.get().credentials == ""

    def test_a_removed_type_is_gone_and_its_jobs_wait_for_the_next_of_that_name(self, api: Api, kind: str) -> None:
        api.put("v1/jobs/php.resize/1")
        for _ in range(2):
            assert api("DELETE", "v1/job-types/php.resize").json() == {"name": "php.resize", "deleted": True}
        assert api.get("v1/job-types/php.resize").status_code == 404
        assert api.put("v1/jobs/php.resize/2").status_code == 404
        assert api.get("v1/jobs/1").json()["state"] == "queued"
        api.post("v1/job-types", {"name": "php.resize", "queue": "pull"})
        (job,) = api.post("v1/queues/pull/claim", {}).json()["jobs"]
        assert job["id"] == "1"

    def test_a_type_of_the_project_is_neither_changed_nor_removed(self, api: Api) -> None:
        for method, body in (("PATCH", {"attempts": 3}), ("DELETE", None)):
            assert api(method, "v1/job-types/tests.greet", body).status_code == 409
            assert api(method, "v1/job-types/tests.private", body).status_code == 404
        assert api("PATCH", "v1/job-types/nothing", {"attempts": 3}).status_code == 404
