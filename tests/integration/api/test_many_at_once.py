"""Requests at the same moment, over a real server on real threads."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from django_jobs.models import ApiToken
from django_jobs.stores import use_store
from django_jobs.stores.contract.store import Store
from tests.integration.api.conftest import ALL, SETTINGS

TOGETHER = 10


@pytest.fixture(params=["embedded", pytest.param("redis", marks=pytest.mark.redis)])
def store(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Store:
    """The stores that several threads share as servers do."""
    settings.DJANGO_JOBS = SETTINGS
    if request.param == "redis":
        store: Store = request.getfixturevalue("make_redis_store")(archive=True)
    else:
        store = request.getfixturevalue("make_sqlite_store")(tmp_path / "jobs.sqlite3", archive=True)
    use_store(store)
    return store


@pytest.fixture
def ask(transactional_db: None, store: Store, live_server: Any) -> Callable[..., tuple[int, Any]]:
    """Send one request; returns status and document."""
    _, secret = ApiToken.objects.issue("many", ALL)

    def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"{live_server.url}/jobs/{path}",
            json.dumps(body if body is not None else {}).encode() if method != "GET" else None,
            {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return ask


def together(call: Callable[[int], tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Call it on TOGETHER threads, all let go at once."""
    barrier = Barrier(TOGETHER)

    def one(number: int) -> tuple[int, Any]:
        barrier.wait(60)
        return call(number)

    with ThreadPoolExecutor(TOGETHER) as threads:
        return list(threads.map(one, range(TOGETHER)))


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
def test_ten_workers_claim_every_job_once_and_ten_reports_end_it_once(ask: Callable[..., Any], store: Store) -> None:
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
    assert Counter(status for status, _ in ends) == {200: 1, 409: 9}
    stats = store.stats(["pull"])[0]
    assert stats.counts["running"] == 29
    assert stats.counts["succeeded"] + stats.counts["retry"] == 1
