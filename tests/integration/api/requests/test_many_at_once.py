"""Requests at the same moment, over a real server on real threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from django_jobs.stores.redis import Store
from tests.integration.api.conftest import together


@pytest.fixture
def store(shared_store: Store) -> Store:
    """The stores that several threads share."""
    return shared_store


@pytest.mark.accepts("K06", "K08")
def test_ten_puts_of_one_id_make_one_job_one_201_and_nine_200(ask: Callable[..., Any], store: Store) -> None:
    for round in range(5):
        answers = together(lambda _: ask("PUT", f"v1/jobs/tests.greet/order-{round}", {"data": ["Ada"]}))  # noqa: B023
        assert Counter(status for status, _ in answers) == {201: 1, 200: 9}
        assert {job["id"] for _, job in answers} == {f"order-{round}"}
    assert store.stats(["default"])[0].counts["queued"] == 5


def test_ten_puts_of_one_id_with_other_data_make_one_job(ask: Callable[..., Any], store: Store) -> None:
    answers = together(lambda n: ask("PUT", "v1/jobs/tests.greet/order", {"data": [str(n)]}))
    assert Counter(status for status, _ in answers) == {201: 1, 409: 9}
    assert store.stats(["default"])[0].counts["queued"] == 1


@pytest.mark.accepts("K02", "K29")
def test_ten_workers_claim_every_job_once_and_reports_of_two_kinds_end_it_once(
    ask: Callable[..., Any], store: Store
) -> None:
    ask("POST", "v1/job-types", {"name": "php.resize", "queue": "pull"})
    for number in range(30):
        ask("PUT", f"v1/jobs/php.resize/{number}")
    claimed = [
        job
        for _, answer in together(lambda _: ask("POST", "v1/queues/pull/claim", {"limit": 3}))
        for job in answer["jobs"]
    ]
    assert sorted(int(job["id"]) for job in claimed) == list(range(30))

    job = claimed[0]
    ends = together(
        lambda n: ask(
            "POST", f"v1/jobs/php.resize/{job['id']}", {"status": ["succeeded", "failed"][n % 2], "token": job["token"]}
        )
    )
    assert Counter(status for status, _ in ends) == {200: 5, 409: 5}
    stats = store.stats(["pull"])[0]
    assert stats.counts["running"] == 29
    assert stats.counts["succeeded"] + stats.counts["retry"] == 1
