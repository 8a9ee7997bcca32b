"""Redis goes away and comes back, forgets its scripts, drops connections and answers: workers and producers go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
import redis

from django_jobs.stores.redis.connection import scripts
from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.dose import dose
from tests.support.faults.fault_injector import FaultInjector
from tests.support.pace import Pace
from tests.support.pools import Site
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=1800))]


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port, seed=5)
    yield proxy
    proxy.close()


@pytest.fixture
def far_site(proxy: Proxy, server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    """Workers and producers that reach Redis through the proxy; the test looks past it."""
    site = Site(tmp_path, proxy.url)
    site.direct(server.url)
    yield site
    site.close()


def sha(name: str) -> bytes:
    """What a call of the script contains."""
    return scripts.load(name, short=True).sha


@pytest.mark.accepts("G04", "G52")
def test_a_lost_answer_to_the_end_of_a_job_runs_nothing_again(far_site: Site, proxy: Proxy) -> None:
    count = 10
    far_site.jobs_settings["LEASE"] = 10
    producer = far_site.producer()
    pool = far_site.pool()
    producer.send("work", 1, prefix="warm")
    far_site.wait_drained()
    proxy.lose_replies(count, containing=sha("complete"))
    producer.send("work", 50, 1)
    far_site.wait_drained()
    wait_until(lambda: proxy.lost == count, "the answers were lost", seconds=10)
    far_site.wait_drained()
    assert pool.stop() == 0
    assert far_site.verdict().duplicates == 0, far_site.repeats()


@pytest.mark.accepts("G04", "R31")
def test_an_end_whose_answer_never_came_is_told_of_once_when_the_store_is_back(far_site: Site, proxy: Proxy) -> None:
    """Also one that the parent told the store: a job that was over its time."""
    script, job, line = "settle", "endless", "dead, attempt 1,"
    far_site.jobs_settings["LEASE"] = 20  # what is lost here is the answer, not the claim
    producer = far_site.producer()
    pool = far_site.pool(extra={"SURVIVAL_LOG": "INFO"})
    producer.send("work", 1, prefix="warm")
    far_site.wait_drained()
    far_site.store.transport.client.script_load(scripts.load(script).source)  # or the lost answer is that it is unknown
    proxy.lose_replies(10**9, containing=sha(script))
    ids = producer.send(job, 5, "sleep")
    wait_until(lambda: "does not answer" in pool.text(), "the worker gives up for now", seconds=15)
    proxy.heal()
    wait_until(lambda: all(f"{job} {id} on default: {line}" in pool.text() for id in ids), "all are told of")
    far_site.wait_drained()
    assert pool.stop() == 0
    for id in ids:
        assert pool.text().count(f"{job} {id} on default: {line}") == 1
    assert "claim was lost" not in pool.text()


@pytest.mark.accepts("K06", "G04")
@pytest.mark.parametrize("script", ["enqueue", "claim"])
def test_a_lost_answer_to_enqueue_or_claim_makes_no_second_job(far_site: Site, proxy: Proxy, script: str) -> None:
    far_site.jobs_settings["LEASE"] = 10
    pool = far_site.pool()
    producer = far_site.producer()
    for n in range(8):
        proxy.lose_replies(1, containing=sha(script))
        producer.send("work", 10, 1, prefix=f"turn{n}")
        proxy.lose_requests(1, containing=sha(script))
        producer.send("work", 10, 1, prefix=f"again{n}")
    far_site.ledger.wait("end", 160)
    far_site.wait_drained()
    assert pool.stop() == 0
    verdict = far_site.verdict()
    assert len(verdict.ended) == 160
    assert verdict.duplicates == 0, far_site.repeats()


@pytest.mark.accepts("G04")
def test_a_bad_line_that_loses_one_answer_in_twenty(far_site: Site, proxy: Proxy) -> None:
    far_site.jobs_settings["LEASE"] = 10
    pools = [far_site.pool(), far_site.pool()]
    producer = far_site.producer()
    proxy.loses_replies, proxy.loses_requests = 0.03, 0.02
    ids = [f"j-{n}" for n in range(dose(600, long=5_000))]
    producer.ask("work", ids, 1)
    answer = producer.answer()
    proxy.heal()
    far_site.wait_drained(seconds=120)
    assert all(pool.stop() == 0 for pool in pools)
    verdict = far_site.verdict()
    assert verdict.duplicates == 0, far_site.repeats()
    assert proxy.lost > 20
    assert len(answer["acked"]) + len(answer["errors"]) == len(ids)


@pytest.mark.accepts("G04", "P03")
def test_connections_cut_all_the_time(site: Site, server: RedisServer) -> None:
    site.jobs_settings["LEASE"] = 10
    pools = [site.pool(), site.pool()]
    producer = site.producer()
    with (
        server.client() as client,
        FaultInjector(lambda: client.client_kill_filter(_type="normal", skipme=True), 0.2) as cuts,
    ):
        for n in range(dose(4, long=30)):
            producer.send("work", 100, 10, prefix=f"turn{n}")
            site.ledger.wait("end", 100 * n)
    site.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    verdict = site.verdict()
    assert verdict.duplicates == 0, site.repeats()
    assert cuts.times > 5


@pytest.mark.accepts("G04")
def test_scripts_flushed_all_the_time(site: Site, server: RedisServer) -> None:
    site.jobs_settings["LEASE"] = 10
    pool = site.pool()
    producer = site.producer()
    with server.client() as client, FaultInjector(client.script_flush, 0.1) as flushes:
        for n in range(dose(4, long=30)):
            producer.send("work", 100, 5, prefix=f"turn{n}")
            site.ledger.wait("end", 100 * n)
    site.wait_drained()
    assert pool.stop() == 0
    assert site.verdict().duplicates == 0, site.repeats()
    assert flushes.times > 3
    assert pool.text() == "", "nobody noticed"


@pytest.mark.accepts("P03")
def test_a_line_that_falls_silent(far_site: Site, proxy: Proxy, pace: Pace) -> None:
    """Half-open for longer than any timeout of ours; claims that were on their way are not forgotten."""
    producer = far_site.producer()
    pool = far_site.pool()
    producer.send("work", 200, 20)
    far_site.ledger.wait("end", 30)
    proxy.silent.set()
    began = monotonic()
    wait_until(lambda: "does not answer" in pool.text(), "the worker notices", seconds=8)
    pace.within(began, 2 + 5, "a wait for work, and a call that is not answered")
    Event().wait(dose(0, long=12))
    proxy.heal()
    far_site.wait_drained(seconds=30)
    assert pool.stop() == 0
    verdict = far_site.verdict()
    assert len(verdict.ended) == 200


@pytest.mark.accepts("P03", "G04", "G01")
def test_redis_killed_and_restarted_again_and_again(site: Site, server: RedisServer, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 6
    producers, pools = [site.producer(), site.producer()], [site.pool() for _ in range(3)]
    rounds = dose(3, long=20)
    errors: dict[str, list[object]] = {}
    for n in range(rounds):
        for who, producer in enumerate(producers):
            producer.ask("work", [f"p{who}-{n}-{i}" for i in range(300)], 5)
        site.ledger.wait("end", site.ledger.count("end") + 20, seconds=30)
        server.kill() if n % 3 else server.shutdown()
        wait_until(lambda: not server.answers(), "it is down")
        Event().wait(0.3 if n % 2 else 2.5)
        server.start()
        up = monotonic()
        # Of the jobs before perhaps all had ended: a refused connection is told at once, so producers are soon done.
        for producer in producers:
            errors |= producer.answer()["errors"]
        before = site.ledger.count("end")
        producers[0].send("work", 20, 5, prefix=f"again-{n}")
        wait_until(lambda b=before: site.ledger.count("end") > b, "workers go on", seconds=10)
        pace.within(up, 5)
    site.wait_drained(seconds=120)
    assert all(pool.stop() == 0 for pool in pools)
    assert {name for name, _ in errors.values()} <= {"StoreUnavailable"}
    pace.took(max([seconds for _, seconds in errors.values()], default=0), 5, "StoreUnavailable")
    verdict = site.verdict()
    print(f"\n{rounds} restarts: {verdict}, {len(errors)} errors told")
    assert verdict.duplicates <= rounds * 3 * 4 * 60


def fill(client: redis.Redis) -> None:
    """Use the memory up, to the last small key."""
    size = 1 << 20
    n = 0
    while size >= 64:
        try:
            client.set(f"filler-{n}", b"x" * size)
            n += 1
        except redis.ResponseError:
            size //= 2


@pytest.mark.timed
@pytest.mark.accepts("G04")
def test_a_full_redis_refuses_new_jobs_and_drains(site: Site, server: RedisServer, pace: Pace) -> None:
    producer = site.producer()
    producer.send("work", 2_000, 1)
    producer.send("flaky", 20, 1, prefix="flaky")
    with server.client() as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", used + (4 << 20))
        fill(client)
        producer.ask("work", [f"late-{n}" for n in range(20)], 1)
        refused = producer.answer()["errors"]
        assert {name for name, _ in refused.values()} == {"StoreFull"}
        pace.took(max(seconds for _, seconds in refused.values()), 1, "StoreFull")
        pool = site.pool()
        site.ledger.wait("end", 10)
        busy = {event.pid for event in site.ledger.read()} & set(pool.children())
        send_signal(busy.pop(), signal.SIGKILL)
        site.wait_drained(seconds=60)
        assert pool.stop() == 0
        client.config_set("maxmemory", 0)
    verdict = site.verdict()
    assert not {id for id in verdict.starts if id.startswith("late")}, "what was refused is not there"
    assert len(verdict.ended) == 2_020
