"""Random graphs and batches while processes are killed: every step runs, in order, callbacks last."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from time import monotonic

import pytest

from django_jobs.workflows import reading
from tests.support.checker import repeated_for_no_reason
from tests.support.dose import dose
from tests.support.faults.chaos import Chaos
from tests.support.ledger import Event
from tests.support.pools import ROOT, Site
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.timeout(dose(600, long=3600))]

WORKFLOWS, STEPS = dose(30, long=2_000), 10
BATCHES, JOBS = dose(10, long=100), 20
KILLS = dose(6, long=100)
#: ms of a job.  Among 100 kills, the others must not be done before the pools that were killed work again.
MS = dose(5, long=100)
QUEUES = ("default", "other")


@pytest.mark.redis
def test_every_step_runs_and_the_callbacks_run_last(site: Site) -> None:
    survive(site)


def survive(site: Site) -> None:
    """Enqueue, kill, wait for the end of all, and judge."""
    began = monotonic()
    site.jobs_settings |= {"QUEUES": {queue: {} for queue in QUEUES}, "LEASE": dose(4, long=10)}
    producers = [start(site, "graph", WORKFLOWS, STEPS), start(site, "batch", BATCHES, JOBS)]
    storm = Chaos(site, seed=21)
    graphs, batches = ([id.decode() for id in each.communicate(timeout=600)[0].split()] for each in producers)
    jobs = WORKFLOWS * STEPS + BATCHES * (JOBS + 2)
    while storm.total < KILLS:
        target = (storm.total + 1) * jobs * 9 // 10 // KILLS
        wait_until(lambda t=target: site.ledger.count("end") >= t, f"{target} ends", seconds=300, every=0.05)
        # A pool that has not begun to work loses nothing by its death.
        wait_until(lambda: all_work(site, storm) or site.ledger.count("end") > jobs * 19 // 20, "all work", seconds=60)
        storm.strike()
    wait_for_ends(site, [*graphs, *batches])
    for queue in QUEUES:
        site.wait_drained(queue=queue)
    storm.end()
    events = site.ledger.read()
    lost, early, callbacks = compare(site, events, graphs, batches)
    doubled = repeated_for_no_reason(events, site.deaths)
    starts = sum(event.kind == "start" for event in events)
    print(
        f"\n{site.store_setting.partition(':')[0]}: workflows {len(graphs)} of {STEPS} steps, batches {len(batches)} "
        f"of {JOBS} jobs, steps and jobs {jobs}, starts {starts}, kills {storm.total}, lost {len(lost)}, "
        f"doubled {len(doubled)}, out of order {len(early)}, callbacks {callbacks}, {monotonic() - began:.0f} s"
    )
    assert (len(graphs), len(batches)) == (WORKFLOWS, BATCHES)
    assert (lost, doubled, early, callbacks) == ([], set(), [], 2 * BATCHES)
    assert site.store.unread(list(QUEUES)) == []


def all_work(site: Site, storm: Chaos) -> bool:
    """Has every pool a living child that has begun a job?"""
    began = {event.pid for event in site.ledger.read() if event.kind == "start"}
    return all(began.intersection(pool.children()) for pool in storm.pools)


def start(site: Site, kind: str, number: int, length: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.survival.project.flows", kind, str(number), str(length), str(MS)],
        env=site.environment(),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=die_with_parent,
    )


def wait_for_ends(site: Site, ids: list[str]) -> None:
    left = set(ids)

    def all_have_ended() -> bool:
        infos = [reading.read(site.store, id) for id in left]
        left.difference_update(info.id for info in infos if info is not None and info.ended_at is not None)
        return not left

    wait_until(all_have_ended, "all workflows have ended", seconds=dose(120, long=900), every=0.2)


def compare(site: Site, events: list[Event], graphs: list[str], batches: list[str]) -> tuple[list[str], list[str], int]:
    """Return the jobs that never ended, those that started before a step before them had ended, and how many callbacks
    ran."""
    started: dict[str, int] = {}
    ended: dict[str, int] = {}
    for event in events:
        if event.kind in ("start", "end"):
            (started if event.kind == "start" else ended).setdefault(event.id, event.at)
    must: dict[str, list[str]] = defaultdict(list)
    for id in graphs:
        assert reading.read(site.store, id).state == "succeeded", reading.read(site.store, id)
        must |= {step.job_id: [f"{id}.{n}" for n in step.after] for step in reading.steps(site.store, id)}
    for id in batches:
        assert reading.read(site.store, id).state == "succeeded", reading.read(site.store, id)
        members = [step.job_id for step in reading.jobs_of_batch(site.store, id)]
        must |= {member: [] for member in members} | {f"{id}.{name}": members for name in ("on_success", "on_complete")}
    lost = [id for id in must if id not in ended]
    early = [id for id, before in must.items() if any(ended.get(each, 0) >= started.get(id, 0) for each in before)]
    return lost, early, sum(id.rpartition(".")[2] in ("on_success", "on_complete") for id in started)
