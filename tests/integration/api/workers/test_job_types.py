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
            "concurrency": 0, "timeout": 60, "url": None, "remote": True, "way": "fetched",
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
