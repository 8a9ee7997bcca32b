"""NOTIFY: each callable is told of each finding that starts and ends, once in the fleet; one that fails is found."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from django.core import mail

from django_jobs.operations import diagnosis
from django_jobs.operations.diagnosis import notifying
from django_jobs.operations.diagnosis.notifying import Notice
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db(transaction=True)

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
    with monkeypatch.context() as dies:
        dies.setattr(notifying, "tell", lambda notice: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            look(fleet, clock)
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
    settings.ADMINS = [("Ada", "ada@example.com")]
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
