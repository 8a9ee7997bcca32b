"""EAGER: a job that ran where its call came in is there for the calls that follow."""

from __future__ import annotations

from typing import Any

from tests.integration.api import work
from tests.integration.api.conftest import ALL, SETTINGS, Api

PATH, BODY = "v1/jobs/tests.greet/order-7", {"data": {"name": "Ada"}}


def test_an_equal_call_answers_with_the_job_that_ran_and_another_is_refused(settings: Any) -> None:
    settings.DJANGO_JOBS = {key: value for key, value in SETTINGS.items() if key != "ARCHIVE"} | {
        "STORE": "redis://nowhere.invalid:1/0",
        "EAGER": True,
    }
    api = Api(*ALL)
    first, again = api.put(PATH, BODY), api.put(PATH, BODY)
    assert (first.status_code, again.status_code, work.ran) == (201, 200, [("Ada", "Hello")])
    assert again.json() == api.get(PATH).json()
    assert (again.json()["state"], again.json()["result"]) == ("succeeded", "Hello, Ada")
    assert api.put(PATH, {"data": {"name": "Bo"}}).status_code == 409

    item = {"name": "tests.greet", "id": "order-7", **BODY}
    many = api.post("v1/jobs", {"jobs": [item, item | {"data": {"name": "Bo"}}]}).json()["jobs"]
    assert [each["status"] for each in many] == [200, 409]
    assert many[0]["job"]["result"] == "Hello, Ada"
    assert work.ran == [("Ada", "Hello")]
