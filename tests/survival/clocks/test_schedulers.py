"""Schedulers that are killed, on a store that is restarted, through every change of clocks: each run once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from django_jobs.core.values import Completed
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import RedisServer
from tests.support.dose import dose
from tests.support.pools import ROOT, Site
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until
from tests.survival.project.scheduler import Clock
from tests.unit.schedules.test_cron_against_a_scanner import Expression, Field, scan

pytestmark = [pytest.mark.survival, pytest.mark.timeout(dose(600, long=3600))]

Q = "default"
FLEET = 5
ZONES = ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Chatham"]
ANY = {name: Field("*", frozenset(values)) for name, values in (("hour", range(24)), ("weekday", range(7)))}
CRONS = {
    "often": Expression(Field("*/10", frozenset(range(0, 60, 10))), **ANY),
    "early": Expression(Field("30", frozenset([30])), Field("1", frozenset([1])), ANY["weekday"]),
    "late": Expression(Field("30", frozenset([30])), Field("2", frozenset([2])), ANY["weekday"]),
}
#: Hours before and after each change of clocks that are lived through.
AROUND = dose(timedelta(hours=1, minutes=30), long=timedelta(hours=24))
#: Seconds between two looks.
PAUSE = dose((600, 2400), long=(300, 900))
KILLS, RESTARTS = dose((6, 1), long=(200, 20))


def clock_changes(zone: ZoneInfo, year: int) -> Iterator[datetime]:
    half, moment = timedelta(minutes=30), datetime(year, 1, 2, tzinfo=UTC)
    while moment.year == year:
        if moment.astimezone(zone).utcoffset() != (moment + half).astimezone(zone).utcoffset():
            yield moment + half
        moment += half


def looks_round_changes(dice: random.Random) -> list[list[datetime]]:
    """When the clock is read: every few minutes round each change of clocks, and not in between."""
    found: list[list[datetime]] = []
    for change in sorted(change for zone in ZONES for change in clock_changes(ZoneInfo(zone), 2026)):
        now = change - AROUND
        if found and found[-1][-1] >= now:
            now = found[-1][-1]
        else:
            found.append([])
        while now < change + AROUND:
            now += timedelta(seconds=dice.randint(*PAUSE))
            found[-1].append(now)
    return found


def runs(begin: datetime, looks: list[list[datetime]]) -> Counter[tuple[str, int]]:
    """By the scanner, which walks the minutes.  Of several that became due between two looks the last counts."""
    expected: Counter[tuple[str, int]] = Counter()
    for zone in ZONES:
        for name, expression in CRONS.items():
            end = begin
            for some in looks:
                # All schedules are daily ones at least: the last run before is not longer ago than this.
                start, end = max(end, some[0] - timedelta(hours=26)), some[-1]
                due = scan(expression, start.replace(second=0), end, ZoneInfo(zone))
                for before, after in pairwise([start, *some]):
                    if last := [moment for moment in due if before < moment <= after][-1:]:
                        expected[key(zone, name), ms(last[0])] += 1
    return expected


def key(zone: str, name: str) -> str:
    return f"{name}.{zone.partition('/')[2].replace('_', '')}"


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class Fleet:
    """Five schedulers, and the one clock that all of them look at."""

    def __init__(self, site: Site, clock: Clock) -> None:
        self.site, self.clock = site, clock
        self.running = [self._start(place) for place in range(FLEET)]

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        arguments = ["-W", "error", "-m", "tests.survival.project.scheduler", str(self.clock.path), str(place)]
        log = (self.site.folder / f"scheduler-{place}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                env=self.site.environment(), cwd=ROOT, stdout=log, stderr=log, preexec_fn=die_with_parent,
            )  # fmt: skip

    def kill(self, place: int) -> None:
        self.running[place].kill()
        self.running[place].wait(10)
        self.running[place] = self._start(place)

    def reads(self, moment: datetime) -> None:
        """It is that time now: until one of them has looked at everything."""
        self.clock.set(ms(moment))
        wait_until(lambda: self.clock.newest_look() >= ms(moment), f"a look at {moment}", every=0.0005)

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(60)


@pytest.fixture
def restart(server: RedisServer) -> Callable[[], None]:
    """Kill the server under the store, and start it again."""

    def again() -> None:
        server.kill()
        server.start()

    return again


@pytest.fixture
def fleet(server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """They look after three schedules in each of five zones."""
    schedules = {
        key(zone, name): {"job": "work", "cron": expression.text, "timezone": zone}
        for zone in ZONES
        for name, expression in CRONS.items()
    }
    clock = Clock(tmp_path / "clock")
    site = Site(tmp_path, server.url, SCHEDULES=schedules, HISTORY={"succeeded": 0})
    fleet = Fleet(site, clock)
    yield fleet
    fleet.close()
    site.close()


@pytest.fixture
def worker(fleet: Fleet) -> Iterator[Store]:
    """Runs what they enqueue and forgets it at once: nothing but the schedule's own memory keeps a run from coming
    twice."""
    setting, options = fleet.site.store_setting, StoreOptions(history=0, clock=fleet.clock)
    store = Store.from_setting(setting, options=options)
    yield store
    store.close()


def run_all(store: Store) -> list[str]:
    """The ids of what waited."""
    ran: list[str] = []
    while claims := store.claim(Q, "w", 100, lease=60_000).claims:
        assert not store.complete(Q, [Completed(claim) for claim in claims])
        ran += [claim.id for claim in claims]
    return ran


@pytest.mark.accepts("G10", "G36", "G64", "G65", "G76")
def test_whatever_is_killed_each_run_of_each_schedule_is_enqueued_once(
    fleet: Fleet, worker: Store, restart: Callable[[], None]
) -> None:
    dice = random.Random(43)
    looks = looks_round_changes(dice)
    number = sum(map(len, looks))
    kills = set(dice.sample(range(number), KILLS))
    restarts = set(dice.sample(range(number), RESTARTS))
    begin = looks[0][0] - timedelta(hours=1)
    fleet.reads(begin)
    ran: Counter[tuple[str, int]] = Counter()
    for turn, moment in enumerate(moment for some in looks for moment in some):
        if turn in kills:
            fleet.kill(dice.randrange(FLEET))
        if turn in restarts:
            restart()
        fleet.reads(moment)
        ran.update((id.split(":")[2], int(id.split(":")[3])) for id in run_all(worker))
    fleet.close()
    ran.update((id.split(":")[2], int(id.split(":")[3])) for id in run_all(worker))
    expected = runs(begin, looks)
    assert (ran - expected, expected - ran) == (Counter(), Counter()), "too often, missed"
    print(f"\n{sum(ran.values())} runs, {number} looks")
