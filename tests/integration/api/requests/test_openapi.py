"""The OpenAPI document is true: what it allows is answered as it says, what it does not allow is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from django_jobs.api.urls import api as the_api
from django_jobs.api.urls import describe_errors
from django_jobs.models import RemoteJobType
from django_jobs.remote import forget
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import ALL, SETTINGS, Api
from tests.support.dose import dose

DOCUMENT = describe_errors(the_api.get_openapi_schema(path_prefix="/jobs/"))
CALLS = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
#: Those that can be given something wrong.
WITH_INPUT = [
    (method, path)
    for method, path in CALLS
    if {"parameters", "requestBody"} & {key for key, value in DOCUMENT["paths"][path][method.lower()].items() if value}
]
EXAMPLES = settings(
    max_examples=dose(5, long=50),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
#: Who may call is a matter of test_callers.py.  The others are said below for what we answer: 503 for a queue that is
#: full, 422 for a time before 1970.
ELSEWHERE: list[Any] = [ignored_auth, not_a_server_error, positive_data_acceptance]
#: How a request is refused that does not fit the document.
REFUSED = [400, 404, 409, 413, 422]
#: What is there: a generated name hardly ever hits it.
KNOWN: dict[str, list[dict[str, str]]] = {
    "jobs/{name}/{id}": [{"name": "tests.greet", "id": "1"}, {"name": "php.resize", "id": "2"}, {"name": "php.resize"}],
    "jobs/{id}": [{"id": "1"}],
    "job-types/{name}": [{"name": "php.resize"}, {"name": "tests.greet"}],
    "queues/{name}": [{"name": "pull"}, {"name": "default"}],
}


TYPE = {"queue": "pull", "attempts": 2, "url": "", "concurrency": 0, "delivery_strategy": "at_least_once"}


class Server:
    """The API over a store that has a job that waits and one that is claimed."""

    def __init__(self, store: Store) -> None:
        self.store, self.api, self.token = store, Api(*ALL), 0
        config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSED}}})
        self.schema = schemathesis.openapi.from_dict(DOCUMENT, config=config)
        self.schema.app = get_wsgi_application()

    def prepare(self) -> None:
        """Put back what the example before may have ended, changed or removed."""
        RemoteJobType.objects.update_or_create(TYPE, name="php.resize")
        forget()
        for queue, name, id in (("default", "tests.greet", "1"), ("pull", "php.resize", "2")):
            self.store.resume(queue)
            self.store.kill(queue, [id], "next")
            self.store.release_worker(queue, f"remote:{id}")  # its attempt has ended
            self.store.delete(queue, [id])
            self.api.put(f"v1/jobs/{name}/{id}", {"data": ["Ada"]})
        ((claim,), *_) = self.store.claim("pull", "remote:2", 1, lease=60_000)
        self.token = claim.token

    def cases(self, method: str, path: str, mode: GenerationMode) -> st.SearchStrategy[Case]:
        operation = self.schema[path][method]
        known = next((names for part, names in KNOWN.items() if path.startswith(f"/jobs/v1/{part}")), [])
        chosen = [operation.as_strategy(mode, path_parameters=names) for names in known]
        return st.one_of(*chosen, operation.as_strategy(mode))

    def answer(self, case: Case) -> Response:
        """Send it with a token that may do everything, and hold the answer against the document."""
        self.prepare()
        case.headers["Authorization"] = self.api.headers["Authorization"]
        body = case.body if isinstance(case.body, dict) else {}
        if type(body.get("wait")) in {int, float} and 0 < body["wait"] <= 20:
            body["wait"] = 0  # to wait for work is tested elsewhere
        for many in (body.get("extensions"), body.get("reports")):
            for item in many if isinstance(many, list) and case.meta.generation.mode.is_positive else ():
                item["token"] = self.token
        if isinstance(case.query, dict) and "wait" in case.query and case.meta.generation.mode.is_positive:
            case.query["wait"] = 0
        if case.method == "PUT" and "id" in body and case.meta.generation.mode.is_positive:
            body["id"] = unquote(case.path_parameters["id"])  # it is quoted for the address
        if "status" in body or "token" in body:
            body["token"] = self.token if case.meta.generation.mode.is_positive else body.get("token")
        return case.call_and_validate(excluded_checks=ELSEWHERE)


@pytest.fixture
def server(make_redis_store: Callable[..., Store], settings: Any) -> Server:
    settings.DJANGO_JOBS = SETTINGS
    store = make_redis_store(idempotency=0)  # each example begins with the same ids
    use_store(store)
    return Server(store)


def test_each_operation_has_a_word_of_its_own() -> None:
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)
    assert [id for id in ids if not id.replace("_", "").isalpha() or "django" in id] == []


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_what_the_document_allows_is_answered_as_it_says(server: Server, method: str, path: str) -> None:
    @EXAMPLES
    @given(case=server.cases(method, path, GenerationMode.POSITIVE))
    def ask(case: Case) -> None:
        response = server.answer(case)
        said = f"{response.text}\n{case.as_curl_command()}"
        assert response.status_code < 500 or " is full" in response.text, said
        assert "The request is not valid" not in response.text, said

    ask()


@pytest.mark.parametrize(("method", "path"), WITH_INPUT)
def test_what_the_document_does_not_allow_is_refused(server: Server, method: str, path: str) -> None:
    @EXAMPLES
    @given(case=server.cases(method, path, GenerationMode.NEGATIVE))
    def ask(case: Case) -> None:
        assert server.answer(case).status_code < 500, case.as_curl_command()

    ask()
