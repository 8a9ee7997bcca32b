"""`runworkers --drain`: what waits when it starts is run, what comes later is left, and it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site
from tests.support.pools import ROOT, Pool
from tests.support.waiting import PATIENCE

__all__ = ["site"]


def end_of_drain(pool: Pool, seconds: float = PATIENCE) -> str:
    assert pool.process.wait(seconds) == 0, pool.text()
    return pool.text()


@pytest.mark.accepts("O07")
def test_a_drain_runs_what_waits_takes_nothing_later_and_ends(site: WorkerSite, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = site.put("waits_for", str(gate), priority=100)
    now = [site.put("work") for _ in range(150)] + [site.put("awork", 5, priority=-100) for _ in range(20)]
    alone, scheduled = site.put("work", timeout=60_000), site.put("work", run_in=600_000)

    pool = site.pool("--drain", processes=2)
    site.wait(first, State.RUNNING)
    later = [site.put("work", priority=50) for _ in range(20)] + [site.put("work", timeout=60_000)]
    gate.touch()
    end_of_drain(pool)

    assert {site.info(id).state for id in [first, alone, *now]} == {State.SUCCEEDED}
    assert {site.info(id).state for id in later} == {State.QUEUED}
    assert site.info(scheduled).state is State.SCHEDULED


def test_jobs_that_enqueue_further_jobs_do_not_keep_it_going(site: WorkerSite) -> None:
    id = site.put("goes_on")
    end_of_drain(site.pool("--drain"))
    assert site.info(id).state is State.SUCCEEDED
    assert site.store.stats(["default"])[0].counts["queued"] == 1


def test_two_that_drain_share_the_work(site: WorkerSite) -> None:
    ids = [site.put("work", 5) for _ in range(200)]
    for pool in [site.pool("--drain"), site.pool("--drain")]:
        end_of_drain(pool)
    assert {site.info(id).state for id in ids} == {State.SUCCEEDED}
    assert len([event for event in site.ledger.read() if event.kind == "start"]) == len(ids)


def test_a_job_whose_process_dies_is_run_again_by_the_same_drain(site: WorkerSite, tmp_path: Path) -> None:
    id = site.put("dies_once", str(tmp_path / "flag"))
    beside = [site.put("work") for _ in range(20)]
    end_of_drain(site.pool("--drain"))
    assert {site.info(each).state for each in [id, *beside]} == {State.SUCCEEDED}


def test_what_is_paused_fails_or_is_not_known_does_not_hold_it(site: WorkerSite) -> None:
    failing, unknown, closed = site.put("fails_once"), site.put("no.such.job"), site.put("who")
    site.store.pause("default", name="who")
    end_of_drain(site.pool("--drain"))
    assert [site.info(id).state for id in (unknown, closed)] == [State.BLOCKED, State.BLOCKED]
    left = site.info(failing)
    assert (left.failures, left.state in {State.RETRY, State.QUEUED}) == (1, True), "its second attempt comes later"


def test_a_limit_that_is_held_elsewhere_does_not_hold_it(site: WorkerSite) -> None:
    held, waiting = (site.put("turn", limit_key="turn", limit=1) for _ in range(2))
    assert [claim.id for claim in site.store.claim("default", "remote:elsewhere", 2, lease=60_000).claims] == [held]
    end_of_drain(site.pool("--drain"))
    assert site.info(waiting).state is State.BLOCKED


def test_a_paused_queue_is_left_and_an_empty_one_ends_at_once(site: WorkerSite) -> None:
    held = site.put("work")
    site.store.pause("default", reason="maintenance")
    assert "No jobs are waiting." in end_of_drain(site.pool("--drain", "--verbosity", "1"))
    assert site.info(held).state is State.QUEUED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--drain", "--burst"], "not allowed with"), (["--drain", "--reload"], "use only one of them")],
)
def test_what_contradicts_it_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    where = WorkerSite(tmp_path, f"embedded:{tmp_path / 'store'}")
    ran = subprocess.run(
        [sys.executable, "-m", "django", "runworkers", *arguments],
        env=where.environment(), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert words in ran.stderr
