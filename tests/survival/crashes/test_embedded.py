"""The embedded store under kill -9 of producer, parent, child, server and its shells: nothing is lost either."""

from __future__ import annotations

import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from django_jobs.core.values import State
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.embedded.store import embedded_store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.embedded import running
from tests.support.backends.embedded import servers as servers_of
from tests.support.checker import judge, repeated_for_no_reason
from tests.support.dose import dose
from tests.support.pools import Producer, Site
from tests.support.processes import is_stopped, send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.timeout(dose(600, long=1200))]


def send(producer: Producer, name: str, jobs: int, number: int) -> None:
    producer.ask(name, [f"{name}-{number}-{i}" for i in range(jobs)], 4 if name == "work" else 2)


@pytest.mark.accepts("G04", "R03", "P03")
def test_kills_of_every_process_lose_nothing(tmp_path: Path) -> None:
    path, rng = tmp_path / "jobs", random.Random(7)
    site = Site(tmp_path, f"embedded:{path}", LEASE=4)
    jobs, kills = dose((800, 10), long=(20_000, 100))
    store = embedded_store(f"embedded:{path}", "/", StoreOptions(history=200_000))
    try:
        producer, pools = site.producer(), [site.pool(), site.pool()]
        batches = [("work", 90, n) for n in range(jobs // 100)] + [("once", 10, n) for n in range(jobs // 100)]
        batches.sort(key=lambda batch: batch[2])
        for batch in batches:
            send(producer, *batch)
        for n in range(kills):
            target = jobs * 8 // 10 * n // kills
            wait_until(lambda t=target: site.ledger.count("end") >= t, f"{target} ended", seconds=60, every=0.05)
            pool = pools[rng.randrange(2)]
            if n % 2:
                found = sorted(running(path))
                servers = [pid for pid in found if running(path).get(pid) == "server"]
                for pid in servers if n % 4 == 1 else rng.sample(found, rng.randrange(len(found) + 1)):
                    send_signal(pid, signal.SIGKILL)
                continue
            what = rng.choice(("child", "parent", "producer") if n % 5 == 0 else ("child", "parent"))
            if what == "producer":
                site.note_deaths(producer.process.pid)
                producer.close()
                producer = site.producer()
                producer.ask("work", [f"late{n}-{i}" for i in range(50)], 1)
                # What its predecessor had not come to.  It may have died within one batch, whose rest is never sent.
                batches = [batch for batch in batches if store.get("default", f"{batch[0]}-{batch[2]}-0") is None]
                for batch in batches:
                    send(producer, *batch)
                continue
            if what == "parent":
                send_signal(pool.pid, signal.SIGSTOP)
                wait_until(lambda p=pool: is_stopped(p.pid), "it stands still")
            children = pool.children()
            victims = [*children, pool.pid] if what == "parent" else children[:1]
            site.note_deaths(*victims)
            if what == "parent":
                pool.kill_all()
                pools[pools.index(pool)] = site.pool()
            else:
                for pid in victims:
                    send_signal(pid, signal.SIGKILL)
        counted = ("queued", "running", "retry", "scheduled", "blocked")

        def is_done() -> bool:
            with suppress(StoreUnavailable):  # after a kill, the server reads its file before it answers
                counts = store.stats(["default"])[0].counts
                return not any(counts[state] for state in counted) and not producer.is_busy
            return False

        wait_until(is_done, "all is done", seconds=dose(60, long=240), every=0.2)
        assert all(pool.stop() == 0 for pool in pools)
        events = site.ledger.read()
        verdict = judge(events, lambda id: info.state.value if (info := store.get("default", id)) else None)
        print(f"\nembedded, {kills} kills: {verdict}")
        assert verdict.is_sound, verdict
        assert not repeated_for_no_reason(events, site.deaths)
        assert max((n for id, n in verdict.starts.items() if id.startswith("once")), default=1) == 1
        assert not store.page("default", State.RUNNING)
        assert len(servers_of(path)) == 1
    finally:
        site.close()
        store.close()
