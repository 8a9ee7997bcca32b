"""How many failed jobs have each tag, over HTTP, exactly and without reading a job."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.core.values import Attempt, Claim
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import Api


@pytest.fixture
def failed(api: Api, store: Store) -> None:
    """Three dead jobs of one customer, one of another, and one that waits for a retry."""
    for id, tags in (("1", ["vip", "customer:42"]), ("2", ["customer:42"]), ("3", ["customer:42"]), ("4", ["c:7"])):
        api.put(f"v1/jobs/tests.greet/{id}", {"data": ["Ada"], "tags": tags})
        (claim,) = store.claim("default", "w", 1, lease=60_000).claims
        store.bury(claim, Attempt(1, "failed", 0, error="no"))
    api.put("v1/jobs/tests.greet/5", {"data": ["Ada"], "tags": ["later"]})
    claim: Claim = store.claim("default", "w", 1, lease=60_000).claims[0]
    store.retry(claim, Attempt(1, "failed", 0, error="no"), 60_000)


def counts(answer: Any) -> list[tuple[str, int]]:
    return [(each["tag"], each["jobs"]) for each in answer.json()["tags"]]


def test_failed_jobs_are_counted_by_tag_the_most_frequent_first(api: Api, failed: None) -> None:
    answer = api.get("v1/tags")
    assert counts(answer) == [("customer:42", 3), ("c:7", 1), ("vip", 1)]
    assert (answer.json()["more_tags"], answer.json()["uncounted_jobs"]) == (0, 0)
    assert answer.json()["tags"][0]["or_more"] is False
    assert counts(api.get("v1/tags?state=retry&queue=default")) == [("later", 1)]
    first = api.get("v1/tags?limit=1")
    assert (counts(first), first.json()["more_tags"]) == ([("customer:42", 3)], 2)


def test_other_states_and_queues_have_no_counts(api: Api, failed: None) -> None:
    assert api.get("v1/tags?state=succeeded").status_code == 422
    assert api.get("v1/tags?queue=nowhere").status_code == 404
    assert counts(api.get("v1/tags?queue=small")) == []


def test_a_token_for_some_job_types_does_not_see_the_tags_of_others(api: Api, failed: None) -> None:
    refused = Api("read", jobs=("tests.greet",)).get("v1/tags")
    assert (refused.status_code, refused.json()["type"].rsplit(":")[-1]) == (403, "job-not-allowed")
