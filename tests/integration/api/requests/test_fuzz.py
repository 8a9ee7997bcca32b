"""Whatever is sent, an answer comes that programs can read, and none says that the server is at fault."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.models import ApiToken
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import ALL, SETTINGS, Api
from tests.support.dose import dose

FUZZ = settings(
    max_examples=dose(60, long=1000, quick=15),
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
reports = st.dictionaries(
    st.sampled_from(["status", "attempt", "token", "retryable", "result", "error", "message", "name"]),
    json_values | st.integers(0, 3) | st.booleans() | st.sampled_from(["succeeded", "failed"]),
    max_size=5,
)


@FUZZ
@given(data=json_values, report=reports)
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
    answer = api.post(f"v1/jobs/php.resize/{id}", {**report, "token": job["token"]})
    assert answer.status_code < 500, (report, answer.content)
    assert answer.status_code < 400 or answer.json()["status"] == answer.status_code
    store.kill("pull", [id], "next")
    store.release_worker("pull", f"remote:{id}")  # its attempt has ended


HUGE = "9" * 250
#: Values that a parser, a database or a store may stumble over.
ODD = [
    "\0",
    "a\0b",
    "\ud7ff\ufffe",
    "-1",
    "0",
    "1.5",
    HUGE,
    f"-{HUGE}",
    "NaN",
    "Infinity",
    "1e400",
    "\u0663",
    "%",
    "'",
    "null",
]
CURSORS = ["[" * 1400, f'[{HUGE},"default","1"]', '[-1,"\\u0000","\\ud800"]', f'[0,"default","{HUGE}"]', "[1e400,0,0]"]
ODD += [urlsafe_b64encode(text.encode()).decode() for text in CURSORS]
ODD += [f"{'9' * 17}_{'9' * 18}", "0_0", f"{'9' * 17}:1", f"dead:{HUGE}"]
ODD += ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
LISTS = ["jobs?state=dead", "jobs?state=queued", "jobs?state=succeeded&from=2026-01-01", "archived-jobs?status=dead"]
LISTS += [
    "workflows?kind=",
    "outbox?held=true",
    "schedules?limit=1",
    "tags?state=retry",
    "job-types/php.resize/trend?queue=",
]
#: Texts that a query may stumble over, behind a state that a verb is for.
QUERIES = ["arg.", "arg.x=", "arg.x=" + "[" * 500, "arg.x={", "arg.a.b.c.0=1", "before:9999", "after:0001-01-01"]
QUERIES += ["tag:", "id:" + "x" * 300, 'scope:""', "queue:nowhere", "error:\0", "worker:%", 'name:"\\ud800"', '"']
KEYS = ("limit", "lease", "wait", "token", "attempts", "run_after", "priority", "progress")


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("key", ["cursor", "name", "tag", "queue", "from", "until", "limit", "status", "state", "held"])
def test_any_parameter_of_a_list_is_answered(api: Api, path: str, key: str) -> None:
    for odd in ODD:
        for more in ("", "&tag=x", "&name=tests.greet"):
            answer = api.get(f"v1/{path}&{key}={quote(odd)}{more}")
            assert answer.status_code < 500, (odd, answer.content)


@pytest.mark.parametrize("odd", ODD)
def test_any_word_in_an_address_and_in_a_body_is_answered(api: Api, odd: str) -> None:
    word, calls = quote(odd, safe=""), []
    for address in ("jobs/{}", "jobs/php.resize/{}", "jobs/{}/1", "job-types/{}", "workflows/{}", "workflows/{}/steps"):
        calls.append(api.get(f"v1/{address.format(word)}"))
    for address in (
        "outbox/{}/send",
        "schedules/{}/pause",
        "queues/{}/claim",
        "workflows/{}/cancel",
        "jobs/php.resize/{}/kill",
    ):
        calls.append(api.post(f"v1/{address.format(word)}", {}))
    api.put("v1/jobs/php.resize/1", {"data": 1})
    for value in (odd, [odd], {odd: odd}):
        calls.append(api.put(f"v1/jobs/php.resize/{uuid4().hex}", {"data": value, "unique_key": value}))
        calls.append(api("PATCH", "v1/jobs/php.resize/1", {"data": value}))
        calls.append(api.post("v1/queues/pull/pause", {"reason": value}))
        calls.append(api.post("v1/jobs/php.resize/1/kill", {"reason": value}))
        calls.append(api.post("v1/job-types", {"name": f"t{uuid4().hex}", "url": value}))
        api.post("v1/jobs/php.resize/1/retry", {})
    for key in KEYS:
        body = f'{{"{key}": {odd if odd.strip("-").isdecimal() and odd.isascii() else json.dumps(odd)}}}'.encode()
        for address in ("queues/pull/claim", "jobs/php.resize/1/extend", "jobs/php.resize/1/reschedule"):
            calls.append(api("POST", f"v1/{address}", raw=body))
        for method, address in (("PUT", f"jobs/php.resize/{uuid4().hex}"), ("PATCH", "job-types/php.resize")):
            calls.append(api(method, f"v1/{address}", raw=body))
    assert [(call.request["PATH_INFO"], call.content) for call in calls if call.status_code >= 500] == []  # type: ignore[attr-defined]


def test_any_query_and_any_preview_of_a_bulk_operation_are_answered(api: Api) -> None:
    for odd in (*ODD, *QUERIES, *(f"arg.x={each}" for each in ODD), *(f"before:{each}" for each in ODD)):
        wanted = {"verb": "kill", "query": f"state:queued {odd}"}
        shown = api.get(f"v1/bulk-operations/preview?{urlencode(wanted)}")
        assert shown.status_code in (200, 404, 422), (odd, shown.content)
        preview = shown.json()["preview"] if shown.status_code == 200 else "1.x"
        body = {**wanted, "matching": 0, "preview": preview}
        assert api.put(f"v1/bulk-operations/{uuid4().hex}", body).status_code < 500, odd
        for key in ("verb", "query", "matching", "preview", "reason", "run_after"):
            value = int(odd) if odd.strip("-").isdecimal() and odd.isascii() else odd
            assert api.put("v1/bulk-operations/1", {**body, key: value}).status_code < 500, (key, odd)


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "x", "\u0663", "1.5", ""])
def test_any_content_length_is_answered(api: Api, length: str) -> None:
    assert api("PUT", "v1/jobs/tests.greet/1", {"data": ["Ada"]}, CONTENT_LENGTH=length).status_code < 500


def test_a_database_that_takes_no_writes_is_needed_only_by_calls_that_write_to_it(api: Api, store: Store) -> None:
    on_sqlite = connection.vendor == "sqlite"
    ApiToken.objects.update(last_used_at=None)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON" if on_sqlite else "SET TRANSACTION READ ONLY")
        try:
            assert api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]}).status_code == 201
            assert api.get("v1/jobs/1").status_code == 200
            assert api.post("v1/jobs/tests.greet/1/kill", {}).status_code == 200
            assert api.post("v1/job-types", {"name": "php.other", "queue": "pull"}).status_code == 503
        finally:
            if on_sqlite:
                connection.connection.execute("PRAGMA query_only = OFF")


@FUZZ
@given(header=st.text(st.characters(codec="latin-1"), max_size=40), raw=st.binary(max_size=200))
def test_any_header_and_any_bytes_are_answered(store: Store, header: str, raw: bytes) -> None:
    stranger = Api()
    stranger.headers["Authorization"] = header
    assert stranger("PUT", "v1/jobs/tests.greet/1", raw=raw).status_code in {400, 401, 413, 415}
    answer = Api.__call__(stranger, "POST", "v1/queues/pull/claim", raw=raw, content_type=header[:20])
    assert answer.status_code < 500
