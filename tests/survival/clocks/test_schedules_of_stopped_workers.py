"""Periodic jobs while the workers that look after them are stopped and killed: there is no leader to wait for."""

from __future__ import annotations

import signal
from collections import defaultdict
from itertools import pairwise
from time import monotonic

import pytest

from django_jobs.core.values import State
from django_jobs.serialization.record import decode
from tests.support.dose import dose
from tests.support.pace import Pace
from tests.support.pools import Pool, Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis]

Q = "default"
#: All of them run at the same moment: each second.
ENTRIES = [f"entry-{n}" for n in range(5)]
#: ms before and after the second in which they run.
AROUND = dose((-15, 10), long=(-60, -15, 0, 10))


@pytest.fixture
def fleet(site: Site) -> list[Pool]:
    site.jobs_settings["SCHEDULES"] = {name: {"job": "work", "cron": "* * * * * *"} for name in ENTRIES}
    return [site.pool(periodic=True) for _ in range(2)]


def runs(site: Site) -> dict[str, dict[int, int]]:
    """Schedule → scheduled time → when it was enqueued (ms).  A job that moves on meanwhile is seen twice."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for state in (State.QUEUED, State.RUNNING, State.RETRY, State.SUCCEEDED):
        for info in site.store.page(Q, state, 0, 100_000):
            _, _, name, at, *_ = info.id.split(":")
            found[name][int(at)] = decode(info.id, Q, info.record).enqueued_at
    return found


def latest(site: Site) -> int:
    return min((max(found, default=0) for found in runs(site).values()), default=0)


@pytest.mark.timed
@pytest.mark.accepts("G10", "G76")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_every_entry_runs_once_and_on_time_though_a_worker_is_stopped_at_the_second_of_firing(
    site: Site, fleet: list[Pool], how: signal.Signals, pace: Pace
) -> None:
    for pool in fleet:
        wait_until(lambda pool=pool: len(pool.children()) >= 3, "it has a maintenance process, too")  # type: ignore[misc]
    wait_until(lambda: len(runs(site)) == len(ENTRIES), "all have run")
    began, until = latest(site), 0
    for around in AROUND:
        moment = latest(site) + 2_000 + around
        wait_until(lambda: site.store.now() >= moment, "the second in which they run", every=0.001)  # noqa: B023
        stopped = fleet.pop(0)
        if how is signal.SIGTERM:
            stopped.process.send_signal(signal.SIGTERM)
        else:
            stopped.kill_all()
        until = moment - around + 2_000
        wait_until(lambda: latest(site) >= until, "two more runs of the other")  # noqa: B023
        assert how is signal.SIGKILL or stopped.process.wait(60) == 0
        fleet.append(site.pool(periodic=True))
        wait_until(lambda: len(fleet[-1].children()) >= 3, "the next one is there")
    late = defaultdict[int, int](int)  # scheduled time → ms until the last entry was enqueued
    for pool in fleet:
        assert pool.stop() == 0
    assert site.store.stats([Q])[0].totals["enqueued"] == sum(map(len, runs(site).values())), "one has come twice"
    for name, found in runs(site).items():
        times = sorted(at for at in found if began <= at <= until)
        assert all(after - before == 1_000 for before, after in pairwise(times)), f"{name} has run at {times}"
        for at in times:
            assert found[at] >= at
            late[at] = max(late[at], found[at] - at)
    # Nobody waits for the lease of a dead one, which is two seconds.
    promise = 0.1 if how is signal.SIGTERM else 1.0
    behind = monotonic() - site.store.now() / 1000
    in_time = sorted(late.items(), key=lambda moment: moment[1])
    # One moment may be late: a process that starts beside it may need the machine.
    for at, ms in in_time[:-1]:
        pace.took(ms / 1000, promise, "all but one moment", ended=(at + ms) / 1000 + behind)
