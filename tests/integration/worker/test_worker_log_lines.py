"""What real workers write into their log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.workers import WorkerSite
from tests.support.backends.redis_process import RedisServer
from tests.support.pools import Pool
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of this test's own, to be taken away."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.close()


def by_process(pool: Pool, text: str) -> Counter[str]:
    """process id → in how many of its lines that stands."""
    return Counter(line.split()[2] for line in pool.text().splitlines() if text in line)


@pytest.mark.redis
def test_a_store_that_comes_after_the_worker_is_not_said_to_be_back(server: RedisServer, tmp_path: Path) -> None:
    site = WorkerSite(tmp_path, server.url, NAMESPACE=f"w{uuid4().hex[:10]}", LEASE=30)
    server.shutdown()
    try:
        pool = site.pool()
        wait_until(lambda: by_process(pool, "does not answer")[str(pool.pid)], "the parent notices", seconds=30)
        server.start()
        wait_until(lambda: by_process(pool, "answers, and work begins")[str(pool.pid)], "it begins", seconds=30)
        site.wait(site.put("work"), seconds=30)
        assert pool.stop() == 0
        said = [line for line in pool.text().splitlines() if f" {pool.pid} " in line and "the store answers" in line]
        assert "again" not in said[0]
    finally:
        site.close()


@pytest.mark.redis
def test_each_process_says_once_that_the_store_is_away_and_once_that_it_is_back(
    server: RedisServer, tmp_path: Path
) -> None:
    site = WorkerSite(tmp_path, server.url, NAMESPACE=f"w{uuid4().hex[:10]}", LEASE=30)
    try:
        pool = site.pool(processes=2, threads=2)
        running = [site.put("work", 600) for _ in range(4)]
        site.ledger.wait("start", 4, seconds=10)
        everybody = {str(pid) for pid in (pool.pid, *pool.children())}
        server.shutdown()
        # A process that did not notice could still have a call on its way that fails when the others are back.
        wait_until(lambda: everybody <= set(by_process(pool, "does not answer")), "all of them notice", seconds=30)
        server.start()
        for id in running:
            site.wait(id, seconds=30)
        wait_until(
            lambda: by_process(pool, "the store answers again") == by_process(pool, "does not answer"),
            "all are back",
        )
        said = by_process(pool, "does not answer")
        assert set(said.values()) == {1}
        assert len(said) > 1
        assert "may or may not exist" not in pool.text()
        assert pool.stop() == 0
    finally:
        site.close()
