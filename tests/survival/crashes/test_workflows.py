"""Workflows whose workers are killed: every step runs, in order, and each callback once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict

import pytest

from django_jobs.workflows import reading
from tests.support.checker import repeated_for_no_reason
from tests.support.dose import dose
from tests.support.fsck import fsck
from tests.support.ledger import Event
from tests.support.pools import ROOT, Site
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=3600))]

#: Where a worker dies between the end of one step and the start of the next.
POINTS = (
    "ack.before_send",
    "ack.after_reply",
    "workflow.note_read",
    "workflow.applied",
    "workflow.step_enqueued",
    "workflow.followed",
    "workflow.note_dropped",
)


@pytest.fixture
def site(site: Site) -> Site:
    site.jobs_settings |= {"QUEUES": {"default": {}, "other": {}}}
    return site


def enqueue(site: Site, kind: str, number: int, length: int, ms: int, crash: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.survival.project.flows", kind, *map(str, (number, length, ms))],
        env=site.environment(DJANGO_JOBS_CRASH=crash),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=die_with_parent,
    )


def ids_of(process: subprocess.Popen[bytes], seconds: float = 300) -> list[str]:
    return process.communicate(timeout=seconds)[0].decode().split()


def wait_for_end(site: Site, ids: list[str], seconds: float) -> None:
    left = set(ids)

    def all_have_ended() -> bool:
        for id in list(left):
            info = reading.read(site.store, id)
            if info is not None and info.ended_at is not None:
                left.discard(id)
        return not left

    wait_until(all_have_ended, "all workflows have ended", seconds=seconds, every=0.2)


def judge(site: Site, chains: list[str], batches: list[str], chain_steps: int) -> None:
    """Every step of each workflow ran, in order; each job and each callback of a batch ran, the callbacks last."""
    events = site.ledger.read()
    runs: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        runs[event.id][event.kind].append(event)
    for id in chains:
        info = reading.read(site.store, id)
        assert info is not None
        assert (info.state, info.counts["succeeded"], info.counts["live"]) == ("succeeded", chain_steps, 0), info
        before = 0
        for n in range(chain_steps):
            step = runs[f"{id}.{n}"]
            assert step["start"], f"step {n} of {id} never ran"
            assert step["start"][0].at > before, f"step {n} of {id} started before the one before had ended"
            before = step["end"][0].at
    for id in batches:
        info = reading.read(site.store, id)
        assert info is not None
        assert info.state == "succeeded", info
        members = [step.job_id for step in reading.jobs_of_batch(site.store, id)]
        assert len(members) == info.total
        last = max(runs[member]["end"][0].at for member in members)
        for callback in ("on_success", "on_complete"):
            assert runs[f"{id}.{callback}"]["start"][0].at > last, f"{callback} of {id} was early"
    assert not repeated_for_no_reason(events, site.deaths)
    for queue in ("default", "other"):
        assert fsck(site.store, queue) == []
        assert site.store.unread([queue]) == []


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_dies_in_the_hand_over_loses_no_step(site: Site, point: str) -> None:
    died = site.folder / "died"
    producers = [enqueue(site, "chain", 3, 5, 1), enqueue(site, "batch", 2, 5, 1)]
    ids = [ids_of(producer) for producer in producers]
    doomed = site.pool("--drain-timeout", "2", crash=f"{point}:2:{died}")
    wait_until(lambda: (doomed.children(), died.exists())[1], f"a death at {point}", seconds=20)
    healthy = site.pool("--drain-timeout", "2")
    wait_for_end(site, [*ids[0], *ids[1]], 40)
    for queue in ("default", "other"):
        site.wait_drained(queue=queue, seconds=20)
    if doomed.process.poll() is None:
        doomed.stop()
    healthy.stop()
    site.deaths.update(dict.fromkeys(doomed.seen, 0))
    judge(site, *ids, 5)


@pytest.mark.parametrize("point", ["workflow.added", "workflow.step_enqueued", "workflow.first_enqueued"])
def test_a_producer_that_dies_leaves_whole_workflows(site: Site, point: str) -> None:
    producer = enqueue(site, "chain", 4, 3, 1, crash=f"{point}:3")
    ids = ids_of(producer)
    assert producer.wait() == -signal.SIGKILL
    assert len(ids) == 2
    pool = site.pool()
    stored = site.store.workflow_ids(0, 100)
    assert len(stored) == 3, "the third was stored as a whole, and its id was not told"
    wait_for_end(site, stored, 30)
    for queue in ("default", "other"):
        site.wait_drained(queue=queue, seconds=20)
    assert pool.stop() == 0
    judge(site, stored, [], 3)


def test_a_producer_that_dies_when_it_closes_a_batch(site: Site) -> None:
    producer = enqueue(site, "batch", 2, 3, 1, crash="workflow.applied:1")
    (id,) = ids_of(producer)
    pool = site.pool()
    wait_for_end(site, [id], 30)
    site.ledger.wait("end", 5)
    assert pool.stop() == 0
    judge(site, [], [id], 0)


def test_jobs_that_were_announced_and_never_enqueued_do_not_hold_up_a_batch(site: Site) -> None:
    """The producer dies between the two.  The batch was not closed: it stays open, and says so."""
    producer = enqueue(site, "batch", 1, 3, 1, crash="batch.joined:3")
    (id,) = ids_of(producer)
    assert producer.wait() == -signal.SIGKILL
    pool = site.pool()
    site.ledger.wait("end", 2)
    wait_until(lambda: (info := reading.read(site.store, id)) and info.counts["live"] == 1, "two ends are known")
    info = reading.read(site.store, id)
    assert info is not None
    assert (info.state, info.closed, info.total) == ("running", False, 3)
    assert pool.stop() == 0


@pytest.mark.parametrize("point", ["ack.after_reply", "end_calls.read", "end_calls.enqueued", "end_calls.dropped"])
def test_a_worker_that_dies_at_the_ends_of_jobs_leaves_one_job_for_each_end(site: Site, point: str) -> None:
    died = site.folder / "died"
    site.producer().send("work_told", 100, 4)
    doomed = site.pool("--drain-timeout", "2", crash=f"{point}:2:{died}")
    wait_until(lambda: (doomed.children(), died.exists())[1], f"a death at {point}", seconds=20)
    healthy = site.pool("--drain-timeout", "2")
    site.ledger.wait("told", 100)
    wait_until(lambda: site.store.unread(["default"]) == [], "nothing is left to be enqueued", seconds=20)
    site.wait_drained(seconds=20)
    for pool in (doomed, healthy):
        if pool.process.poll() is None:
            pool.stop()
    ended = {event.id for event in site.ledger.read() if event.kind == "end" and event.name == "work_told"}
    told = {event.id for event in site.ledger.read() if event.kind == "start" and event.name == "told"}
    assert {event.id for event in site.ledger.read() if event.kind == "told"} == ended
    assert len(told) == len(ended) == 100, "one job for each end"


@pytest.mark.parametrize(
    "point", ["fail.before_send", "fail.after_reply", "end_calls.read", "moved.arrived", "end_calls.enqueued"]
)
def test_a_worker_that_dies_while_jobs_change_their_queue_neither_loses_nor_doubles_one(site: Site, point: str) -> None:
    died = site.folder / "died"
    site.producer().send("work_moved", 100, 4)
    doomed = site.pool("--drain-timeout", "2", crash=f"{point}:2:{died}")
    wait_until(lambda: (doomed.children(), died.exists())[1], f"a death at {point}", seconds=20)
    healthy = site.pool("--drain-timeout", "2")
    site.ledger.wait("told", 100)
    wait_until(lambda: site.store.unread(["default", "other"]) == [], "all have arrived", seconds=20)
    site.wait_drained(seconds=20)
    for pool in (doomed, healthy):
        if pool.process.poll() is None:
            pool.stop()
    events = site.ledger.read()
    ended = {event.id for event in events if event.kind == "end" and event.name == "work_moved"}
    assert {event.id for event in events if event.kind == "told"} == ended
    assert len(ended) == len({event.id for event in events if event.kind == "start" and event.name == "told"}) == 100
    found = [site.store.find(["default"], id) for id in ended]
    assert {info.queue for info in found if info is not None} == {"other"}
    assert [fsck(site.store, queue) for queue in ("default", "other")] == [[], []]
