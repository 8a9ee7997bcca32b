"""The benchmark runs, counts every job and measures; here with few jobs, in full by `make bench`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import redis

from tests.support.backends.servers import running_redis

psutil = pytest.importorskip("psutil", reason="measures memory")
pytestmark = pytest.mark.redis

JOBS = 5_000
#: `drain` sends so many more, before its clock starts.
WARM_UP = 200
CHILD_MB = 62
#: Something else may use the machine in one of two moments that are compared.
ROUNDS = 4


@pytest.fixture
def own_server() -> Iterator[str]:
    """A Redis that the benchmark may empty."""
    with running_redis() as url:
        yield url


@pytest.fixture
def measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that measures, with a counter of this test's own."""
    from bench import measures, running
    from bench.counter import Counter

    mine = Counter(tmp_path / "counter")
    for module in (measures, running):
        monkeypatch.setattr(module, "counter", mine)
    return measures


@pytest.mark.accepts("G03")
def test_it_is_a_hundred_thousand_jobs_over_five_queues_that_only_count() -> None:
    from bench.__main__ import JOBS as sent
    from bench.subjects.base import QUEUES

    assert sent["ours"] == 100_000
    assert len(QUEUES) == 5


@pytest.mark.timed
@pytest.mark.accepts("G03", "K27", "K03", "G02")
def test_every_job_counts_once_a_child_stays_small_and_is_faster_than_single_writes(
    own_server: str, measures: ModuleType, tmp_path: Path
) -> None:
    from bench.running import environment
    from bench.subjects.ours import SUBJECT

    rates = []
    for _ in range(ROUNDS):
        numbers = measures.drain("ours", SUBJECT, JOBS, 1, environment(own_server, str(tmp_path / "counter")))

        assert measures.counter.total() == JOBS + WARM_UP
        with redis.Redis.from_url(own_server) as client:
            assert client.hlen("{jobs}:workers") == 0, "the workers ended in order"
        assert numbers["child MB"] <= CHILD_MB
        assert numbers["drain"] * 60 > 50_000, "jobs a minute"
        # Both on this machine, one after the other: what it can do cancels out, batches remain.
        rates.append((numbers["drain"], measures.bare(own_server)["SET loop"]))
        if rates[-1][0] > rates[-1][1]:
            return
    pytest.fail(f"in every round a job cost more than one write of a value, each second: {rates}")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["memory", "--jobs", "300"], "dead, no traceback"),
        (["workers", "--queues", "2", "--workers", "3"], "heartbeats of all"),
        (["drain", "--jobs", "600"], "bare claim + complete"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_jobs_workers_and_queues_cost_is_measured(words: list[str], found: str) -> None:
    done = subprocess.run([sys.executable, "-m", "bench.scale", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert found in done.stdout
