"""Jobs with a time limit are claimed in batches: a job that is ended, or that ends its process, is charged alone."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.core.values import Controls, Job, JobInfo, NewJob, Options, State
from django_jobs.serialization.record import encode
from tests.integration.workers import WorkerSite, site
from tests.support.ledger import Event
from tests.support.pace import Pace
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

__all__ = ["site"]

QUICK = ("work", 0)


def put(site: WorkerSite, *jobs: tuple[Any, ...], limit: int = 60_000, **options: Any) -> list[str]:
    """Enqueue these (name, argument …) with a time limit (ms), in this order and in one call."""
    made, controls = [], Controls(alone=True)
    for name, *args in jobs:
        text = json.dumps([args, {}]).encode()
        made.append(
            Job(uuid4().hex, "default", name, text, site.store.now(), Options(timeout=limit, **options), controls)
        )
    site.store.enqueue("default", [NewJob(job.id, encode(job), controls) for job in made])
    return [job.id for job in made]


def starts(site: WorkerSite) -> Counter[str]:
    return Counter(event.id for event in site.ledger.read() if event.kind == "start")


def started(site: WorkerSite, id: str) -> Event:
    wait_until(lambda: id in starts(site), f"{id} has begun", seconds=20)
    return next(event for event in site.ledger.read() if event.kind == "start" and event.id == id)


def infos(site: WorkerSite, ids: Sequence[str]) -> list[JobInfo]:
    return [
        info for first in range(0, len(ids), 500) for info in site.store.get_many("default", ids[first : first + 500])
    ]


def wait_for(site: WorkerSite, ids: Sequence[str], seconds: float = 60) -> list[JobInfo]:
    """Until all of them have succeeded."""

    def have_ended() -> bool:
        return all(info.state is State.SUCCEEDED for info in infos(site, ids))

    wait_until(have_ended, "all have succeeded", seconds=seconds, every=0.1)
    return infos(site, ids)


def warm_up(site: WorkerSite) -> None:
    """Until such jobs are known to be short, so that many are claimed at once."""
    wait_for(site, put(site, *[QUICK] * 300))


@pytest.mark.parametrize("how", ["gil", "sleep"])
def test_only_the_job_that_is_over_its_time_is_charged(site: WorkerSite, pace: Pace, how: str) -> None:
    site.pool()
    warm_up(site)
    before, after = [("add", n, 1) for n in range(20)], [QUICK] * 40
    ids = put(site, *before, ("endless", how), *after, limit=1000, max_attempts=1)
    slow = ids.pop(len(before))
    began = started(site, slow)
    if how == "gil":
        later = Counter(info.state for info in infos(site, ids[len(before) :]))
        # How many are in a batch follows from how long such jobs took.
        assert later[State.RUNNING] > 0, f"they are in its batch, and wait for its process: {later}"

    (attempt,) = site.wait(slow, State.DEAD, seconds=8).attempts
    pace.within(began.at / 1e9, 1 + 2, "the time limit, and 2 s")
    assert attempt.outcome == "timeout"
    for info in wait_for(site, ids):
        assert (info.failures, info.crashes, info.attempts) == (0, 0, ())
    assert [info.result for info in infos(site, ids[: len(before)])] == [b"%d" % (n + 1) for n in range(20)]
    assert {starts(site)[id] for id in [*ids[len(before) :], slow]} == {1}, "no job runs twice"


def test_what_has_returned_is_recorded_though_the_next_job_ends_its_process(site: WorkerSite) -> None:
    """Also a result for which the shared memory has no room."""
    pool = site.pool()
    warm_up(site)
    ids = put(site, ("work", 0), ("long_text", 90_000), ("work", 0), ("poison", "segfault"), *[QUICK] * 20)
    poison = ids.pop(3)

    info = site.wait(poison, State.DEAD, seconds=20)
    assert [attempt.outcome for attempt in info.attempts] == ["worker_lost"] * 3
    found = wait_for(site, ids)
    assert all((info.failures, info.crashes, info.attempts) == (0, 0, ()) for info in found)
    assert len(site.info(ids[1]).result or b"") == 90_002
    assert {starts(site)[id] for id in ids} == {1}, "no job runs twice"
    assert starts(site)[poison] == 3
    assert pool.stop() == 0


def test_a_time_limit_counts_from_the_start_of_its_job_wherever_it_is_in_the_batch(site: WorkerSite) -> None:
    site.pool()
    warm_up(site)
    ids = put(site, *[("holds_gil", 0.3)] * 12, limit=2500, max_attempts=1)
    assert all(info.attempts == () for info in wait_for(site, ids))


def test_jobs_behind_a_long_one_run_elsewhere_at_once(site: WorkerSite, pace: Pace) -> None:
    site.pool(threads=4)
    warm_up(site)
    long, *others = put(site, ("deaf",), *[QUICK] * 100)
    began = started(site, long).at / 1e9
    wait_for(site, others)
    pace.within(began, 4, "handed back within 250 ms, and a process that has to be started")
    assert site.info(long).state is State.RUNNING


def test_whatever_is_killed_a_child_charges_one_job_at_most(site: WorkerSite) -> None:
    """A job starts as often as it crashed, and once more."""
    site.jobs_settings["LEASE"] = 60  # a lease that ends on a crowded machine is a crash too
    pool, rng, kills = site.pool(processes=2), random.Random(14), 6
    ids = put(site, *[("work", rng.choice([0, 0, 1, 5])) for _ in range(1000)], limit=30_000)
    for n in range(kills):
        target = (n + 1) * 1000 // (kills + 2)
        wait_until(lambda t=target: site.ledger.count("end") >= t, f"{target} have ended", seconds=60)
        send_signal(site.ledger.read()[-1].pid, signal.SIGKILL)
    found = {info.id: info for info in wait_for(site, ids)}
    assert sum(info.crashes for info in found.values()) <= kills
    again = {id: n - 1 for id, n in starts(site).items() if n > 1}
    assert all(found[id].crashes == n for id, n in again.items()), again
    assert pool.stop() == 0


def test_a_child_that_dies_between_a_claim_and_its_note_charges_no_job(site: WorkerSite, tmp_path: Path) -> None:
    """It was once charged to the whole batch."""
    site.jobs_settings["LEASE"] = 60
    ids = put(site, *[QUICK] * 200, limit=30_000)
    site.pool(processes=1, crash=f"claim.after_reply:3:{tmp_path / 'died'}")
    found = wait_for(site, ids)
    assert (tmp_path / "died").exists()
    assert sum(info.crashes for info in found) == 0
    assert set(starts(site).values()) == {1}


def test_many_jobs_with_various_limits(site: WorkerSite, pace: Pace) -> None:
    """Each keeps its own: those that are longer than their limit are ended, and only those."""
    site.jobs_settings["LEASE"] = 60  # a job whose lease ends starts again
    site.pool(processes=2, threads=4)
    warm_up(site)
    rng, short, long = random.Random(7), list[str](), dict[str, int]()
    for n in range(60):
        if n % 6 == 0:
            (id,) = put(
                site, ("endless", rng.choice(["sleep", "gil", "swallow"])), limit=(limit := rng.choice([300, 700]))
            )
            long[id] = limit
        else:
            short += put(site, ("work", rng.choice([0, 2, 20])), limit=rng.choice([10_000, 20_000]))
    assert all(info.attempts == () for info in wait_for(site, short))
    for id, limit in long.items():
        info = site.wait(id, State.DEAD, State.RETRY, seconds=30)
        assert [attempt.outcome for attempt in info.attempts] == ["timeout"]
        pace.took(info.attempts[0].run_ms / 1000, limit / 1000 + 2, "the limit, and 2 s")
        assert info.attempts[0].run_ms >= limit
    assert max(starts(site).values()) == 1


@pytest.mark.timed
def test_jobs_that_compute_get_as_many_processes_as_the_worker_has(site: WorkerSite) -> None:
    pool = site.pool(processes=1, threads=8)
    wait_for(site, ids := put(site, *[("computes", 1)] * 900))
    assert len({event.pid for event in site.ledger.read()}) <= 2, "one, and perhaps one for a job that seemed long"
    assert len(ids) == 900
    assert pool.stop() == 0
