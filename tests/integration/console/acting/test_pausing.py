"""The buttons that pause a queue for a while."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client
from django.utils import timezone

from django_jobs.admin.jobs.forms import end_of
from django_jobs.models.audit import AuditEntry
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("value", "length"), [("15min", 15 * 60_000), ("1h", 3_600_000)])
def test_a_queue_is_paused_for_as_long_as_the_button_says(
    value: str, length: int, console_store: Store, filler: Filler, root: Client
) -> None:
    filler.add()
    before = console_store.now()
    assert "Paused until " in root.post(f"{BASE}queues/default/", {"do": "pause", "for": value}, follow=True).text
    paused = console_store.stats(["default"])[0].paused
    assert paused is not None
    assert before + length <= paused.until <= console_store.now() + length, "by the clock of the store"
    assert AuditEntry.objects.latest("pk").details["until"] == paused.until
    assert "until " in root.get(f"{BASE}history/").text


def test_a_second_identical_act_is_told_changes_nothing_and_is_not_in_the_history(
    console_store: Store, filler: Filler, root: Client, clock: Clock
) -> None:
    filler.add()
    page, moving = f"{BASE}queues/default/", {"do": "pause", "reason": "moving"}
    acts = [moving, {**moving, "name": "shop.send_receipt"}]
    for act in acts:
        assert "Paused: " in root.post(page, act, follow=True).text
        (before,) = console_store.stats(["default"])
        clock.advance(60_000)
        assert "It was paused already." in root.post(page, act, follow=True).text
        (after,) = console_store.stats(["default"])
        assert (after.paused, after.paused_types) == (before.paused, before.paused_types), "and since when"
    assert AuditEntry.objects.count() == 2
    for said in ("Resumed: ", "It was not paused any more."):
        for act in acts:
            assert said in root.post(page, {**act, "do": "resume"}, follow=True).text
    assert AuditEntry.objects.count() == 4
    for reason in ("moving", "moved"):
        root.post(page, {**moving, "reason": reason})
    assert AuditEntry.objects.count() == 6, "another reason is another pause"


def test_a_time_that_no_button_has_is_refused(console_store: Store, filler: Filler, root: Client) -> None:
    filler.add()
    assert root.post(f"{BASE}queues/default/", {"do": "pause", "for": "a year"}).status_code == 200
    assert console_store.stats(["default"])[0].paused is None


@pytest.mark.parametrize("page", ["queues/", "queues/default/"])
def test_only_those_who_may_pause_have_the_buttons(
    page: str, console_store: Store, filler: Filler, root: Client, person: Callable[..., Client]
) -> None:
    filler.add()
    assert 'name="for" value="1h"' in root.get(BASE + page).text
    assert 'name="for"' not in person("view_jobs", "retry_jobs").get(BASE + page).text
    console_store.pause("default")
    text = root.get(BASE + page).text
    assert 'name="for"' not in text
    assert 'value="resume"' in text


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-03-27T07:59:59", "2026-03-27T08:00:00"),
        ("2026-03-27T08:00:00", "2026-03-28T08:00:00"),
        ("2026-03-28T17:00:00", "2026-03-29T07:00:00"),  # in the night, clocks are put forward
    ],
)
def test_until_nine_is_the_next_nine_of_the_clock_on_the_wall(now: str, end: str) -> None:
    at, until = (int(datetime.fromisoformat(each).replace(tzinfo=UTC).timestamp() * 1000) for each in (now, end))
    with timezone.override("Europe/Berlin"):
        assert end_of("9:00", at) == until


def test_whether_the_end_of_a_pause_has_passed_is_told_by_the_clock_of_the_store(
    console_store: Store, filler: Filler, root: Client, clock: Clock
) -> None:
    filler.add()
    for ahead, is_paused in ((-60_000, False), (60_000, True)):
        until = datetime.fromtimestamp((clock() + ahead) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        with timezone.override(UTC):
            page = root.post(f"{BASE}queues/default/", {"do": "pause", "until": until}, follow=True).text
        assert ("This time has passed." in page) is not is_paused
        assert bool(console_store.stats(["default"])[0].paused) is is_paused
