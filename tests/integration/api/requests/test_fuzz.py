"""Whatever is sent, an answer comes that programs can read, and none says that the server is at fault."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import ALL, SETTINGS, Api

FUZZ = settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def store(redis_store: Store, settings: Any) -> Store:
    settings.DJANGO_JOBS = SETTINGS
    use_store(redis_store)
    return redis_store


@pytest.fixture
def api(store: Store) -> Api:
    api = Api(*ALL)
    api.post("v1/job-types", {"name": "php.resize", "queue": "pull", "attempts": 2})
    return api


MOMENTS = st.sampled_from(
    ["$model", "2030-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "succeeded", "failed"]
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | MOMENTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["tests.greet", "tests.swallow", "php.resize", "tests.private", "1", "2", "pull", "default"])
parts = names | st.text(min_size=1, max_size=12)
KEYS = [
    "data",
    "run_after",
    "expires_at",
    "priority",
    "unique_key",
    "status",
    "attempt",
    "token",
    "retryable",
    "result",
    "error",
    "limit",
    "lease",
    "wait",
    "message",
    "progress",
    "reason",
    "until",
    "job",
    "name",
    "queue",
    "url",
    "delivery_strategy",
    "attempts",
    "concurrency",
    "timeout",
    "finished_at",
    "start_again",
]
small = st.integers(0, 3) | st.booleans() | st.sampled_from(["succeeded", "failed", "pull", "tests.greet", "php.new"])
plain_bodies = st.dictionaries(st.sampled_from(KEYS), json_values | small, max_size=5)
items = st.fixed_dictionaries(
    {"name": names},
    optional={"id": names, "data": json_values, "token": st.integers(1, 3), "status": st.just("succeeded")},
)
bodies = plain_bodies | st.fixed_dictionaries({"jobs": st.lists(items | plain_bodies, max_size=4)})
bodies |= st.fixed_dictionaries({"reports": st.lists(items | plain_bodies, max_size=4)})
PATHS = [
    ("POST", "v1/jobs"),
    ("POST", "v1/reports"),
    ("PUT", "v1/jobs/{}/{}"),
    ("GET", "v1/jobs/{}/{}"),
    ("GET", "v1/jobs/{}"),
    ("POST", "v1/jobs/{}/{}"),
    ("POST", "v1/jobs/{}/{}/replay"),
    ("POST", "v1/jobs/{}/{}/extend"),
    ("DELETE", "v1/jobs/{}/{}"),
    ("PATCH", "v1/jobs/{}/{}"),
    ("POST", "v1/jobs/{}/{}/retry"),
    ("POST", "v1/jobs/{}/{}/kill"),
    ("GET", "v1/jobs?state=queued&name={}&cursor={}&limit=3"),
    ("GET", "v1/jobs?state={}&queue={}"),
    ("GET", "v1/schedules?cursor={}"),
    ("PUT", "v1/schedules/{}/runs/{}"),
    ("POST", "v1/schedules/{}/pause"),
    ("POST", "v1/schedules/{}/resume"),
    ("GET", "v1/job-types/{}"),
    ("POST", "v1/job-types"),
    ("PATCH", "v1/job-types/{}"),
    ("DELETE", "v1/job-types/{}"),
    ("POST", "v1/queues/{}/pause"),
    ("POST", "v1/queues/{}/resume"),
    ("POST", "v1/queues/{}/claim"),
    ("GET", "v1/archived-jobs?name={}&cursor={}&limit=3"),
    ("GET", "v1/archived-jobs?status={}"),
]


def check(api: Api, method: str, path: str, body: Any) -> None:
    if isinstance(body, dict):
        # Waiting for work is tested elsewhere; here it would only take time.
        body.pop("wait", None)
    raw = json.dumps(body).encode() if method in {"PUT", "POST", "PATCH"} else b""
    answer = api(method, path, raw=raw)
    assert answer.status_code < 500, (method, path, body, answer.content)
    document = json.loads(answer.content)
    if answer.status_code >= 400:
        assert answer["Content-Type"] == "application/problem+json"
        assert document["status"] == answer.status_code


@FUZZ
@given(call=st.sampled_from(PATHS), first=parts, second=parts, body=bodies | json_values)
def test_no_request_is_answered_with_a_fault(
    api: Api, call: tuple[str, str], first: str, second: str, body: Any
) -> None:
    method, path = call
    check(api, method, path.format(quote(first, safe=""), quote(second, safe="")), body)


@FUZZ
@given(data=json_values, report=plain_bodies)
def test_any_data_goes_in_out_and_round_and_any_report_is_answered(
    api: Api, store: Store, data: Any, report: Any
) -> None:
    id = uuid4().hex  # an id is used once
    if (made := api.put(f"v1/jobs/php.resize/{id}", {"data": data})).status_code == 422:
        return
    assert made.status_code == 201
    assert made.json()["data"] == data
    assert api.get(f"v1/jobs/{id}").json()["data"] == data
    (job,) = api.post("v1/queues/pull/claim", {"limit": 100}).json()["jobs"]
    assert job["data"] == data
    check(api, "POST", f"v1/jobs/php.resize/{id}", {**report, "token": job["token"]})
    store.kill("pull", [id], "next")
    store.release_worker("pull", f"remote:{id}")  # its attempt has ended


@FUZZ
@given(header=st.text(st.characters(codec="latin-1"), max_size=40), raw=st.binary(max_size=200))
def test_any_header_and_any_bytes_are_answered(store: Store, header: str, raw: bytes) -> None:
    stranger = Api()
    stranger.headers["Authorization"] = header
    assert stranger("PUT", "v1/jobs/tests.greet/1", raw=raw).status_code in {400, 401, 413, 415}
    answer = Api.__call__(stranger, "POST", "v1/queues/pull/claim", raw=raw, content_type=header[:20])
    assert answer.status_code < 500
