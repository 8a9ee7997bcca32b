"""A wake-up reaches one worker.  Whatever becomes of that one, the job starts on time where somebody is free."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.conf import QueueSettings
from django_jobs.core.values import Lane
from django_jobs.stores.redis import Store
from django_jobs.stores.values.answers import LONGEST_WAIT
from django_jobs.worker.child.fetcher import LOOK_ROUND, Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from tests.integration.workers import WorkerSite
from tests.support.pace import Pace
from tests.support.waiting import wait_until

MANY = 300
LEASE = 30_000


@pytest.fixture
def store(make_redis_store: Callable[..., Store]) -> Store:
    """A store on its own clock."""
    return make_redis_store(clock=None)


def fetcher(store: Store, name: str, queues: int, *, strict: bool = False, lane: Lane = Lane.SHARED) -> Fetcher:
    """A worker that has looked round already; the first queue is the most important one."""
    settings = [QueueSettings(f"q{n}", priority=queues - n) for n in range(queues)]
    made = Fetcher(
        store, name, settings,
        lane=lane, lease=LEASE, strict=strict, gate=Gate(), clock=StoreClock(), size=lambda queue: 1,
    )  # fmt: skip
    made._look_round(monotonic())
    return made


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Start it; the function returned waits for its answer."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()

    def answer() -> Any:
        thread.join(30)
        return answers[0]

    return answer


def first_of(worker: Fetcher, *, seconds: float = 20.0) -> tuple[str, float]:
    """Fetch until a job comes: its id and when (monotonic)."""
    until = monotonic() + seconds
    while monotonic() < until:
        fetched = worker.fetch()
        if fetched is not None and fetched[1].claims:
            return fetched[1].claims[0].id, monotonic()
    raise AssertionError(f"no job came within {seconds} s")


def told_of(worker: Fetcher, queue: str) -> None:
    """Let it take the wake-up of a queue and learn what is due there."""
    worker.store.wait_for_work(worker.names, 0.1, lane=worker.lane)
    worker.picker.suspect(queue)
    fetched = worker.fetch()
    assert fetched is not None
    assert fetched[1].claims == []


@pytest.mark.parametrize("lane", list(Lane))
def test_what_a_killed_worker_knew_is_found_by_a_look_round_over_all_queues(
    store: Store, make_job: Any, pace: Pace, lane: Lane
) -> None:
    killed, free = fetcher(store, "killed", MANY, lane=lane), fetcher(store, "free", MANY, lane=lane)
    due = monotonic() + 1.5
    store.enqueue("q250", [make_job("late", run_at=store.now() + 1500, alone=lane is not Lane.SHARED)])
    told_of(killed, "q250")

    _, at = first_of(free)
    pace.took(at - due, LONGEST_WAIT + LOOK_ROUND, "found by a look round")


@pytest.mark.timed
def test_what_a_worker_is_told_when_it_stops_goes_to_another(store: Store, make_job: Any, pace: Pace) -> None:
    stopping, free = fetcher(store, "stopping", MANY), fetcher(store, "free", MANY)
    due = monotonic() + 0.7
    store.enqueue("q250", [make_job("due", run_at=store.now() + 700)])
    told_of(stopping, "q250")
    answer = in_thread(lambda: first_of(free))
    stopping.gate.drain()
    stopping.hand_over()

    id, at = answer()
    assert id == "due"
    pace.took(at - due, 0.1, "after its time")


@pytest.mark.redis
def test_a_wake_up_that_is_met_when_the_gate_is_closed_goes_on(redis_store: Store, make_job: Any) -> None:
    stopping, free = fetcher(redis_store, "stopping", 2), fetcher(redis_store, "free", 2)
    redis_store.enqueue("q1", [make_job("now")])
    stopping.picker.suspect(redis_store.wait_for_work(stopping.names, 0.1))
    stopping.gate.drain()
    assert stopping.fetch() is None
    stopping.hand_over()

    assert redis_store.wait_for_work(free.names, 0.1) == "q1"


@pytest.mark.redis
def test_who_takes_other_work_hands_on_what_it_was_told(redis_store: Store, make_job: Any) -> None:
    """Strict order: it was told of one queue, and takes a job of a more important one that came meanwhile."""
    busy, free = fetcher(redis_store, "busy", 2, strict=True), fetcher(redis_store, "free", 2, strict=True)
    redis_store.enqueue("q1", [make_job("low")])
    assert redis_store.wait_for_work(busy.names, 0.1) == "q1"
    busy.picker.suspect("q1")
    redis_store.enqueue("q0", [make_job("high")])
    busy._look()
    fetched = busy.fetch()
    assert fetched is not None
    assert fetched[0] == "q0"
    busy.hand_over(keep="q0")

    while (woken := redis_store.wait_for_work(free.names, 0.1)) == "q0":
        pass
    assert woken == "q1"


@pytest.mark.redis
def test_who_takes_a_job_tells_others_of_what_is_due_soon_in_that_queue(redis_store: Store, make_job: Any) -> None:
    redis_store.enqueue("q0", [make_job("now"), make_job("soon", run_at=redis_store.now() + 1000)])
    worker = fetcher(redis_store, "w", 1)
    assert first_of(worker)[0] == "now"
    assert redis_store.wait_for_work(["q0"], 0.1) == "q0"


@pytest.mark.redis
@pytest.mark.parametrize("end", ["recover", "release_worker"])
@pytest.mark.parametrize("lane", list(Lane))
def test_the_parent_of_a_child_that_ended_has_its_queues_looked_into(
    redis_store: Store, make_job: Any, end: str, lane: Lane
) -> None:
    """A wake-up that was on its way to a process when it ended is read by nobody."""
    redis_store.enqueue("q0", [make_job("due", run_at=redis_store.now() + 5000)])
    while redis_store.wait_for_work(["q0"], 0.01, lane=lane) is not None:
        pass
    if end == "recover":
        redis_store.recover("q0", worker="child")
    else:
        redis_store.release_worker("q0", "child")
    assert redis_store.wait_for_work(["q0"], 0.1, lane=lane) == "q0"
    assert redis_store.wait_for_work(["empty"], 0.01, lane=lane) is None


# -- real workers ------------------------------------------------------------------------


@pytest.fixture
def site(redis_server: str, tmp_path: Path) -> Iterator[WorkerSite]:
    """Workers on thirty queues, with the default lease."""
    queues = {"default": {}} | {f"q{n}": {} for n in range(30)}
    made = WorkerSite(tmp_path, redis_server, NAMESPACE=f"h{uuid4().hex[:10]}", LEASE=30, QUEUES=queues)
    yield made
    made.close()


def lateness(site: WorkerSite, id: str, queue: str, due: int) -> int:
    """ms from when it was due to its start."""
    ended = site.wait(id, queue=queue, seconds=60)
    return ended.at - ended.run_ms - due


@pytest.mark.timed
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_scheduled_job_is_on_time_though_a_machine_goes_before(
    site: WorkerSite, pace: Pace, how: signal.Signals
) -> None:
    """One of two idle workers knows when the job is due.  Stopped in order, it is on time; killed, within a look round.

    Each goes at least once, so that in one round it is the one who knew.  A round in which the machine let even an idle
    process wait for a third of a tenth of a second says nothing about that tenth."""
    pools = [site.pool(threads=1), site.pool(threads=1)]
    on_time = 0
    for round in range(10):
        wait_until(lambda: {w.info["pid"] for w in site.store.workers()} >= {p.pid for p in pools}, "both are known")
        site.wait(site.put("work"))
        began, queue = monotonic(), f"q{17 + round}"
        id = site.put("work", queue=queue, run_in=800)
        due = site.info(id, queue).at
        victim = pools.pop(0)
        if how is signal.SIGTERM:
            assert victim.stop() == 0
        else:
            victim.kill_all()
        late = lateness(site, id, queue, due) / 1000
        pace.took(late, LONGEST_WAIT + LOOK_ROUND, "after its time")
        if how is signal.SIGKILL or late <= 0.1 or pace.longest_stall(began) < 0.033:
            assert how is signal.SIGKILL or late <= 0.1
            on_time += 1
        if on_time == 2:
            break
        pools.append(site.pool(threads=1))
    else:
        pytest.fail("The machine is too busy to measure on.")
    for pool in pools:
        assert pool.stop() == 0
