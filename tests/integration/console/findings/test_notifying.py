"""NOTIFY: each callable is told of each finding that starts and ends, once in the fleet; one that fails is found."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import django
import pytest
from django.core import mail
from django.db import OperationalError

from django_jobs import browse, remote, schedules
from django_jobs.core.values import State
from django_jobs.operations import diagnosis
from django_jobs.operations.diagnosis import facts, notifying
from django_jobs.operations.diagnosis.failing import TypeNumbers
from django_jobs.operations.diagnosis.finding import Finding, Severity
from django_jobs.operations.diagnosis.looks import LongRun, Work
from django_jobs.operations.diagnosis.notifying import Notice
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db(transaction=True)

ERROR = Severity.ERROR
HERE = "tests.integration.console.findings.test_notifying"
heard: list[tuple[str, str, str]] = []
let_go = Event()


def hear(notice: Notice) -> None:
    heard.append((notice.event, notice.kind, notice.subject))


def fail(notice: Notice) -> None:
    raise OSError("the pager is off")


def hang(notice: Notice) -> None:
    let_go.wait(60)


@pytest.fixture
def fleet(safe_store: Store, settings: Any) -> Iterator[Store]:
    """A queue without a worker, and a callable that hears of it."""
    notify(settings, safe_store, "hear")
    heard.clear()
    let_go.clear()
    Filler(safe_store).add(queue="photos")
    yield safe_store
    let_go.set()


def notify(settings: Any, store: Store, *names: str) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "NOTIFY": [f"{HERE}.{name}" for name in names]}
    use_store(store)


def look(store: Store, clock: Clock) -> None:
    """The next turn of a worker."""
    clock.advance(notifying.EVERY)
    store.publish_worker("web-1:4711", worker_info(queues=["default", "mail"], children=[]), 60_000)
    notifying.notify()


def look_and_die(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of a worker that dies before its first message."""
    with monkeypatch.context() as dies:
        dies.setattr(notifying, "tell", lambda notice: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            look(store, clock)


def test_each_start_and_each_end_is_told_once_in_the_fleet(fleet: Store, clock: Clock) -> None:
    for _ in range(3):
        look(fleet, clock)
        notifying.notify()  # another worker, in the same moment
    assert heard == [("started", "no_worker", "photos")]
    fleet.publish_worker("web-2:1", worker_info(queues=["photos"], started_at=clock()), 600_000)
    for _ in range(2):
        look(fleet, clock)
    assert heard[1:] == [("ended", "no_worker", "photos")]
    fleet.forget_worker("web-2:1")
    look(fleet, clock)
    assert heard[2:] == [("started", "no_worker", "photos")]


def test_what_a_worker_left_half_told_is_told_again(
    fleet: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_and_die(fleet, clock, monkeypatch)
    look(fleet, clock)
    assert heard == [], "the other may still be at it"
    for _ in range(4):
        look(fleet, clock)
    assert heard == [("started", "no_worker", "photos")]


def test_what_is_acknowledged_is_not_told(fleet: Store, clock: Clock) -> None:
    diagnosis.acknowledge(diagnosis.check().findings, clock() + 3_600_000, by="ada", reason="known")
    look(fleet, clock)
    assert heard == []


@pytest.mark.parametrize("bad", ["fail", "hang", "missing"])
def test_one_that_fails_or_hangs_keeps_no_other_and_is_found(
    fleet: Store, clock: Clock, settings: Any, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    monkeypatch.setattr(notifying, "TIMEOUT", 0.5)
    notify(settings, fleet, bad, "hear")
    look(fleet, clock)
    assert heard == [("started", "no_worker", "photos")]
    (found,) = [each for each in diagnosis.check().findings if each.kind == "notifier"]
    assert found.subject == f"{HERE}.{bad}"
    assert {"fail": "the pager is off", "hang": "not returned", "missing": "ImportError"}[bad] in found.reason
    notify(settings, fleet, "hear")
    assert [each for each in diagnosis.check().findings if each.kind == "notifier"] == []


def test_many_are_told_bit_by_bit(fleet: Store, clock: Clock) -> None:
    for n in range(12):
        Filler(fleet, f"x{n}").add(queue=f"q{n}")
    told = [notifying.AT_ONCE, notifying.AT_ONCE, 3, 0]
    clock.advance(notifying.EVERY)
    assert [notifying.notify() for _ in told] == told
    assert len(set(heard)) == len(heard) == 13


def test_a_mail_is_sent(fleet: Store, clock: Clock, settings: Any) -> None:
    # Django 6.1 warns where it is not set.
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
    # Django 5.2 wants pairs, and 6.0 warns of them.
    settings.ADMINS = ["ada@example.com"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.com")]
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "NOTIFY": [f"{notifying.__name__}.mail"]}
    use_store(fleet)
    look(fleet, clock)
    (sent,) = mail.outbox
    assert "started: no_worker photos" in sent.subject
    assert "1 job of photos is waiting, and no worker serves this queue." in sent.body


@pytest.mark.parametrize("value", [7, [], {}, {"at": "x"}, "text"])
def test_damaged_entries_are_told_anew(fleet: Store, clock: Clock, value: Any) -> None:
    key = diagnosis.check().findings[0].key
    fleet.update_document("notified", {key: value, "": value})
    look(fleet, clock)
    assert heard == [("started", "no_worker", "photos")]


def serve(store: Store, clock: Clock) -> None:
    store.publish_worker("web-2:1", worker_info(queues=["photos"], started_at=clock(), children=[]), 600_000)


def never_told(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    known = store.describe()
    monkeypatch.setattr(store, "describe", lambda: known | {"eviction_policy": "unknown"})


def too_many_schedules(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    entries = [ScheduleEntry(f"settings:{n}", "shop.send_receipt", "0 0 1 1 *", label=f"s{n}") for n in range(3)]
    monkeypatch.setattr(schedules, "entries", lambda: entries)
    monkeypatch.setattr(facts, "SCHEDULES", 2)


def too_many_failures(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """In more queues than can be compared with what is usual."""
    filler = Filler(store, "f")
    for n in range(22):
        filler.make(State.DEAD, queue=f"q{n:02}")
    browse.publish_snapshot()


@pytest.mark.parametrize("never_checked", [never_told, too_many_schedules, too_many_failures])
def test_what_is_never_checked_silences_nothing_else(
    fleet: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, never_checked: Any
) -> None:
    never_checked(monkeypatch, fleet)
    look(fleet, clock)
    assert diagnosis.check().unchecked
    serve(fleet, clock)
    look(fleet, clock)
    fleet.forget_worker("web-2:1")
    look(fleet, clock)
    assert [event for event, _, subject in heard if subject == "photos"] == ["started", "ended", "started"]


def test_a_rule_that_could_not_run_does_not_say_that_its_findings_are_over(
    fleet: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OperationalError("the database is away")

    look(fleet, clock)
    with monkeypatch.context() as away:
        away.setattr(remote, "pull_queues", refuse)
        serve(fleet, clock)
        look(fleet, clock)
        assert len(heard) == 1, "who serves the queue is not known"
    look(fleet, clock)
    assert heard[1:] == [("ended", "no_worker", "photos")]


def test_a_queue_that_was_left_out_is_not_said_to_be_over(
    fleet: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = TypeNumbers("photos", "shop.send_receipt", 10, 10, None, 0)
    for types, left_out, said in (
        ([work], [], [("started", "failing", "shop.send_receipt")]),
        ([], ["photos"], []),
        ([], ["videos"], [("ended", "failing", "shop.send_receipt")]),
    ):
        heard.clear()
        monkeypatch.setattr(facts.failing, "failing_types", lambda *_, found=(types, left_out), **more: found)
        look(fleet, clock)
        assert [each for each in heard if each[1] == "failing"] == said


def test_a_finding_whose_place_a_wider_one_takes_is_not_over(fleet: Store, clock: Clock) -> None:
    look(fleet, clock)
    fleet.forget_worker("web-1:4711")
    clock.advance(notifying.EVERY)
    notifying.notify()
    assert heard[1:] == [("started", "no_worker", "workers")], "no worker at all serves photos"
    serve(fleet, clock)
    look(fleet, clock)
    assert sorted(heard[2:]) == [("ended", "no_worker", "photos"), ("ended", "no_worker", "workers")]


def test_a_pause_that_holds_up_work_for_a_day_goes_on(fleet: Store, clock: Clock) -> None:
    fleet.pause("mail", reason="moving")
    Filler(fleet, "m").add(queue="mail")
    for _ in range(4):
        look(fleet, clock)
    assert ("started", "standstill", "mail") in heard
    heard.clear()
    clock.advance(86_400_000)
    look(fleet, clock)
    assert [each for each in heard if each[2] == "mail"] == [("started", "forgotten_pause", "mail")]


def test_a_slow_callable_is_told_once(fleet: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker looks while the last of several messages is being told: all of them took more than a minute."""
    for n in range(4):
        Filler(fleet, f"x{n}").add(queue=f"q{n}")
    tell = notifying.tell

    def slowly(notice: Notice) -> None:
        tell(notice)
        clock.advance(20_000)
        fleet.publish_worker("web-1:4711", worker_info(queues=["default", "mail"], children=[]), 60_000)
        if len(heard) == notifying.AT_ONCE:
            monkeypatch.setattr(notifying, "tell", tell)
            notifying.notify()

    monkeypatch.setattr(notifying, "tell", slowly)
    look(fleet, clock)
    told = [each for each in heard if each[1] == "no_worker"]
    assert len(told) == len(set(told)) == 5


def test_a_clock_that_was_put_back_does_not_hold_up_what_was_half_told(
    fleet: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_and_die(fleet, clock, monkeypatch)
    clock.advance(-86_400_000)
    look(fleet, clock)
    assert ("started", "no_worker", "photos") in heard


def test_what_a_newer_version_has_found_is_left_to_it(fleet: Store, clock: Clock) -> None:
    entry = {"event": "started", "kind": "tides", "subject": "moon", "at": clock(), "done": True}
    fleet.update_document("notified", {"spring_tide\tphotos\tmoon\t": entry})
    look(fleet, clock)
    assert heard == [("started", "no_worker", "photos")]
    assert "spring_tide\tphotos\tmoon\t" in fleet.get_document("notified")


def test_jobs_of_one_type_that_run_too_long_are_told_once(
    fleet: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def running(*ids: str) -> None:
        long = [LongRun("mail", id, "shop.import", clock() - 600_000, 1000) for id in ids]
        monkeypatch.setattr(facts.looks, "running_work", lambda *_: Work(long))

    for ids, said in ((("a", "b"), ["started"]), (("b",), []), ((), ["ended"])):
        running(*ids)
        heard.clear()
        look(fleet, clock)
        assert [event for event, kind, _ in heard if kind == "overrun"] == said


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        (Finding("no_workers", ERROR), Finding("no_worker", ERROR, queue="photos"), True),
        (Finding("no_worker", ERROR, queue="photos"), Finding("no_workers", ERROR), False),
        (Finding("retries", ERROR), Finding("retries_type", ERROR, queue="q", detail="n"), True),
        (Finding("retries", ERROR), Finding("failing", ERROR, queue="q", detail="n"), False),
        (Finding("full", ERROR), Finding("nearly_full", ERROR), True),
        (Finding("archive_full", ERROR, queue="q"), Finding("archive", ERROR, queue="q"), True),
        (Finding("archive_full", ERROR, queue="q"), Finding("archive", ERROR, queue="p"), False),
        (Finding("old_pause", ERROR, queue="q", detail="n"), Finding("held_work", ERROR, queue="q", detail="m"), False),
        (
            Finding("hung_workflow", ERROR, queue="q", detail="order 7", job="j", more={"type": "n"}),
            Finding("overrun", ERROR, queue="q", detail="n", job="j"),
            True,
        ),
    ],
)
def test_a_wider_finding_takes_the_place_of_those_that_it_includes(
    wide: Finding, narrow: Finding, is_covered: bool
) -> None:
    assert wide.covers(narrow.told_as) is is_covered
