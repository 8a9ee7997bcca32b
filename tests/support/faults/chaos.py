"""Random SIGKILLs, remembered: who was killed, and what that may cost."""

from __future__ import annotations

import random
import signal

from django_jobs.stores.redis import Store
from tests.support.pools import Pool, Site
from tests.support.processes import is_stopped, send_signal
from tests.support.waiting import wait_until


class Chaos:
    """Keeps `width` pools running and kills in them at random."""

    def __init__(self, site: Site, seed: int, *, width: int = 3, processes: int = 1, threads: int = 4) -> None:
        self.site, self.rng = site, random.Random(seed)
        self.processes, self.threads = processes, threads
        self.pools: list[Pool] = [self._start() for _ in range(width)]
        self.kills = {"parent": 0, "child": 0, "machine": 0}
        self.in_flight = 0

    def _start(self) -> Pool:
        return self.site.pool("--drain-timeout", "3", processes=self.processes, threads=self.threads)

    def strike(self, what: str | None = None) -> str:
        """Kill one child, one parent, or a parent with all its children; dead parents are replaced."""
        what = what or self.rng.choice(("child", "child", "parent", "machine"))
        place = self.rng.randrange(len(self.pools))
        pool = self.pools[place]
        if what != "child":
            # It must not fork while we look: the signal is delivered a moment after it is sent.
            send_signal(pool.pid, signal.SIGSTOP)
            wait_until(lambda: is_stopped(pool.pid), "the parent stands still", seconds=5, every=0.001)
        children = pool.children()
        if what == "child":
            if not children:
                return ""
            victims = [self.rng.choice(children)]
        else:
            victims = [*children, pool.pid]
        self.in_flight += self._freeze_and_count(set(victims))
        self.site.note_deaths(*victims)
        match what:
            case "child":
                send_signal(victims[0], signal.SIGKILL)
            case "parent":
                pool.kill()
            case _:
                pool.kill_all()
        if what != "child":
            self.pools[place] = self._start()
        self.kills[what] += 1
        return what

    def _freeze_and_count(self, victims: set[int]) -> int:
        """Stop them where they are, and count the jobs they have begun and not settled: these may run again."""
        for pid in victims:
            send_signal(pid, signal.SIGSTOP)
        wait_until(lambda: all(is_stopped(pid) for pid in victims), "they stand still", seconds=5, every=0.001)
        if not isinstance(self.site.store, Store):
            return 0
        begun = {event.id for event in self.site.ledger.read() if event.kind == "start" and event.pid in victims}
        held = self.site.store.transport.client.hkeys(self.site.store.keys.of("default")["claims"])
        return len(begun & {id.decode() for id in held})

    @property
    def total(self) -> int:
        return sum(self.kills.values())

    def end(self) -> None:
        """Stop all pools in order."""
        for pool in self.pools:
            assert pool.stop() == 0, pool.text()[-2000:]
