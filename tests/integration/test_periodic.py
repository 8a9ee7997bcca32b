"""Periodic jobs: every fire once, whatever happens to the schedulers; and what the policies say."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import OperationalError
from django.test import override_settings

from django_jobs import registry, schedules
from django_jobs.cron import fires_between
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import InvalidSchedule, StoreUnavailable, UnknownSchedule
from django_jobs.signals import job_enqueued
from django_jobs.stores import get_store, use_store
from django_jobs.values import Done, Lane, State
from django_jobs.worker import schedule_rows
from django_jobs.worker.periodic import Periodic

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 20, 10, 0, 30, tzinfo=UTC)


def tick_job(*args, **kwargs):
    """What every schedule here runs."""


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.fixture(autouse=True)
def known_job():
    registry.register(JobDefinition(tick_job, name="tests.tick"))
    yield
    registry.unregister("tests.tick")


@pytest.fixture
def use(clock):
    """Put a store in use at START."""

    def put(store):
        use_store(store)
        clock.now = ms(START)
        return store

    return put


@pytest.fixture
def at(clock):
    def go(moment: datetime) -> None:
        clock.now = ms(moment)

    return go


@pytest.fixture
def enqueued():
    """The ids of the jobs that were added, in order."""
    ids: list[str] = []

    def receive(job_id, **_):
        ids.append(job_id)

    job_enqueued.connect(receive)
    yield ids
    job_enqueued.disconnect(receive)


def fire_times(ids: list[str]) -> list[datetime]:
    return [datetime.fromtimestamp(int(id.rpartition(":")[2]) / 1000, UTC) for id in ids]


@contextmanager
def settled(settings):
    """DJANGO_JOBS for a while, on the store that is in use: a change of settings would close it."""
    store = get_store()
    use_store(None)
    with override_settings(DJANGO_JOBS={"STORE": "memory", **settings}):
        use_store(store)
        try:
            yield
        finally:
            use_store(None)
    use_store(store)


def scheduled(**entries):
    """SCHEDULES with these entries of the job of this module."""
    return settled({"SCHEDULES": {key: {"job": "tests.tick", **entry} for key, entry in entries.items()}})


def finish_all(store):
    """Run everything that waits."""
    while claims := store.claim("default", "w", 100, lane=Lane.SHARED, lease=60_000).claims:
        store.complete("default", [Done(claim) for claim in claims])


@pytest.mark.accepts("G10", "G36", "G65")
@pytest.mark.parametrize("make_store", ["memory", pytest.param("redis", marks=pytest.mark.redis)], indirect=True)
def test_five_schedulers_fire_each_time_once_through_restarts_and_both_clock_changes(store, use, at, clock, enqueued):
    use(store)
    zones = ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"]
    crons = ["30 2 * * *", "30 1 * * *", "15 * * * *"]
    entries = {
        f"{zone.replace('/', '.')}-{n}".replace("_", ""): {"cron": text, "timezone": zone}
        for zone in zones
        for n, text in enumerate(crons)
    }
    dice = random.Random(7)
    begin, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 11, 10, tzinfo=UTC)
    windows = [(datetime(2026, m, d, tzinfo=UTC), timedelta(days=2)) for m, d in
               [(3, 7), (3, 28), (4, 4), (10, 3), (10, 24), (10, 31)]]  # fmt: skip
    with scheduled(**entries):
        at(begin)
        schedulers = [Periodic(lambda: 0.0) for _ in range(5)]
        expected: Counter[tuple[str, int]] = Counter()
        for window, length in windows:
            at(window)
            for key in entries:
                schedules.resume(schedules.get_entry(key))  # begin anew: the weeks between are not of interest
            now, until = window, window + length
            for key, entry in entries.items():
                zone = ZoneInfo(entry["timezone"])
                expected.update((key, ms(f)) for f in fires_between(entry["cron"], window, until, zone))
            while now < until:
                now = min(until, now + timedelta(seconds=dice.randint(600, 3300)))
                at(now)
                for _ in range(2):
                    n = dice.randrange(5)
                    if dice.random() < 0.1:
                        schedulers[n] = Periodic(lambda: 0.0)
                    schedulers[n].tick()
            finish_all(store)
    assert end > until
    fired = Counter((id.split(":")[2], int(id.split(":")[3])) for id in enqueued)
    assert fired == expected
    assert sum(fired.values()) > 300


@pytest.mark.accepts("G36", "G64", "G65", "G76")
def test_ten_thousand_fires_are_each_enqueued_once(memory_store, use, clock, enqueued):
    use(memory_store)
    with scheduled(every={"cron": "* * * * * *"}):
        schedulers = [Periodic(lambda: 0.0) for _ in range(5)]
        schedulers[0].tick()
        dice = random.Random(3)
        for step in range(10_000):
            clock.advance(1000)
            dice.choice(schedulers).tick()
            if step % 5 == 0:
                dice.choice(schedulers).tick()
            if step % 100 == 0:
                schedulers[dice.randrange(5)] = Periodic(lambda: 0.0)
                finish_all(memory_store)
    times = fire_times(enqueued)
    assert times == [START + timedelta(seconds=n) for n in range(1, 10_001)]


class TestBeginning:
    def test_a_new_schedule_does_not_fire_at_once_but_at_its_next_time(self, memory_store, use, at, enqueued):
        use(memory_store)
        with scheduled(nightly={"cron": "0 10 * * *"}):
            periodic = Periodic()
            assert periodic.tick() == 5.0
            assert enqueued == []
            at(START.replace(second=0) + timedelta(days=1))
            periodic.tick()
        assert enqueued == [f"cron:settings:nightly:{ms(START.replace(second=0) + timedelta(days=1))}"]

    def test_a_tick_says_how_long_until_the_next_fire(self, memory_store, use, clock):
        use(memory_store)
        with scheduled(soon={"cron": "*/10 * * * * *"}):
            clock.advance(7_500)
            assert Periodic().tick() == 2.5

    def test_a_changed_expression_begins_anew(self, memory_store, use, at, enqueued):
        use(memory_store)
        with scheduled(report={"cron": "0 0 * * *"}):
            Periodic().tick()
        at(START + timedelta(hours=5))
        with scheduled(report={"cron": "0 * * * *"}):
            Periodic().tick()
            assert enqueued == []
            at(START + timedelta(hours=6))
            Periodic().tick()
        assert len(enqueued) == 1

    def test_one_that_is_switched_off_and_on_again_makes_up_for_nothing(self, memory_store, use, at, enqueued):
        use(memory_store)
        with scheduled(report={"cron": "* * * * *"}):
            Periodic().tick()
        with scheduled(report={"cron": "* * * * *", "enabled": False}):
            at(START + timedelta(hours=1))
            Periodic().tick()
        with scheduled(report={"cron": "* * * * *"}):
            at(START + timedelta(hours=2))
            Periodic().tick()
        assert enqueued == []


class TestMissed:
    """After an outage of a day in which no scheduler ran."""

    @pytest.fixture
    def outage(self, memory_store, use, at):
        def run(after=timedelta(days=1), **entry):
            use(memory_store)
            with scheduled(job={"cron": "0 * * * *", **entry}):
                Periodic().tick()
                at(START + after)
                for _ in range(3):
                    Periodic().tick()

        return run

    def test_one_runs_the_last_missed_fire(self, outage, enqueued):
        outage(missed="one")
        assert fire_times(enqueued) == [datetime(2026, 11, 21, 10, tzinfo=UTC)]

    def test_one_is_the_default(self, outage, enqueued):
        outage()
        assert len(enqueued) == 1

    def test_skip_runs_none(self, outage, enqueued):
        outage(after=timedelta(days=1, minutes=5), missed="skip")
        assert enqueued == []

    def test_skip_still_runs_what_is_less_than_a_minute_late(self, outage, enqueued):
        outage(after=timedelta(days=1), missed="skip")
        assert len(enqueued) == 1

    def test_all_runs_each(self, outage, enqueued):
        outage(missed="all")
        assert fire_times(enqueued) == [datetime(2026, 11, 20, 11, tzinfo=UTC) + timedelta(hours=n) for n in range(24)]

    def test_all_runs_no_more_than_the_last_hundred(self, outage, enqueued):
        outage(missed="all", cron="* * * * *")
        assert len(enqueued) == 100
        assert fire_times(enqueued)[-1] == datetime(2026, 11, 21, 10, tzinfo=UTC)


class TestOverlap:
    def test_skip_leaves_a_fire_out_while_the_last_job_has_not_ended(self, store, use, at, enqueued):
        use(store)
        with scheduled(job={"cron": "* * * * *", "overlap": "skip"}):
            periodic = Periodic()
            periodic.tick()
            for minute in (1, 2, 3):
                at(START + timedelta(minutes=minute))
                periodic.tick()
            assert len(enqueued) == 1
            finish_all(store)
            periodic.tick()
            assert len(enqueued) == 1, "a fire that was left out is not made up for"
            at(START + timedelta(minutes=4))
            Periodic().tick()
        assert len(enqueued) == 2

    def test_allow_runs_beside_it(self, memory_store, use, at, enqueued):
        use(memory_store)
        with scheduled(job={"cron": "* * * * *"}):
            periodic = Periodic()
            periodic.tick()
            for minute in (1, 2, 3):
                at(START + timedelta(minutes=minute))
                periodic.tick()
        assert len(enqueued) == 3


def test_jitter_puts_the_job_off_by_the_same_time_everywhere(memory_store, use, at, enqueued):
    use(memory_store)
    with scheduled(job={"cron": "1 10 * * *", "jitter": 3600}):
        Periodic().tick()
        at(START + timedelta(minutes=1))
        Periodic().tick()
        Periodic().tick()
    (id,) = enqueued
    info = memory_store.get("default", id)
    assert info.state is State.SCHEDULED
    fire = ms(datetime(2026, 11, 20, 10, 1, tzinfo=UTC))
    assert fire < info.at <= fire + 3_600_000


def test_a_unique_job_that_still_waits_serves_the_fire(memory_store, use, at, enqueued):
    use(memory_store)
    registry.register(JobDefinition(tick_job, name="tests.unique_tick", unique="queued"))
    try:
        with scheduled(job={"cron": "* * * * *", "job": "tests.unique_tick"}):
            for minute in range(4):
                at(START + timedelta(minutes=minute))
                Periodic().tick()
            finish_all(memory_store)
            Periodic().tick()
        assert len(enqueued) == 1
    finally:
        registry.unregister("tests.unique_tick")


class TestFaults:
    @pytest.mark.accepts("G37")
    def test_a_broken_schedule_is_reported_once_and_stops_no_other(self, memory_store, use, at, enqueued, caplog):
        use(memory_store)
        broken = {
            "cron": {"cron": "0 0 31 2 *"},
            "zone": {"cron": "* * * * *", "timezone": "Mars/Olympus"},
            "unregistered": {"cron": "* * * * *", "job": "tests.nobody"},
            "args": {"cron": "* * * * *", "args": 5},
        }
        with scheduled(**broken, good={"cron": "* * * * *"}):
            periodic = Periodic()
            for minute in range(3):
                at(START + timedelta(minutes=minute))
                periodic.tick()
        assert len(enqueued) == 2
        reports = [record for record in caplog.records if "does not run" in record.message]
        assert len(reports) == len(broken)

    @pytest.mark.parametrize("fact", ["since:{times}:settings:job", "passed:settings:job", "paused:settings:job"])
    def test_what_the_fleet_remembers_may_be_damaged_and_stops_no_schedule(self, memory_store, use, at, enqueued, fact):
        use(memory_store)
        with scheduled(job={"cron": "* * * * *"}):
            Periodic().tick()
            name = fact.format(times=schedules.get_entry("job").times)
            memory_store.update_document("schedules", {name: ["soon"]})
            Periodic().tick()
            at(START + timedelta(minutes=1))
            Periodic().tick()
        assert len(enqueued) == 1

    def test_a_full_queue_keeps_the_fire_until_there_is_room(self, memory_store, use, at, enqueued):
        use(memory_store)
        settings = {
            "QUEUES": {"default": {"MAX_LENGTH": 1, "ON_FULL": "block"}},
            "SCHEDULES": {key: {"job": "tests.tick", "cron": "1 10 * * *"} for key in "ab"},
        }
        with settled(settings):
            periodic = Periodic()
            periodic.tick()
            at(START + timedelta(minutes=1))
            assert periodic.tick() == 1.0
            assert len(enqueued) == 1
            finish_all(memory_store)
            periodic.tick()
        assert len(enqueued) == 2

    def test_a_database_that_is_away_leaves_the_rows_as_they_were(self, memory_store, use, at, enqueued, monkeypatch):
        use(memory_store)
        from django_jobs.models import Schedule

        Schedule.objects.create(name="row", job="tests.tick", cron="* * * * *")
        time = iter(range(0, 1000, 10))
        periodic = Periodic(lambda: next(time))
        periodic.tick()

        def away():
            raise OperationalError("the database is away")

        monkeypatch.setattr(schedule_rows, "database_entries", away)
        at(START + timedelta(minutes=1))
        periodic.tick()
        assert len(enqueued) == 1

    def test_a_store_that_is_away_loses_no_fire(self, memory_store, use, at, enqueued, monkeypatch):
        use(memory_store)
        with scheduled(job={"cron": "* * * * *"}):
            periodic = Periodic()
            periodic.tick()
            at(START + timedelta(minutes=1))
            with monkeypatch.context() as patch:

                def away(*args, **kwargs):
                    raise StoreUnavailable

                patch.setattr(memory_store, "enqueue", away)
                with pytest.raises(StoreUnavailable):
                    periodic.tick()
            periodic.tick()
        assert len(enqueued) == 1


class TestByHand:
    def test_all_three_sources_are_listed(self, memory_store, use):
        from django_jobs.models import Schedule

        use(memory_store)
        registry.register(JobDefinition(tick_job, name="tests.decorated", cron="@hourly"))
        Schedule.objects.create(name="row", job="tests.tick", cron="@daily", timezone="Europe/Paris")
        try:
            with scheduled(nightly={"cron": "0 3 * * *"}):
                found = {entry.label: entry for entry in schedules.entries()}
        finally:
            registry.unregister("tests.decorated")
        assert found["tests.decorated"].id == "job:tests.decorated"
        assert found["nightly"].source == "settings"
        assert found["row"].timezone == "Europe/Paris"

    def test_next_runs_are_in_the_zone_of_the_schedule(self, memory_store, use):
        use(memory_store)
        with scheduled(job={"cron": "0 3 * * *", "timezone": "America/New_York"}):
            runs = schedules.next_runs(schedules.get_entry("job"), 2)
        assert runs == [datetime(2026, 11, 21, 8, tzinfo=UTC), datetime(2026, 11, 22, 8, tzinfo=UTC)]

    def test_run_now_does_not_touch_the_fire_times(self, memory_store, use, at):
        use(memory_store)
        with scheduled(job={"cron": "* * * * *"}):
            entry = schedules.get_entry("settings:job")
            assert schedules.last_run(entry) is None
            handle = schedules.run_now(entry)
            assert memory_store.get("default", handle.id) is None or handle.queue == "default"
            assert schedules.last_run(entry) is None
            Periodic().tick()
            at(START + timedelta(minutes=1))
            Periodic().tick()
            assert schedules.last_run(entry) == datetime(2026, 11, 20, 10, 1, tzinfo=UTC)

    def test_a_paused_schedule_rests_in_the_whole_fleet_and_makes_up_for_nothing(self, store, use, at, enqueued):
        use(store)
        with scheduled(job={"cron": "* * * * *"}):
            fleet = [Periodic(), Periodic()]
            entry = schedules.get_entry("job")
            fleet[0].tick()
            schedules.pause(entry)
            assert schedules.paused_at(entry) == START
            at(START + timedelta(minutes=10))
            for each in fleet:
                each.tick()
            schedules.resume(entry)
            assert schedules.paused_at(entry) is None
            for each in fleet:
                each.tick()
            assert enqueued == []
            at(START + timedelta(minutes=11))
            for each in fleet:
                each.tick()
        assert len(enqueued) == 1

    def test_a_schedule_that_cannot_run_says_so(self, memory_store, use):
        use(memory_store)
        with scheduled(job={"cron": "61 * * * *"}), pytest.raises(InvalidSchedule, match="61"):
            schedules.run_now(schedules.get_entry("job"))

    def test_an_unknown_schedule_names_those_there_are(self, memory_store, use):
        use(memory_store)
        with scheduled(job={"cron": "* * * * *"}), pytest.raises(UnknownSchedule, match="settings:job"):
            schedules.get_entry("nothing")
