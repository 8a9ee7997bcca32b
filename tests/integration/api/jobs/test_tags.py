"""Tags over HTTP: given with a new job, shown with each, and a filter of the list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_jobs.stores.redis import Store
from tests.integration.api.conftest import Api
from tests.integration.api.jobs.test_listing import walk


def test_a_new_job_has_the_tags_that_are_sent(api: Api) -> None:
    body = {"data": ["Ada"], "tags": ["customer:42", "billing", "billing"]}
    made = api.put("v1/jobs/tests.greet/a", body)
    assert (made.status_code, made.json()["tags"]) == (201, ["customer:42", "billing"])
    assert api.get("v1/jobs/tests.greet/a").json()["tags"] == ["customer:42", "billing"]
    assert api.put("v1/jobs/tests.greet/b", {"data": ["Ada"]}).json()["tags"] == []


def test_the_same_call_with_other_tags_is_another_call(api: Api) -> None:
    body = {"data": ["Ada"], "tags": ["a", "b"]}
    statuses = [
        api.put("v1/jobs/tests.greet/a", {**body, "tags": tags}).status_code
        for tags in (["a", "b"], ["b", "a"], ["a"], [])
    ]
    assert statuses == [201, 200, 409, 409]


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ("billing", "use a tuple or a list"),
        (["a b"], "the tag 'a b' cannot be used"),
        ([""], "a tag is empty"),
        ([7], "the tag 7 is not text"),
        (["x" * 65], "at most 64"),
        ([f"t{n}" for n in range(9)], "at most 8"),
    ],
)
def test_what_is_no_tag_is_refused(api: Api, tags: Any, said: str) -> None:
    answer = api.put("v1/jobs/tests.greet/a", {"data": ["Ada"], "tags": tags})
    assert 400 <= answer.status_code < 500
    assert said in json.dumps(answer.json(), ensure_ascii=False)
    assert api.get("v1/jobs/tests.greet/a").status_code == 404


def test_many_at_once_have_theirs(api: Api) -> None:
    items = [{"name": "tests.greet", "id": id, "data": ["Ada"], "tags": [id]} for id in ("a", "b")]
    answers = api.post("v1/jobs", {"jobs": items}).json()["jobs"]
    assert [each["job"]["tags"] for each in answers] == [["a"], ["b"]]


def test_a_list_has_only_jobs_with_the_tag(api: Api) -> None:
    for n in range(30):
        tags = ["third"] if n % 3 == 0 else ["third2"]
        api.put(f"v1/jobs/tests.greet/j{n:02}", {"data": ["Ada"], "tags": tags})
    assert sorted(walk(api, "state=queued&tag=third&limit=4")) == [f"j{n:02}" for n in range(0, 30, 3)]
    assert walk(api, "state=queued&tag=thir") == []
    assert walk(api, "state=dead&tag=third") == []


def test_dead_jobs_with_a_tag_are_found_by_the_index(api: Api, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(30):
        tags = ["third"] if n % 3 == 0 else []
        api.put(f"v1/jobs/tests.greet/j{n:02}", {"data": ["Ada"], "tags": tags})
    store.kill("default", [f"j{n:02}" for n in range(30)], "a test")
    asked, real = list[Any](), type(store).listed

    def listed(store: Store, *args: Any, **options: Any) -> Any:
        asked.append(options["groups"])
        return real(store, *args, **options)

    monkeypatch.setattr(type(store), "listed", listed)
    assert sorted(walk(api, "state=dead&tag=third&limit=4")) == [f"j{n:02}" for n in range(0, 30, 3)]
    assert walk(api, "state=dead&tag=third&name=tests.other") == []
    assert walk(api, "state=dead&tag=none") == []
    assert len(asked) > 3
    assert None not in asked


def test_a_replay_has_the_tags_of_the_job(api: Api) -> None:
    api.put("v1/jobs/tests.greet/a", {"data": ["Ada"], "tags": ["customer:42"]})
    assert api.post("v1/jobs/tests.greet/a/replay", {"id": "b"}).json()["tags"] == ["customer:42"]
