"""A job runs C code that holds the GIL: what its process has not begun runs elsewhere."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from django_jobs.core.values import Controls, Job, NewJob, Options, State
from django_jobs.serialization.record import encode
from tests.integration.workers import WorkerSite, site
from tests.support.dose import dose
from tests.support.pace import Pace
from tests.support.pools import Pool
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

__all__ = ["site"]

#: Threads of each process, of which the job blocks one.
THREADS = 4
#: Seconds within which what a frozen process has not begun is begun elsewhere.
PROMISED = 10.0
MANY = dose(1_000, long=4_000)


class Valve:
    """A pipe that a job waits for without letting go of the GIL."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"valve-{uuid4().hex[:6]}"
        os.mkfifo(self.path)
        self._end = os.open(self.path, os.O_RDWR)

    def open(self) -> None:
        """Let it go on."""
        os.write(self._end, b"!")


@pytest.fixture
def valve(tmp_path: Path) -> Iterator[Valve]:
    made = Valve(tmp_path)
    yield made
    made.open()


def put_many(site: WorkerSite, names: list[tuple[str, list[str]]], *, once: bool = False) -> list[str]:
    """Jobs of these names and arguments, in this order; at most once where `once`."""
    now, controls = site.store.now(), Controls(at_most_once=once)
    jobs = [
        Job(uuid4().hex, "default", name, json.dumps([args, {}]).encode(), now, Options(), controls)
        for name, args in names
    ]
    for start in range(0, len(jobs), 1000):
        some = jobs[start : start + 1000]
        site.store.enqueue("default", [NewJob(job.id, encode(job), controls) for job in some])
    return [job.id for job in jobs]


def held_by(site: WorkerSite) -> int:
    """The process that is frozen, once it is."""
    site.ledger.wait("held", 1)
    return next(event.pid for event in site.ledger.read() if event.kind == "held")


def starts(site: WorkerSite) -> Counter[str]:
    """How often each job has begun."""
    return Counter(event.id for event in site.ledger.read() if event.kind == "start")


def freeze(site: WorkerSite, valve: Valve, *, once: bool = False) -> list[str]:
    """Put one such job between many quick ones.  Returns the ids of the quick ones."""
    quick = [("once_more" if once else "work", list[str]())] * (MANY // 4 if once else MANY)
    if once:
        put_many(site, [("freezes", [str(valve.path)])])
        return put_many(site, quick, once=True)
    ids = put_many(site, [*quick[:30], ("freezes", [str(valve.path)]), *quick[30:]])
    return [*ids[:30], *ids[31:]]


def test_what_a_frozen_process_has_not_begun_runs_elsewhere(site: WorkerSite, valve: Valve, pace: Pace) -> None:
    pool = site.pool(threads=THREADS)
    quick = freeze(site, valve)
    frozen = held_by(site)
    began = monotonic()

    all_but_a_few_begin(site, quick)
    pace.within(began, PROMISED, "begun elsewhere")
    assert all(site.info(id).crashes == 0 for id in quick[:50])

    valve.open()
    later = put_many(site, [("work", [])] * 200)
    for id in (*quick, *later):
        site.wait(id)
    assert not any(site.info(id).crashes for id in quick)
    assert set(starts(site).values()) == {1}, "no job runs twice"
    assert not any(site.info(id).attempts for id in quick)
    assert is_at_work(site, frozen, pool), pool.text()
    assert pool.stop() == 0


def all_but_a_few_begin(site: WorkerSite, ids: list[str]) -> set[str]:
    """Wait until these jobs have begun.  Returns those that each other thread of the frozen process may have been about
    to call: they count as begun, and come no further than it does."""

    def left() -> set[str]:
        return set(ids) - set(starts(site))

    wait_until(lambda: len(left()) < THREADS, "everything has begun", every=0.1)
    return left()


def is_at_work(site: WorkerSite, pid: int, pool: Pool) -> bool:
    """Does this process, which was frozen, begin jobs again?"""

    def begins() -> bool:
        before = len(site.ledger.read())
        site.wait(put_many(site, [("work", [])])[0])
        return any(event.pid == pid for event in site.ledger.read()[before:])

    return wait_until(begins, "the process that was frozen begins jobs again", every=0.0)


def test_a_worker_stops_in_time_while_a_job_holds_the_gil(site: WorkerSite, valve: Valve, pace: Pace) -> None:
    pool = site.pool(threads=THREADS)
    quick = freeze(site, valve)
    held_by(site)
    began = monotonic()
    assert pool.stop() == 0
    pace.within(began, 3 + 5, "the drain of 3 s, and its end")
    states = Counter(site.info(id).state for id in quick)
    assert set(states) <= {State.SUCCEEDED, State.QUEUED}, states
    assert all(site.info(id).crashes == 0 for id in quick)
    site.pool(threads=THREADS)
    valve.open()
    for id in quick:
        site.wait(id)


def test_the_death_of_a_frozen_process_is_charged_to_what_it_had_begun(site: WorkerSite, valve: Valve) -> None:
    pool = site.pool(threads=THREADS)
    quick = freeze(site, valve)
    frozen = held_by(site)
    held = all_but_a_few_begin(site, quick)
    begun_there = {event.id for event in site.ledger.read() if event.kind == "start" and event.pid == frozen}
    assert send_signal(frozen, signal.SIGKILL), "ended by nobody else"
    valve.open()
    for id in quick:
        site.wait(id)
    assert {id for id in quick if site.info(id).attempts} <= begun_there | held
    assert pool.stop() == 0


def test_jobs_that_run_at_most_once_do_so_beside_a_frozen_process(site: WorkerSite, valve: Valve) -> None:
    pool = site.pool(threads=THREADS)
    quick = freeze(site, valve, once=True)
    held_by(site)
    for id in quick:
        site.wait(id)
    valve.open()
    assert set(starts(site).values()) == {1}
    assert all(site.info(id).attempts == () for id in quick)
    assert pool.stop() == 0
