"""Findings: each cause of an outage is one, "No problems" needs all of them checked, and every door shows the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.test import Client
from django.utils.translation import override

from django_jobs import browse, schedules
from django_jobs.browse import Halted
from django_jobs.core.values import Completed, Pause, QueueStats, State, WorkerInfo
from django_jobs.exceptions import StoreMisconfigured
from django_jobs.operations import diagnosis
from django_jobs.operations.diagnosis.causes import KINDS
from django_jobs.operations.diagnosis.facts import ArchiveWaiting, FailedNotifier, Unchecked
from django_jobs.operations.diagnosis.failing import TypeNumbers, usual_part
from django_jobs.operations.diagnosis.late import LateSchedule
from django_jobs.operations.diagnosis.lines import ERRORS
from django_jobs.operations.diagnosis.looks import LongRun, Work
from django_jobs.operations.kept import Contents
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.stores.redis import Store
from django_jobs.stores.values.answers import ParkedName
from django_jobs.workflows.reading import STEP_STATES, WorkflowInfo
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db

NOW = 1_700_000_000_000
MINUTE = 60_000
SAFE = {"kind": "redis", "role": "master", "append_only_file": "on", "eviction_policy": "noeviction"}


# -- the rules, on facts made by hand -----------------------------------------


def facts(*stats: QueueStats, **more: Any) -> diagnosis.Facts:
    """What was measured where a worker serves the queue `mail` and nothing is wrong."""
    queues = {each.queue: each for each in stats}
    totals = {state.value: sum(each.counts.get(state, 0) for each in stats) for state in State}
    counted = browse.JobCounts(totals, queues, list(queues))
    worker = WorkerInfo("web-1", NOW, worker_info(queues=["mail"]))
    return diagnosis.Facts(NOW, counted, [worker], server=SAFE, **more)


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


DAY = 24 * 60 * MINUTE
HANGS = LongRun("mail", "1", "n", NOW - MINUTE)
FULL = Work([HANGS], {"mail": (NOW - MINUTE, "1")})
FREE = WorkerInfo("web-1", NOW, worker_info(queues=["mail"], children=[]))
FLOW = WorkflowInfo(
    "w1", "workflow", "import", "stopped", 1, NOW - 9, None, 3, dict.fromkeys(STEP_STATES, 0) | {"dead": 2}
)


def replaced(**more: Any) -> TypeNumbers:
    return TypeNumbers("mail", "n", 0, 0, None, 0)._replace(**more)


CASES: dict[str, tuple[diagnosis.Facts, str, int]] = {
    "no_workers": (replace(facts(mail(retry=5)), workers=[]), "error", 0),
    "no_worker": (facts(QueueStats("photos", {"queued": 3}, 5000)), "error", NOW - 5000),
    "overdue": (facts(mail(scheduled=30, overdue=30, overdue_since=NOW - 60 * MINUTE)), "error", NOW - 60 * MINUTE),
    "unknown": (facts(unknown=[ParkedName("mail", "new", 3, frozenset())]), "error", 0),
    "failing": (facts(types=[TypeNumbers("mail", "n", 12, 50, 0.02, NOW - 7)]), "error", NOW - 7),
    "retries": (facts(mail(retry=500), hour=hour([1, 1, 1, 1])), "warning", 0),
    "retries_type": (facts(types=[replaced(retrying=40, retrying_since=NOW - DAY)]), "warning", NOW - DAY),
    "hung": (facts(mail(blocked=9), work=Work([HANGS._replace(holders=["1"], behind=9)])), "error", NOW - MINUTE),
    "hung_queue": (facts(mail(queued=9, latency=50_000), work=FULL), "error", NOW - MINUTE),
    "hung_workflow": (facts(work=Work([HANGS._replace(flow=FLOW)])), "error", NOW - MINUTE),
    "hung_batch": (facts(work=Work([HANGS._replace(flow=FLOW._replace(kind="batch"))])), "error", NOW - MINUTE),
    "held_work": (facts(mail(queued=3, paused=Pause("why", 0, NOW - MINUTE))), "warning", NOW - MINUTE),
    "old_pause": (facts(mail(paused_types={"n": Pause("why", 0, NOW - DAY)})), "warning", NOW - DAY),
    "schedule_paused": (facts(late=[LateSchedule("nightly", paused=NOW - DAY)]), "warning", NOW - DAY),
    "schedule_skipped": (facts(late=[LateSchedule("nightly", skipped=NOW - 5)]), "warning", NOW - 5),
    "overrun": (facts(work=Work([HANGS._replace(usual=10_000)])), "warning", NOW - MINUTE),
    "neglected": (replace(facts(mail(queued=1, latency=MINUTE)), workers=[FREE]), "error", NOW - MINUTE),
    "silent": (facts(silent=[WorkerInfo("w", NOW - 90_000, {"host": "web-2"})]), "error", NOW - 90_000),
    "child_silent": (replace(facts(), workers=[WorkerInfo("w", NOW, {"problems": ["It is silent."]})]), "error", 0),
    "clock": (replace(facts(), workers=[WorkerInfo("w", NOW, {"at": NOW - 5000})]), "warning", 0),
    "server_clock": (facts(clock_off=-5.0), "warning", 0),
    "stopped_workflow": (facts(halted=[Halted(FLOW, "stopped")]), "warning", NOW - 9),
    "open_batch": (facts(halted=[Halted(FLOW, "open")]), "warning", NOW - 9),
    "latency": (facts(mail(queued=1, latency=6 * MINUTE)), "warning", NOW - 6 * MINUTE),
    "dead": (facts(mail(dead=1, dead_since=NOW - 7)), "notice", NOW - 7),
    "paused": (facts(mail(paused=Pause("why", 0, NOW - 9))), "notice", NOW - 9),
    "type_paused": (facts(mail(paused_types={"n": Pause("why", 0, NOW - 9)})), "notice", NOW - 9),
    "trimmed": (facts(mail(totals={"trimmed_dead": 4})), "notice", 0),
    "read_only": (replace(facts(), server=redis(role="slave")), "error", 0),
    "not_saved": (replace(facts(), server=redis(last_save_failed="yes", last_save="17")), "error", 17_000),
    "not_persistent": (replace(facts(), server=redis(append_only_file="off")), "warning", 0),
    "evicts": (replace(facts(), server=redis(eviction_policy="allkeys-lru")), "error", 0),
    "full": (replace(facts(), server=redis(maxmemory="100", used_memory="100")), "error", 0),
    "nearly_full": (replace(facts(), server=redis(maxmemory="100", used_memory="95")), "warning", 0),
    "schedule_missed": (facts(late=[LateSchedule("nightly", NOW - 5)]), "error", NOW - 5),
    "schedule_broken": (facts(late=[LateSchedule("nightly", problem="no such job")]), "warning", 0),
    "schedules_idle": (replace(facts(schedules=2), workers=[]), "warning", 0),
    "archive": (facts(archive=[ArchiveWaiting("mail", 3, NOW - 10 * MINUTE, 9)]), "warning", NOW - 10 * MINUTE),
    "archive_full": (facts(archive=[ArchiveWaiting("mail", 9, NOW - 1, 9)]), "error", NOW - 1),
    "outbox": (facts(outbox=Contents(waiting=3, oldest=90.0)), "error", NOW - 90_000),
    "outbox_held": (facts(outbox=Contents(waiting=3, held=2, oldest=29.0)), "warning", 0),
    "notifier": (facts(notifiers=[FailedNotifier("shop.page", NOW - 5, "OSError: no")]), "warning", NOW - 5),
    "outbox_off": (facts(outbox=Contents(left=2)), "error", 0),
    "not_archived": (facts(mail(totals={"not_archived": 4})), "notice", 0),
    "narrow": (replace(facts(), workers=[WorkerInfo("w", NOW, {"closed": 2})]), "warning", 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_each_cause_is_an_alarm_with_its_severity_and_since_when(kind: str) -> None:
    measured, severity, since = CASES[kind]
    (found,) = diagnosis.findings_of(measured)
    assert (found.cause, found.severity.value, found.since) == (kind, severity, since)
    for language in ("en", "de"):
        with override(language):
            assert found.says
    assert found.subject
    assert found.link


def test_every_kind_has_a_case() -> None:
    assert set(CASES) == set(KINDS)


def test_nothing_is_an_alarm_that_is_as_usual() -> None:
    busy = mail(queued=10, running=8, retry=20, scheduled=1000, succeeded=1000, latency=2000)
    steady = hour([4] * 60, [900] * 60)
    assert diagnosis.findings_of(facts(busy, hour=steady)) == []
    assert diagnosis.findings_of(facts(QueueStats("later", {"scheduled": 5}))) == [], "nothing is due yet"
    pulled = facts(QueueStats("photos", {"queued": 3}), pull_queues=frozenset({"photos"}))
    assert diagnosis.findings_of(pulled) == [], "workers over HTTP do not report"


@pytest.mark.parametrize(
    ("parts", "usual"),
    [
        ([0.02] * 100, 0.02),
        ([0.02] * 100 + [0.9] * 60, 0.02),  # an outage of two days and a half
        ([0.05, 1.0, 1.0], 0.05),  # a young fleet
        ([1.0] * 5, None),  # it has failed since it began
        ([0.02] * 20 + [0.9] * 80, 0.9),  # it has been so for three days
        ([0.6] * 100, 0.6),  # what has been so for days is the usual
        ([], None),
    ],
)
def test_the_usual_is_from_before_the_trouble(parts: list[float], usual: float | None) -> None:
    assert usual_part(parts) == usual


@pytest.mark.parametrize(
    ("numbers", "is_found"),
    [
        (replaced(failed=12, attempts=50, usual=0.02), True),
        (replaced(failed=12, attempts=50, usual=0.2), False),
        (replaced(failed=9, attempts=9, usual=0.0), False),  # few
        (replaced(failed=12, attempts=5000, usual=0.0), False),  # a part too small to tell
        (replaced(failed=45, attempts=50, usual=0.4), True),
        (replaced(failed=20, attempts=50), False),
        (replaced(failed=25, attempts=50), True),  # nothing is usual yet
    ],
)
def test_a_type_fails_that_fails_more_than_usual(numbers: TypeNumbers, is_found: bool) -> None:
    assert ["failing"] * is_found == [each.cause for each in diagnosis.findings_of(facts(types=[numbers]))]


def test_work_stands_still_only_behind_jobs_that_hang() -> None:
    """Not behind those of which one goes on, nor behind those that take no longer than usual."""
    for holders, long in (
        (["1", "2"], [HANGS]),
        (["1"], [HANGS._replace(usual=30_000)]),
    ):
        work = Work([each._replace(holders=holders, behind=9) for each in long], {"mail": (NOW - 1000, "2")})
        assert diagnosis.findings_of(facts(mail(blocked=9, queued=4, latency=50_000), work=work)) == []


def test_a_queue_stands_still_if_its_workers_are_full_of_jobs_of_others_that_hang() -> None:
    def full(jobs: int) -> diagnosis.Facts:
        own = [{"id": str(n), "queue": "photos", "name": "n", "since": NOW - MINUTE} for n in range(jobs)]
        info = worker_info(queues=["mail", "photos"], processes=1, threads=2, at=NOW, children=[{"jobs": own}])
        work = Work([HANGS._replace(queue="photos", id=str(n)) for n in range(jobs)])
        return replace(facts(mail(queued=4, latency=50_000), work=work), workers=[WorkerInfo("w", NOW, info)])

    (found,) = diagnosis.findings_of(full(2))
    assert (found.cause, found.link) == ("hung_queue", ("job", ("photos", "0"), ""))
    assert diagnosis.findings_of(full(1)) == []


def test_jobs_do_not_wait_behind_those_that_run_where_no_worker_takes_any() -> None:
    lost = facts(mail(queued=4, running=1, latency=50_000), work=FULL)
    lost = replace(lost, workers=[WorkerInfo("w", NOW, worker_info(queues=["photos"]))])
    assert [each.cause for each in diagnosis.findings_of(lost)] == ["no_worker"]


def test_nothing_is_cut_without_saying_how_many_more() -> None:
    many = [QueueStats(f"q{n:03}", {"queued": 3}, 5000) for n in range(500)]
    report = diagnosis.check(facts(*many))
    assert (len(report.findings), len(report.as_json())) == (500, 500)
    assert [left for _, left in report.lines()] == [0, 0, 0, 0, 495]


def test_a_type_whose_error_was_not_read_does_not_say_that_it_stands_beside() -> None:
    numbers = TypeNumbers("mail", "n", 10, 10, None, 0)
    for error, is_beside in (("ValueError: no", True), ("", False)):
        (found,) = diagnosis.findings_of(facts(types=[numbers._replace(error=error)]))
        assert ("The error is beside it" in found.act) is is_beside


@pytest.mark.parametrize("state", ["stopping", "quiet"])
def test_a_worker_that_takes_no_more_jobs_serves_no_queue(state: str) -> None:
    worker = WorkerInfo("web-1", NOW, worker_info(queues=["mail"], state=state))
    measured = replace(facts(mail(queued=1)), workers=[worker])
    assert [found.cause for found in diagnosis.findings_of(measured)] == ["no_workers"]


def test_the_worst_come_first() -> None:
    measured = facts(mail(dead=1, paused=Pause(), totals={"trimmed_dead": 4}), late=[LateSchedule("nightly", NOW)])
    assert [a.severity for a in diagnosis.findings_of(measured)] == ["error", "notice", "notice", "notice"]


@pytest.mark.parametrize("ago", [MINUTE, DAY])
def test_the_pauses_of_a_queue_and_of_a_type_with_its_name_are_acknowledged_apart(ago: int) -> None:
    pause = Pause("why", 0, NOW - ago)
    measured = facts(mail(queued=3, paused=pause, paused_types={"mail": pause}), behind={("mail", "mail"): 2})
    of_queue, of_type = diagnosis.findings_of(measured)
    assert of_queue.cause == of_type.cause
    assert of_queue.key != of_type.key
    assert of_queue.subject == of_type.subject == "mail"
    assert all("mail" in each.says for each in (of_queue, of_type))


# -- measured on a store ----------------------------------------------------


def kinds() -> set[str]:
    return {found.cause for found in diagnosis.check().findings}


def test_all_is_well_where_everything_was_checked_and_nothing_is_wrong(
    safe_store: Store, filler: Filler, root: Client
) -> None:
    safe_store.complete("default", [Completed(filler.run(filler.add()))])
    report = diagnosis.check()
    assert (report.findings, report.unchecked, report.is_well) == ([], (), True)
    assert "No problems" in root.get(BASE).text


def test_scheduled_jobs_that_are_overdue(safe_store: Store, filler: Filler, root: Client, clock: Any) -> None:
    due = clock() + 60_000
    for _ in range(3):
        filler.make(State.SCHEDULED, run_in=60_000)
    assert kinds() <= {"silent"}
    clock.advance(60_000 + 59_000)
    assert "overdue" not in kinds()
    clock.advance(3_600_000)
    (found,) = [found for found in diagnosis.check().findings if found.cause == "overdue"]
    assert (found.queue, found.number, found.since) == ("default", 3, due)
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


def test_the_error_of_a_failing_type_quotes_arguments_only_for_those_who_may_see_them(
    safe_store: Store, filler: Filler, root: Client, person: Callable[..., Client]
) -> None:
    for _ in range(12):
        filler.make(State.DEAD, "order of bob@example.com is unknown", call=[[1], {"email": "bob@example.com"}])
    job = filler.add()
    for page in (BASE, f"{BASE}job/default/{job}/"):
        assert "TimeoutError: order of bob@example.com is unknown" in root.get(page).text
    reader = person("view_jobs")
    for page in (BASE, f"{BASE}job/default/{job}/"):
        text = reader.get(page).text
        assert "TimeoutError: order of" in text
        assert "bob" not in text


@pytest.fixture
def nightly(monkeypatch: pytest.MonkeyPatch) -> ScheduleEntry:
    """A schedule of every full hour."""
    entry = ScheduleEntry("settings:nightly", "shop.send_receipt", "0 * * * *", args=[1], label="nightly")
    monkeypatch.setattr(schedules, "entries", lambda: [entry])
    return entry


def test_a_schedule_that_did_not_run(safe_store: Store, nightly: ScheduleEntry, clock: Any) -> None:
    assert kinds() == set(), "no worker has seen it yet"
    schedules.state.begin(safe_store, nightly, clock())
    clock.advance(3 * 3_600_000)
    (found,) = [each for each in diagnosis.check().findings if each.kind == "schedule_missed"]
    assert (found.cause, found.detail) == ("schedule_missed", "nightly")
    assert clock() - 3_600_000 - MINUTE <= found.since <= clock() - MINUTE
    schedules.pause(nightly)
    assert kinds() <= {"silent"}


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
    report = diagnosis.check()
    assert (report.findings, report.is_well) == ([], False)
    page = root.get(BASE).text
    assert text in page
    assert "NOPERM" in page
    assert "No problems" not in page


def test_a_table_of_schedules_that_cannot_be_read_hides_no_other_alarm(
    safe_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> list[ScheduleEntry]:
        raise OperationalError("the database is gone")

    monkeypatch.setattr(schedules, "entries", broken)
    filler.make(State.DEAD)
    report = diagnosis.check()
    assert "dead" in {found.cause for found in report.findings}
    assert report.unchecked == (Unchecked("schedules", "OperationalError: the database is gone"),)


# -- the same list at every door ---------------------------------------------------


def test_page_command_and_doctor_say_the_same(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.make(State.DEAD)
    filler.add()
    filler.add(queue="mail")
    console_store.pause("mail", reason="moving")
    found = {found.says for found in diagnosis.check().findings}
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
    inner = StringIO()
    with suppress(SystemExit):
        call_command("jobs", "findings", "--json", stdout=inner)
    listed = json.loads(inner.getvalue())
    assert {each["says"] for each in listed if each["kind"] != "not_checked"} < found, "without notices"
    assert {"kind", "severity", "subject", "since", "says"} <= listed[0].keys()
    doctor = StringIO()
    with suppress(SystemExit):
        call_command("jobs", "doctor", stdout=doctor)
    for text in found:
        assert text.replace("'", "&#x27;") in page
        assert text in doctor.getvalue()
    assert "moving" in page
    assert "moving" in doctor.getvalue()


def test_a_release_is_not_stopped_because_no_worker_runs(
    make_redis_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = {kind: ("error" if kind in ERRORS else "warning") for kind in CASES}
    assert levels["no_workers"] == levels["overdue"] == levels["failing"] == "warning"
    assert levels["evicts"] == levels["read_only"] == levels["unknown"] == "error"
