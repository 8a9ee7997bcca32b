"""Who is let in, and what they may do."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest
from django.test import Client
from django.utils import timezone

from django_jobs.api.common.principal import Principal
from django_jobs.models import ApiToken
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import ALL, SETTINGS, Api

JOB, TYPE, NIGHTLY = "v1/jobs/tests.greet/1", "v1/job-types/tests.greet", "v1/schedules/settings:nightly"
#: Each call of the API, and the scopes that open it.
OPENED_BY = {
    f"PUT {JOB}": "enqueue",
    f"GET {JOB}": "enqueue read",
    f"POST {JOB}": "work",
    f"DELETE {JOB}": "manage",
    f"PATCH {JOB}": "manage",
    f"GET {JOB}/why": "read",
    f"POST {JOB}/extend": "work",
    **{f"POST {JOB}/{verb}": "manage" for verb in ("replay", "retry", "kill", "reschedule", "delete")},
    "GET v1/jobs?state=dead": "read",
    "POST v1/jobs": "enqueue",
    "POST v1/reports": "work",
    "POST v1/extensions": "work",
    "GET v1/schedules": "read",
    f"POST {NIGHTLY}/pause": "manage",
    f"POST {NIGHTLY}/resume": "manage",
    f"PUT {NIGHTLY}/runs/1": "manage",
    "GET v1/job-types": "enqueue read work",
    "POST v1/job-types": "manage",
    f"PATCH {TYPE}": "manage",
    f"DELETE {TYPE}": "manage",
    f"GET {TYPE}/trend": "read",
    **{f"GET v1/workflows{rest}": "read" for rest in ("", "/w1", "/w1/steps")},
    **{f"POST v1/workflows/w1/{verb}": "manage" for verb in ("cancel", "retry")},
    "POST v1/queues/default/pause": "manage",
    "POST v1/queues/default/resume": "manage",
    "POST v1/queues/pull/claim": "work",
    **{
        f"GET v1/{what}": "read"
        for what in ("queues", "queues/default/trend", "trend", "stats", "alarms", "findings", "tags")
    },
    **{f"GET v1/{what}": "read" for what in ("workers", "workers/w1/trend", "archived-jobs", "outbox")},
    "POST v1/outbox/1/send": "manage",
    "DELETE v1/outbox/1": "manage",
    "GET metrics": "read metrics",
}
BODIES: dict[str, Any] = {
    "POST v1/job-types": {"name": "x"},
    "POST v1/jobs": {"jobs": [{"name": "tests.greet", "id": "2", "data": ["Ada"]}]},
    "POST v1/reports": {"reports": [{"name": "tests.greet", "id": "2", "token": 1, "status": "failed"}]},
    "POST v1/extensions": {"extensions": [{"name": "tests.greet", "id": "2", "token": 1}]},
    f"PATCH {TYPE}": {"attempts": 9},
    f"POST {JOB}": {"status": "failed", "token": 1},
    f"POST {JOB}/extend": {"token": 1},
    f"POST {JOB}/reschedule": {"run_after": "2035-01-01T00:00:00Z"},
    f"PUT {JOB}": {"data": ["Ada"]},
    f"PATCH {JOB}": {"data": ["Eve"]},
}
CALLS = [
    (method, path) for method, _, path in (call.partition(" ") for call in [*OPENED_BY, "GET v1/jobs/1", f"GET {TYPE}"])
]


def ask(api: Api, call: str) -> Any:
    """Send a call as it is meant."""
    method, _, path = call.partition(" ")
    return api(method, path, BODIES.get(call, None if method in {"GET", "DELETE"} else {}))


@pytest.fixture
def store(redis_store: Store, settings: Any) -> Store:
    """Who is let in does not depend on the store: one kind will do."""
    from django_jobs.stores import use_store

    settings.DJANGO_JOBS = SETTINGS
    use_store(redis_store)
    return redis_store


@pytest.fixture(autouse=True)
def _store(store: Store) -> None:
    """Every test here has one."""


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in SETTINGS.items() if name != key}


@pytest.mark.accepts("K16")
def test_nobody_is_let_in_without_a_token() -> None:
    for method, path in [*CALLS, ("GET", "v1/openapi.json")]:
        answer = Api()(method, path)
        assert answer.status_code == 401, path
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert answer["Content-Type"] == "application/problem+json"


def test_the_api_answers_nobody_until_it_is_set_up(settings: Any) -> None:
    settings.DJANGO_JOBS = without("API")
    api = Api(*ALL)
    for method, path in [*CALLS, ("GET", "v1/openapi.json"), ("GET", "healthz")]:
        assert api(method, path).status_code == 403, path


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer wrong", "Basic", "Basic !!!", "Basic " + b64encode(b"\xff:\xff").decode(),
     "Basic " + b64encode(b"a:wrong").decode(), "Digest x", "Bearer djt_ x", "Bearer \x00",
     "Basic ü", "Bearer ü"],
)  # fmt: skip
def test_a_header_that_names_no_token_is_401(header: str) -> None:
    Api("read")
    answer = Client().get("/jobs/v1/queues", headers={"Authorization": header})
    assert answer.status_code == 401


@pytest.mark.accepts("K16")
def test_bearer_and_basic_open_with_the_same_token() -> None:
    assert Api("read").get("v1/queues").status_code == 200
    assert Api("read", basic=True).get("v1/queues").status_code == 200


def test_only_the_digest_of_a_secret_is_stored() -> None:
    token, secret = ApiToken.objects.issue("php shop", ["enqueue"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM django_jobs_apitoken")
        assert secret not in str(cursor.fetchall())
    assert len(token.digest) == 64


def test_a_revoked_token_opens_nothing() -> None:
    api = Api("read")
    assert api.get("v1/queues").status_code == 200
    ApiToken.objects.get().revoke()
    assert api.get("v1/queues").status_code == 401


def test_a_token_opens_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    api, ends = Api("read"), timezone.now() + timedelta(days=1)
    ApiToken.objects.update(expires_at=ends)
    assert api.get("v1/queues").status_code == 200
    monkeypatch.setattr(timezone, "now", lambda: ends)
    assert api.get("v1/queues").status_code == 401


@pytest.mark.usefixtures("types_stay_known")
def test_the_use_of_a_token_is_remembered_at_most_once_a_minute(django_assert_num_queries: Any) -> None:
    api = Api("read")
    api.get("v1/stats")
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    with django_assert_num_queries(1):
        api.get("v1/stats")
    assert ApiToken.objects.get().last_used_at == first


@pytest.mark.parametrize("scope", ["enqueue", "read", "manage", "work", "metrics"])
def test_each_scope_opens_its_calls_and_no_others(scope: str) -> None:
    api = Api(scope)
    for call, scopes in OPENED_BY.items():
        status = ask(api, call).status_code
        assert (status != 403) == (scope in scopes.split()), call
        assert status != 401


def test_a_token_for_other_jobs_opens_no_call_about_this_one() -> None:
    Api(*ALL).put(JOB, {"data": ["Ada"]})
    stranger = Api(*ALL, jobs=("tests.charge",))
    for call in OPENED_BY:
        if call.split()[1].startswith((JOB, TYPE, NIGHTLY, "v1/workflows", "v1/tags")):
            assert ask(stranger, call).status_code in {403, 404}, call
    assert Api("read").get("v1/jobs/1").json()["data"] == ["Ada"]


def test_a_token_for_some_jobs_knows_no_others() -> None:
    Api(*ALL).put("v1/jobs/tests.charge/1", {"data": ["4111"]})
    api = Api(*ALL, jobs=("tests.greet",))
    assert api.put("v1/jobs/tests.greet/2", {"data": ["Ada"]}).status_code == 201
    assert api.put("v1/jobs/tests.charge/2", {"data": ["4111"]}).status_code == 403
    assert api.get("v1/jobs/tests.charge/1").status_code == 403
    assert api.get("v1/jobs/1").status_code == 404
    assert [kind["name"] for kind in api.get("v1/job-types").json()] == ["tests.greet"]


def test_a_token_for_some_jobs_pauses_and_resumes_only_these(store: Store) -> None:
    api = Api("manage", jobs=("tests.greet",))
    for verb in ("pause", "resume"):
        assert api.post(f"v1/queues/default/{verb}", {}).status_code == 403
        assert api.post(f"v1/queues/default/{verb}", {"job": "tests.charge"}).status_code == 403
        assert api.post(f"v1/queues/default/{verb}", {"job": "tests.greet"}).status_code == 200
    assert store.stats(["default"])[0].paused is None


def test_where_jobs_are_posted_is_told_only_to_callers_that_see_or_manage_jobs() -> None:
    Api("manage", "targets").post(
        "v1/job-types", {"name": "php.mail", "queue": "push", "url": "http://localhost:1/secret"}
    )
    for scopes, is_told in (
        (("enqueue",), False),
        (("work",), False),
        (("read",), True),
        (("enqueue", "manage"), True),
    ):
        api = Api(*scopes)
        for answer in (api.get("v1/job-types"), api.get("v1/job-types/php.mail")):
            assert (b"localhost:1" in answer.content) is is_told
            assert b'"posted"' in answer.content


def test_only_the_scope_targets_sets_where_jobs_are_posted() -> None:
    posted = {"name": "php.mail", "queue": "push", "url": "http://localhost:1/"}
    manager, both = Api("manage", "enqueue", "work"), Api("manage", "targets")
    assert manager.post("v1/job-types", posted).status_code == 403
    assert Api("targets").post("v1/job-types", posted).status_code == 403
    assert both.post("v1/job-types", posted).status_code == 201
    assert manager.post("v1/job-types", posted).status_code == 403
    for url in ("http://localhost:2/", ""):
        assert manager("PATCH", "v1/job-types/php.mail", {"url": url}).status_code == 403
    assert manager("PATCH", "v1/job-types/php.mail", {"attempts": 2}).status_code == 200
    assert both("PATCH", "v1/job-types/php.mail", {"url": "http://localhost:2/"}).json()["url"] == "http://localhost:2/"


def test_numbers_of_all_jobs_are_not_for_a_token_that_is_limited_to_some(store: Store) -> None:
    Api(*ALL).put("v1/jobs/tests.charge/1", {"data": ["4111"]})
    api = Api(*ALL, "metrics", jobs=("tests.greet",))
    for path in (
        "stats",
        "queues",
        "trend",
        "queues/default/trend",
        "alarms",
        "findings",
        "tags",
        "workers/w1/trend",
        "workflows",
    ):
        assert api.get(f"v1/{path}").status_code == 403, path
    assert api.get("metrics").status_code == 403
    assert api.get("v1/job-types/tests.greet/trend").status_code == 200
    api.put("v1/jobs/tests.greet/2", {"data": ["Ada"]})
    why = api.get("v1/jobs/tests.greet/2/why").json()
    assert (why["cause"], why["findings"]) == ("no_workers", [])
    store.pause("default", name="tests.charge")
    queue = api.post("v1/queues/default/pause", {"job": "tests.greet"}).json()
    assert (queue["counts"], queue["latency"], queue["paused_jobs"]) == ({}, None, ["tests.greet"])


def test_nobody_else_finds_out_by_trying_what_a_sensitive_argument_is() -> None:
    body = {"data": ["4111", 7]}
    sender, other = Api("enqueue"), Api("enqueue")
    assert [sender.put("v1/jobs/tests.charge/1", body).status_code for _ in range(2)] == [201, 200]
    assert other.put("v1/jobs/tests.charge/1", body).status_code == 409
    for api, status in ((sender, 200), (other, 409)):
        (one,) = api.post("v1/jobs", {"jobs": [{"name": "tests.charge", "id": "1", **body}]}).json()["jobs"]
        assert one["status"] == status
    assert sender.put("v1/jobs/tests.charge/1", {"data": ["4112", 7]}).status_code == 409


def test_who_edits_jobs_does_not_find_out_by_trying_either(store: Store) -> None:
    api, job = Api(*ALL), "v1/jobs/tests.charge/1"
    api.put(job, {"data": {"card": "4111"}})
    store.claim("default", "w", 1, lease=30_000)
    for _ in ("running", "dead"):
        tried = [api("PATCH", job, {"data": {"card": card}}) for card in ("4111", "4112")]
        assert [answer.status_code for answer in tried] == [409, 409]
        assert tried[0].content == tried[1].content
        assert api("PATCH", job, {"data": api.get(job).json()["data"]}).status_code == 200
        api.post(f"{job}/kill")


def test_a_secret_that_was_replaced_opens_until_the_overlap_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    token, first = ApiToken.objects.issue("shop", ["read"])
    second = token.rotate(timedelta(hours=1))
    opens = lambda secret: ApiToken.objects.with_secret(secret) == token  # noqa: E731
    assert [opens(secret) for secret in (first, second)] == [True, True]
    later = timezone.now() + timedelta(hours=1)
    with monkeypatch.context() as clock:
        clock.setattr(timezone, "now", lambda: later)
        assert [opens(secret) for secret in (first, second)] == [False, True]
    third = token.rotate(timedelta(hours=1))
    assert [opens(secret) for secret in (first, second, third)] == [False, True, True]
    token.revoke()
    assert [opens(secret) for secret in (second, third)] == [False, False]


def test_who_may_only_enqueue_never_sees_arguments_results_or_errors(store: Store) -> None:
    api = Api("enqueue")
    made = api.put("v1/jobs/tests.swallow/1", {"data": ["secret-7"]})
    (held,) = store.claim("small", "w", 1, lease=1000).claims
    from django_jobs.core.values import Attempt

    store.bury(held, Attempt(1, "failed", 1, error="secret-7", traceback="secret-7"))
    answers = [made, api.put("v1/jobs/tests.swallow/1", {"data": ["secret-7"]}), api.get("v1/jobs/1")]
    answers.append(api.put("v1/jobs/tests.swallow/1", {"data": ["other"]}))

    assert [answer.status_code for answer in answers] == [201, 200, 200, 409]
    assert all(b"secret-7" not in answer.content for answer in answers)
    assert b"secret-7" in Api("read").get("v1/jobs/1").content


def test_only_https_is_answered_where_that_is_set(settings: Any) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "API": {"REQUIRE_HTTPS": True}}
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    api = Api("read")
    assert api.get("v1/queues").status_code == 403
    assert api("GET", "v1/queues", **{"X-Forwarded-Proto": "https"}).status_code == 200


def test_a_project_that_demands_login_everywhere_leaves_the_api_to_tokens(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    settings.LOGIN_URL = "/login"
    assert Api("read").get("v1/queues").status_code == 200


# -- your own authorizer -----------------------------------------------------------


def by_key(request: HttpRequest) -> Principal | None:
    """Lets one key in."""
    good = request.headers.get("X-Key") == "sesame"
    return Principal("partner", frozenset({"read", "manage"}), by_header=True) if good else None


class BySession:
    """Lets logged-in staff in."""

    def authorize(self, request: HttpRequest) -> Principal | None:
        return Principal("staff", frozenset({"manage"})) if request.user.is_authenticated else None


@pytest.mark.accepts("K16")
def test_your_own_authorizer_decides_instead_of_tokens(settings: Any) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "API": {"AUTHORIZER": f"{__name__}.by_key"}}
    assert Api("read").get("v1/queues").status_code == 401
    assert Api()("GET", "v1/queues", **{"X-Key": "sesame"}).status_code == 200
    assert Api()("POST", "v1/queues/default/pause", {}, **{"X-Key": "sesame"}).status_code == 200


def test_a_session_is_no_key_by_itself_and_needs_a_csrf_token_where_you_make_it_one(settings: Any) -> None:
    user = User.objects.create_superuser("root", password="x")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.post("/jobs/v1/queues/default/pause", {}, "application/json").status_code == 401

    settings.DJANGO_JOBS = {**SETTINGS, "API": {"AUTHORIZER": f"{__name__}.BySession"}}
    assert client.post("/jobs/v1/queues/default/pause", {}, "application/json").status_code == 403
    client.cookies["csrftoken"] = "a" * 32
    answer = client.post("/jobs/v1/queues/default/pause", {}, "application/json", headers={"X-CSRFToken": "a" * 32})
    assert answer.status_code == 200
