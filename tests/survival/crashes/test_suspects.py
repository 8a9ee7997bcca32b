"""Jobs that kill whole workers, and what becomes of the jobs beside them: the last crash is counted only of a job that
ran alone on its worker."""

from __future__ import annotations

import signal

import pytest

from django_jobs.core.values import Controls, Job, Lane, NewJob, Options, State
from django_jobs.serialization.record import encode
from tests.support.dose import dose
from tests.support.pools import Pool, Site
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=1200))]

Q = "default"


@pytest.mark.accepts("G04")
@pytest.mark.parametrize("pools", [1, 2])
def test_many_jobs_that_kill_the_whole_worker_bury_nobody_beside_them(site: Site, pools: int) -> None:
    """Each is new when it kills a worker, and the suspect that runs beside it may have crashed twice already."""
    site.jobs_settings["LEASE"] = 1
    producer = site.producer()
    innocents = producer.send("work", 5, 2_000, prefix="innocent-long") + producer.send(
        "work", 35, 20, prefix="innocent"
    )
    poisons = [f"poison-{n}" for n in range(dose(2, long=16))]
    coming = list(poisons)
    running: list[Pool] = []
    met: set[int] = set()
    deaths = 0

    def over() -> bool:
        """Replace dead workers; when a new worker has begun an innocent job, send the next poisonous one."""
        nonlocal deaths
        deaths += sum(pool.process.poll() is not None for pool in running)
        running[:] = [pool for pool in running if pool.process.poll() is None]
        running.extend(site.pool(processes=2) for _ in range(pools - len(running)))
        begun = {event.pid for event in site.ledger.read() if event.id.startswith("innocent")}
        for pool in running:
            if pool.pid not in met and begun & set(pool.children()) and coming:
                met.add(pool.pid)
                producer.ask("kills_worker", [coming.pop(0)])
                producer.answer()
        return not coming and site.drained()

    wait_until(over, "everything has ended", seconds=dose(480, long=1000), every=0.1)
    assert all(pool.stop() == 0 for pool in running)
    assert {info.id for info in site.store.page("default", State.DEAD, 0, 100)} == set(poisons)
    assert site.counts()["succeeded"] == len(innocents)
    starts = site.verdict().starts
    assert deaths <= 3 * len(poisons)
    for poison in poisons:
        info = site.store.get("default", poison)
        assert info is not None
        assert info.crashes == 3
        # The first two crashes count for each job that the worker held, begun or not; the last, only for one that ran.
        assert 1 <= starts[poison] <= 3, "what was not counted had not begun"


def test_what_a_machine_held_runs_one_at_a_time_though_another_process_is_free(site: Site) -> None:
    """So if many long jobs are lost with a machine, they take as long as all of them together."""
    site.jobs_settings["LEASE"] = 1
    producer, dies = site.producer(), site.pool()
    gates = {f"lost-{n}": site.folder / f"gate-{n}" for n in range(4)}
    for id, gate in gates.items():
        producer.ask("held", [id], str(gate))
        producer.answer()
    site.ledger.wait("start", len(gates))
    dies.kill_all()
    lives = site.pool()

    def again() -> list[str]:
        """What the other machine has begun."""
        return [e.id for e in site.ledger.read() if e.kind == "start" and e.id in gates and e.pid not in dies.seen]

    for turn in range(1, len(gates) + 1):
        wait_until(lambda n=turn: len(again()) >= n, "one of them runs")
        # Another process takes this job, from the same lane, where it is behind the rest of them.
        producer.send("once", 1, prefix=f"beside{turn}")
        wait_until(lambda n=turn: site.ledger.count("end") == 2 * n - 1 or len(again()) > n, "another process is free")
        assert len(again()) == turn, "the rest waits"
        gates[again()[-1]].touch()
    site.wait_drained()
    assert lives.stop() == 0
    assert site.counts()["succeeded"] == 2 * len(gates)
    assert not site.unexplained()


class Waiting:
    """A worker with a job that runs until `end_the_other`, and a suspect with one crash left that waits beside it."""

    def __init__(self, site: Site, *, timeout: int | None = None) -> None:
        self.site, store, self._gate = site, site.store, site.folder / "gate"
        producer = site.producer()
        controls = Controls(alone=timeout is not None)
        job = Job("suspect", Q, "work", b"[[50],{}]", 0, options=Options(timeout=timeout), controls=controls)
        store.enqueue(Q, [NewJob("suspect", encode(job), controls)])
        for lane in (Lane.SHARED if timeout is None else Lane.ALONE, Lane.ALONE):
            assert [claim.id for claim in store.claim(Q, "lost", 1, lane=lane, lease=1).claims] == ["suspect"]
            wait_until(lambda: store.recover(Q), "its lease is over")
        store.reschedule(Q, ["suspect"], store.now() + 86_400_000)
        self.pool = site.pool(processes=1)
        producer.send("held", 1, str(self._gate), prefix="long")
        self.started("long-0")
        store.revive(Q, ["suspect"])
        wait_until(lambda: site.state_of("suspect") == "running", "it is claimed")

    def end_the_other(self) -> None:
        """What runs for long ends, and what waits for it begins."""
        self._gate.touch()

    def started(self, id: str) -> None:
        self.site.ledger.wait_for(lambda events: any(e.id == id and e.kind == "start" for e in events), f"{id} runs")

    def has_started(self) -> bool:
        return any(e.id == "suspect" for e in self.site.ledger.read() if e.kind == "start")

    def crashes(self) -> int:
        info = self.site.store.get(Q, "suspect")
        assert info is not None
        return info.crashes


def test_it_begins_when_the_others_have_ended_and_its_time_limit_counts_from_then(site: Site) -> None:
    waiting = Waiting(site, timeout=2_000)
    site.producer().send("work", 20, 5, prefix="later")
    waiting.end_the_other()
    site.wait_drained()
    runs = [event for event in site.ledger.read() if event.kind in {"start", "end"}]
    order = [(event.id, event.kind) for event in runs]
    at = order.index(("suspect", "start"))
    assert order.index(("long-0", "end")) < at
    assert order[at + 1] == ("suspect", "end"), "nothing begins while it runs"
    assert site.state_of("suspect") == "succeeded"
    assert waiting.pool.stop() == 0
    assert not site.unexplained()


def test_a_stop_hands_it_back(site: Site) -> None:
    waiting = Waiting(site)
    assert waiting.pool.stop() == 0
    assert (site.state_of("suspect"), waiting.crashes()) == ("queued", 2)
    assert not waiting.has_started()


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("kill", "dead")])
def test_a_person_who_stops_it_need_not_wait_for_the_others(site: Site, verb: str, state: str) -> None:
    site.jobs_settings["LEASE"] = 3  # heartbeats tell of it, six in a lease
    waiting = Waiting(site)
    if verb == "cancel":
        site.store.cancel(Q, ["suspect"])
    else:
        site.store.kill(Q, ["suspect"], "by hand")
    wait_until(lambda: site.state_of("suspect") == state, "it is stopped", seconds=10)
    site.producer().send("work", 5, 5, prefix="later")
    site.ledger.wait("end", 5)
    assert not waiting.has_started()
    assert site.store.delete(Q, ["suspect"]) == ["suspect"], "its attempt is over"


def test_the_death_of_its_process_is_not_counted(site: Site) -> None:
    site.jobs_settings["LEASE"] = 3  # the worker describes its processes at heartbeats
    waiting = Waiting(site)
    info = site.store.get(Q, "suspect")
    assert info is not None

    def pids() -> list[int]:
        children = [child for worker in site.store.workers() for child in worker.info["children"]]
        return [child["pid"] for child in children if child["name"] == info.worker]

    wait_until(pids, "its process is known")
    send_signal(*pids(), signal.SIGKILL)
    waiting.end_the_other()
    site.wait_drained()
    assert waiting.pool.stop() == 0
    assert site.state_of("suspect") == "succeeded"
    assert len(site.store.get(Q, "suspect").attempts) == 2  # type: ignore[union-attr]
