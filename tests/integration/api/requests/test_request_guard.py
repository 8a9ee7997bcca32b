"""Size, type, address and method: what is refused before an endpoint sees it, and how errors look."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from django_jobs.api.endpoints import numbers
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import SETTINGS, Api


@pytest.fixture
def store(redis_store: Store, settings: Any) -> Store:
    """One kind of store will do here."""
    settings.DJANGO_JOBS = SETTINGS
    use_store(redis_store)
    return redis_store


def test_a_body_of_256_kib_is_read_and_one_more_byte_is_413(api: Api) -> None:
    frame = b'{"data": [""]}'
    fits = frame.replace(b'""', b'"' + b"x" * (262_144 - len(frame)) + b'"')
    assert len(fits) == 262_144
    # MAX_PAYLOAD is as large as the body may be, so the largest body that is read still holds too large arguments.
    assert api("PUT", "v1/jobs/tests.greet/1", raw=fits).status_code in {201, 422}
    answer = api("PUT", "v1/jobs/tests.greet/1", raw=fits + b" ")
    assert answer.status_code == 413
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.accepts("K05")
def test_another_content_type_is_415(api: Api) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        answer = api("PUT", "v1/jobs/tests.greet/1", raw=b'{"data": ["Ada"]}', content_type=kind)
        assert answer.status_code == 415, kind


def test_a_content_type_with_a_charset_is_json_too(api: Api) -> None:
    kind = "application/json; charset=utf-8"
    assert api("PUT", "v1/jobs/tests.greet/1", raw=b'{"data": ["Ada"]}', content_type=kind).status_code == 201


NO_GOOD_JSON = (
    [b"{", b"\xff\xfe", b"[" * 200_000, b'{"data": NaN}', b'{"data": Infinity}', b'{"data": ' + b"9" * 5000 + b"}",
     b"null", b'{"data": 1e999}', b'{"data": "\\ud800"}', b'{"data": ' + b"[" * 40 + b"]" * 40 + b"}",
     b'{"data": {"\\ud800": 1}}']
)  # fmt: skip


def test_a_body_that_is_no_good_json_is_refused(api: Api, store: Store) -> None:
    for raw in NO_GOOD_JSON:
        answer = api("PUT", "v1/jobs/tests.swallow/1", raw=raw)
        assert answer.status_code in {400, 422}, raw[:20]
        assert json.loads(answer.content)["status"] == answer.status_code
    assert store.get("small", "1") is None


def test_any_other_address_is_a_404_that_programs_can_read(api: Api) -> None:
    for path in ("", "v1", "v1/", "v1/nothing", "v2/jobs/1", "v1/jobs/a/b/c/d", "docs"):
        answer = api.get(path)
        assert answer.status_code == 404, path
        assert answer["Content-Type"] == "application/problem+json"


def test_another_method_is_405_and_says_which_there_are(api: Api) -> None:
    for method, path in (("PATCH", "v1/jobs/1"), ("DELETE", "v1/queues"), ("POST", "healthz")):
        answer = api(method, path)
        assert answer.status_code == 405, path
        assert answer["Allow"]
        assert answer["Content-Type"] == "application/problem+json"


def test_answers_are_not_cached_sniffed_or_shared_with_other_origins(api: Api) -> None:
    for answer in (api.get("v1/queues"), api.get("v1/nothing"), Api().get("v1/queues")):
        assert answer["Cache-Control"] == "no-store"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer
        assert not answer.cookies


def test_head_is_answered_as_get_without_a_body(api: Api) -> None:
    for path in ("v1/queues", "healthz", "v1/job-types", "metrics"):
        answer = api("HEAD", path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer["Content-Length"]) > 0
    assert api("HEAD", "v1/queues/default/pause").status_code == 405
    assert Api()("HEAD", "v1/queues").status_code == 401


class Away:
    """A store that cannot be reached."""

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> Any:
        def unavailable(*args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailable("redis://user:password@10.0.0.7 is away")

        return unavailable


NEED_THE_STORE = (
    [("GET", "healthz"), ("GET", "v1/stats"), ("GET", "v1/alarms"), ("GET", "v1/findings"), ("GET", "v1/jobs/1"),
     ("GET", "v1/queues/default/trend"), ("GET", "v1/job-types/tests.greet/trend"), ("GET", "v1/trend"),
     ("GET", "v1/workers/w1/trend"),
     ("POST", "v1/queues/default/pause"), ("PUT", "v1/jobs/tests.greet/1"), ("DELETE", "v1/jobs/tests.greet/1")]
)  # fmt: skip


def test_an_absent_store_is_503_and_its_address_is_not_told(api: Api) -> None:
    use_store(Away())  # type: ignore[arg-type]
    for method, path in NEED_THE_STORE:
        answer = api(method, path, {"PUT": {"data": ["Ada"]}, "POST": {}}.get(method))
        assert answer.status_code == 503, path
        assert int(answer["Retry-After"]) > 0
        assert b"10.0.0.7" not in answer.content


def test_the_metrics_say_that_the_store_is_absent(api: Api) -> None:
    use_store(Away())  # type: ignore[arg-type]
    answer = api.get("metrics")
    assert answer.status_code == 200
    assert [line for line in answer.content.decode().splitlines() if line[0] != "#"] == ["django_jobs_up 0.0"]


def test_health_needs_no_token_and_proves_that_the_store_decides(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().get("/jobs/healthz").json() == {"status": "ok"}
    assert store.queues() == []
    monkeypatch.setattr(store, "complete", lambda queue, done: [])
    assert Client().get("/jobs/healthz").status_code == 503
    assert numbers.NOBODYS.token == 0


def test_a_fault_of_ours_is_a_problem_too_and_reaches_error_reporters(
    api: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.core.signals import got_request_exception

    heard: list[object] = []

    def hear(request: object, **_: object) -> None:
        heard.append(request)

    got_request_exception.connect(hear)
    monkeypatch.setattr(store, "stats", lambda queues: 1 / 0)
    answer = api.get("v1/stats")
    got_request_exception.disconnect(hear)

    assert answer.status_code == 500
    assert answer["Content-Type"] == "application/problem+json"
    assert b"ZeroDivision" not in answer.content
    assert len(heard) == 1


@pytest.mark.accepts("K32", "K05")
def test_the_openapi_document_describes_every_call(api: Api) -> None:
    document = api.get("v1/openapi.json").json()
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert "application/problem+json" in operation["responses"]["default"]["content"]
