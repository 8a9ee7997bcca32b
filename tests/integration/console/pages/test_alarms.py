"""Alarms: each cause of an outage is one, "No problems" needs all of them checked, and every door shows the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.test import Client
from django.utils.translation import override

from django_jobs import alarms, browse, schedules
from django_jobs.alarms.facts import ArchiveWaiting, LateSchedule, Unchecked
from django_jobs.core.values import Done, Pause, QueueStats, State, WorkerInfo
from django_jobs.exceptions import StoreMisconfigured
from django_jobs.schedules.entry import Entry
from django_jobs.stores.redis import Store
from django_jobs.stores.values.answers import ParkedName
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db

NOW = 1_700_000_000_000
MINUTE = 60_000
SAFE = {"kind": "redis", "role": "master", "append_only_file": "on", "eviction_policy": "noeviction"}


# -- the rules, on facts made by hand -----------------------------------------


def facts(*stats: QueueStats, **more: Any) -> alarms.Facts:
    """What was measured where a worker serves the queue `mail` and nothing is wrong."""
    queues = {each.queue: each for each in stats}
    totals = {state.value: sum(each.counts.get(state, 0) for each in stats) for state in State}
    counted = browse.JobCounts(totals, queues, list(queues))
    worker = WorkerInfo("web-1", NOW, worker_info(queues=["mail"]))
    return alarms.Facts(NOW, counted, [worker], server=SAFE, **more)


def mail(**more: Any) -> QueueStats:
    counts = {state.value: more.pop(state.value, 0) for state in State}
    return QueueStats("mail", counts, **more)


def hour(failed: list[int], succeeded: list[int] | None = None) -> browse.Series:
    """The last 60 minutes; values are given from the end."""
    starts = [NOW - (59 - i) * MINUTE for i in range(60)]
    padded = [[0] * (60 - len(some)) + some for some in (failed, succeeded or [])]
    return browse.Series("hour", MINUTE, starts, dict(zip(("failed", "succeeded"), padded, strict=True)))


def redis(**more: str) -> dict[str, str]:
    return {**SAFE, **more}


CASES: dict[str, tuple[alarms.Facts, str, int]] = {
    "no_workers": (replace(facts(mail(retry=5)), workers=[]), "critical", 0),
    "no_worker": (facts(QueueStats("photos", {"queued": 3}, 5000)), "critical", NOW - 5000),
    "overdue": (facts(mail(scheduled=30, overdue=30, overdue_since=NOW - 60 * MINUTE)), "critical", NOW - 60 * MINUTE),
    "unknown": (facts(unknown=[ParkedName("mail", "new", 3, frozenset())]), "critical", 0),
    "failing": (facts(hour=hour([2, 3, 4, 3])), "critical", NOW - 3 * MINUTE),
    "retries": (facts(mail(retry=500), hour=hour([1, 1, 1, 1])), "warning", NOW - 3 * MINUTE),
    "latency": (facts(mail(queued=1, latency=6 * MINUTE)), "warning", NOW - 6 * MINUTE),
    "dead": (facts(mail(dead=1, dead_since=NOW - 7)), "warning", NOW - 7),
    "paused": (facts(mail(paused=Pause("why", 0, NOW - 9))), "notice", NOW - 9),
    "type_paused": (facts(mail(paused_types={"n": Pause("why", 0, NOW - 9)})), "notice", NOW - 9),
    "trimmed": (facts(mail(totals={"trimmed_dead": 4})), "notice", 0),
    "read_only": (replace(facts(), server=redis(role="slave")), "critical", 0),
    "not_saved": (replace(facts(), server=redis(last_save_failed="yes", last_save="17")), "critical", 17_000),
    "not_persistent": (replace(facts(), server=redis(append_only_file="off")), "warning", 0),
    "evicts": (replace(facts(), server=redis(eviction_policy="allkeys-lru")), "critical", 0),
    "full": (replace(facts(), server=redis(maxmemory="100", used_memory="100")), "critical", 0),
    "nearly_full": (replace(facts(), server=redis(maxmemory="100", used_memory="95")), "warning", 0),
    "schedule_missed": (facts(late=[LateSchedule("nightly", NOW - 5)]), "critical", NOW - 5),
    "schedule_broken": (facts(late=[LateSchedule("nightly", problem="no such job")]), "warning", 0),
    "schedules_idle": (replace(facts(schedules=2), workers=[]), "warning", 0),
    "archive": (facts(archive=[ArchiveWaiting("mail", 3, NOW - 10 * MINUTE, 9)]), "warning", NOW - 10 * MINUTE),
    "archive_full": (facts(archive=[ArchiveWaiting("mail", 9, NOW - 1, 9)]), "critical", NOW - 1),
    "not_archived": (facts(mail(totals={"not_archived": 4})), "notice", 0),
    "narrow": (replace(facts(), workers=[WorkerInfo("w", NOW, {"closed": 2})]), "warning", 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_each_cause_is_an_alarm_with_its_severity_and_since_when(kind: str) -> None:
    measured, severity, since = CASES[kind]
    (alarm,) = alarms.alarms_of(measured)
    assert (alarm.kind, alarm.severity, alarm.since) == (kind, severity, since)
    for language in ("en", "de"):
        with override(language):
            assert alarms.text_of(alarm)
    assert alarms.subject_of(alarm)
    assert alarms.link_of(alarm)


def test_every_kind_has_a_case() -> None:
    from django_jobs.alarms.texts import KINDS

    assert set(CASES) == set(KINDS)


def test_nothing_is_an_alarm_that_is_as_usual() -> None:
    busy = mail(queued=10, running=8, retry=20, scheduled=1000, succeeded=1000, latency=2000)
    steady = hour([4] * 60, [900] * 60)
    assert alarms.alarms_of(facts(busy, hour=steady)) == []
    assert alarms.alarms_of(facts(QueueStats("later", {"scheduled": 5}))) == [], "nothing is due yet"
    pulled = facts(QueueStats("photos", {"queued": 3}), pull_queues=frozenset({"photos"}))
    assert alarms.alarms_of(pulled) == [], "workers over HTTP do not report"


def test_an_outage_stays_an_alarm_when_it_lasts_longer_than_the_hour_it_is_compared_with() -> None:
    assert [a.kind for a in alarms.alarms_of(facts(hour=hour([50] * 60, [1] * 60)))] == ["failing"]


@pytest.mark.parametrize("state", ["stopping", "quiet"])
def test_a_worker_that_takes_no_more_jobs_serves_no_queue(state: str) -> None:
    worker = WorkerInfo("web-1", NOW, worker_info(queues=["mail"], state=state))
    measured = replace(facts(mail(queued=1)), workers=[worker])
    assert [alarm.kind for alarm in alarms.alarms_of(measured)] == ["no_workers"]


def test_the_worst_come_first() -> None:
    measured = facts(mail(dead=1, paused=Pause(), totals={"trimmed_dead": 4}), late=[LateSchedule("nightly", NOW)])
    assert [a.severity for a in alarms.alarms_of(measured)] == ["critical", "warning", "notice", "notice"]


# -- measured on a store ----------------------------------------------------


@pytest.fixture
def safe_store(console_store: Store) -> Iterator[Store]:
    """A store with a worker, keeping what it accepts."""
    console_store.publish_worker("web-1:4711", worker_info(queues=["default", "mail"]), 24 * 60 * MINUTE)
    console_store.transport.client.config_set("appendonly", "yes")
    yield console_store
    console_store.transport.client.config_set("appendonly", "no")


def kinds() -> set[str]:
    return {alarm.kind for alarm in alarms.check().alarms}


def test_all_is_well_where_everything_was_checked_and_nothing_is_wrong(
    safe_store: Store, filler: Filler, root: Client
) -> None:
    safe_store.complete("default", [Done(filler.run(filler.add()))])
    report = alarms.check()
    assert (report.alarms, report.unchecked, report.is_well) == ([], (), True)
    assert "No problems" in root.get(BASE).text


def test_scheduled_jobs_that_are_overdue(safe_store: Store, filler: Filler, root: Client, clock: Any) -> None:
    due = clock() + 60_000
    for _ in range(3):
        filler.make(State.SCHEDULED, run_in=60_000)
    assert kinds() == set()
    clock.advance(60_000 + 59_000)
    assert "overdue" not in kinds()
    clock.advance(3_600_000)
    (alarm,) = [alarm for alarm in alarms.check().alarms if alarm.kind == "overdue"]
    assert (alarm.queue, alarm.number, alarm.since) == ("default", 3, due)
    assert "3 jobs of default are overdue" in root.get(BASE).text
    safe_store.pause("default")
    assert "overdue" not in kinds(), "somebody wanted it"


@pytest.mark.accepts("G78")
def test_work_without_a_worker_is_red_in_any_state(console_store: Store, filler: Filler, root: Client) -> None:
    for state in (State.RETRY, State.RUNNING):
        filler.make(state)
    assert {"no_workers"} <= kinds()
    console_store.publish_worker("web-1:4711", worker_info(queues=["mail"]), 60_000)
    assert {"no_worker"} <= kinds()
    assert "2 jobs of default are waiting, and no worker serves this queue." in root.get(BASE).text
    assert "No problems" not in root.get(BASE).text


def test_retries_that_pile_up(safe_store: Store, filler: Filler, root: Client) -> None:
    for _ in range(500):
        filler.make(State.RETRY)
    assert "retries" in kinds()
    assert "500 jobs wait for a retry." in root.get(BASE).text


def test_dead_jobs_say_since_when(safe_store: Store, filler: Filler, clock: Any) -> None:
    first = clock()
    filler.make(State.DEAD)
    clock.advance(5000)
    filler.make(State.DEAD)
    (alarm,) = [alarm for alarm in alarms.check().alarms if alarm.kind == "dead"]
    assert (alarm.number, alarm.since) == (2, first)


@pytest.fixture
def nightly(monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A schedule of every full hour."""
    entry = Entry("settings:nightly", "shop.send_receipt", "0 * * * *", args=[1], label="nightly")
    monkeypatch.setattr(schedules, "entries", lambda: [entry])
    return entry


def test_a_schedule_that_did_not_run(safe_store: Store, nightly: Entry, clock: Any) -> None:
    assert kinds() == set(), "no worker has seen it yet"
    schedules.state.begin(safe_store, nightly, clock())
    clock.advance(3 * 3_600_000)
    (alarm,) = alarms.check().alarms
    assert (alarm.kind, alarm.detail) == ("schedule_missed", "nightly")
    assert clock() - 3_600_000 - MINUTE <= alarm.since <= clock() - MINUTE
    schedules.pause(nightly)
    assert kinds() == set()


def test_with_many_queues_and_no_worker_every_queue_is_counted(
    console_store: Store, filler: Filler, root: Client
) -> None:
    for i in range(30):
        filler.add(queue=f"tenant-{i:02}")
    text = root.get(BASE).text
    assert "30 jobs are waiting, and no worker is running." in text
    assert "of the last hour could not be read" in text, "the events of so many queues are read by workers only"


# -- what could not be checked ---------------------------------------------------


@pytest.mark.parametrize(
    ("method", "text"),
    [("describe", "Memory, eviction and persistence"), ("parked", "Whether workers know the names")],
)
def test_what_the_store_does_not_tell_is_said_and_is_not_well(
    safe_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch, method: str, text: str
) -> None:
    def refuse(*_: object) -> None:
        raise StoreMisconfigured("NOPERM this user has no permissions")

    monkeypatch.setattr(browse, "unknown_names", lambda *_: safe_store.parked("default"))
    monkeypatch.setattr(safe_store, method, refuse)
    report = alarms.check()
    assert (report.alarms, report.is_well) == ([], False)
    page = root.get(BASE).text
    assert text in page
    assert "NOPERM" in page
    assert "No problems" not in page


def test_a_table_of_schedules_that_cannot_be_read_hides_no_other_alarm(
    safe_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> list[Entry]:
        raise OperationalError("the database is gone")

    monkeypatch.setattr(schedules, "entries", broken)
    filler.make(State.DEAD)
    report = alarms.check()
    assert "dead" in {alarm.kind for alarm in report.alarms}
    assert report.unchecked == (Unchecked("schedules", "OperationalError: the database is gone"),)


# -- the same list at every door ---------------------------------------------------


def test_page_command_and_doctor_say_the_same(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.make(State.DEAD)
    filler.add()
    filler.add(queue="mail")
    console_store.pause("mail", reason="moving")
    found = {alarms.text_of(alarm) for alarm in alarms.check().alarms}
    page = root.get(BASE).text
    out, code = StringIO(), 0
    try:
        call_command("jobs", "alarms", "--json", stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    said = json.loads(out.getvalue())
    assert code == 1, "work without a worker is critical"
    assert {each["text"] for each in said["alarms"]} == found
    assert said["well"] is False
    assert said["alarms"][0]["link"] == "/admin/django_jobs/dashboard/workers/"
    diagnosis = StringIO()
    with suppress(SystemExit):
        call_command("jobs", "doctor", stdout=diagnosis)
    for text in found:
        assert text.replace("'", "&#x27;") in page
        assert text in diagnosis.getvalue()
    assert "moving" in page
    assert "moving" in diagnosis.getvalue()


def test_a_release_is_not_stopped_because_no_worker_runs(
    make_redis_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = {kind: ("error" if kind in alarms.ERRORS else "warning") for kind in CASES}
    assert levels["no_workers"] == levels["overdue"] == levels["failing"] == "warning"
    assert levels["evicts"] == levels["read_only"] == levels["unknown"] == "error"
