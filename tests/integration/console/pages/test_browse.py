"""The only way operators look: pages over queues, bounded searches, groups, counts, the published snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs import browse
from django_jobs.browse import Match, counts, groups, pages, search
from django_jobs.core.values import Attempt, JobInfo, State
from django_jobs.stores.contract.store import Store
from tests.support.console_data import Filler


def ids(jobs: list[JobInfo]) -> list[str]:
    return [info.id for info in jobs]


# -- pages ---------------------------------------------------------------------


def test_a_page_of_several_queues_is_in_the_order_of_time(console_store: Store, filler: Filler, clock: Any) -> None:
    made = []
    for i in range(9):
        made.append(filler.make(State.DEAD, queue=("default", "mail", "photos")[i % 3]))
        clock.advance(1_000)
    assert ids(browse.page(State.DEAD).jobs) == made[::-1]
    assert browse.page(State.DEAD, "mail").total == 3


def test_pages_over_several_queues_hold_every_job_once(
    console_store: Store, filler: Filler, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", 4)
    made = set()
    for i in range(22):
        made.add(filler.make(State.DEAD, queue=("default", "mail", "photos")[i % 3]))
        clock.advance(1_000)
    first = browse.page(State.DEAD)
    assert (first.pages, first.total, first.bounded) == (6, 22, False)
    seen = [id for number in range(1, 7) for id in ids(browse.page(State.DEAD, None, number).jobs)]
    assert len(seen) == len(set(seen)) == 22
    assert set(seen) == made


def test_a_merged_list_that_ends_early_says_so(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)
    monkeypatch.setattr(pages, "MERGE_DEPTH", 4)
    for i in range(12):
        filler.make(State.DEAD, queue=("default", "mail")[i % 2])
    page = browse.page(State.DEAD, None, 99)
    assert (page.pages, page.number, page.total) == (2, 2, 12)
    assert page.bounded
    assert not browse.page(State.DEAD, "mail", 3).bounded


# -- searches ------------------------------------------------------------------


def test_a_search_ends_where_its_budget_ends_and_goes_on_from_there(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN", 10)
    monkeypatch.setattr(search, "CHUNK", 4)
    for i in range(25):
        filler.make(State.DEAD, "needle" if i == 1 else "hay", queue=("default", "mail")[i % 2])
    found, start, looked = [], 0, 0
    while True:
        scan = browse.scan(State.DEAD, Match(text="NEEDLE"), start=start, show=10)
        found += scan.jobs
        looked += scan.scanned
        assert scan.scanned <= 10
        if scan.following is None:
            break
        start = scan.following
    assert (len(found), looked) == (1, 25)


def test_a_search_shows_no_more_than_fits(filler: Filler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SHOW", 3)
    for _ in range(8):
        filler.make(State.DEAD)
    first = browse.scan(State.DEAD, Match(text="timed out"), show=3)
    assert (len(first.jobs), first.scanned, first.following) == (3, 3, 3)


@pytest.mark.parametrize(
    ("match", "number"),
    [
        (Match(name="shop.send_receipt"), 2),
        (Match(text="order_id=41"), 1),
        (Match(text="ADA@"), 1),
        (Match(text="declined"), 1),
        (Match(error="shop.errors.Declined: Card … declined"), 1),
        (Match(queue="default", name="shop.charge_card", text="declined"), 1),
        (Match(text="4111"), 0),
        (Match(name="shop"), 0),
    ],
)
def test_what_a_search_finds(match: Match, number: int, filler: Filler) -> None:
    filler.make(State.DEAD, call=[[41], {}])
    filler.make(State.DEAD, call=[[1], {"email": "ada@example.com"}])
    filler.make(State.DEAD, "Card 7 declined", "shop.errors.Declined", name="shop.charge_card", call=[[2, "4111"], {}])
    assert len(browse.scan(State.DEAD, match).jobs) == number


# -- groups of errors ----------------------------------------------------------


def job_with(error: str, error_type: str = "ValueError") -> JobInfo:
    attempt = Attempt(1, "failed", 0, 0, "", error_type, error)
    return JobInfo("x", "default", b"-\nshop.job\n\n\n0\n\n[[],{}]", State.DEAD, attempts=(attempt,))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 is gone", "order 2041 is gone"),
        ("no user 'ada'", "no user 'bob'"),
        ('bad "a b"', 'bad "c"'),
        ("timeout after 30.5 s", "timeout after 2 s"),
        ("object at 0x7f12ab", "object at 0x7faaab"),
        ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "id 9a0c04e0-4f89-11d3-9a0c-0305e82c3301"),
        ("same\ndetails one", "same\ndetails two"),
    ],
)
def test_messages_that_differ_only_in_what_varies_are_one_group(one: str, other: str) -> None:
    assert len(groups.group_errors([job_with(one), job_with(other)])) == 1


def test_other_classes_and_other_words_are_other_groups() -> None:
    jobs = [job_with("a"), job_with("b"), job_with("a", "KeyError"), job_with("a")]
    assert [group.count for group in groups.group_errors(jobs)] == [2, 1, 1]


def test_a_group_of_jobs_without_a_log_is_shown_too() -> None:
    (group,) = groups.group_errors([JobInfo("x", "default", b"?", State.DEAD)])
    assert (group.count, group.signature) == (1, "(none)")


# -- numbers -------------------------------------------------------------------


def test_configured_queues_come_first_and_others_follow(console_store: Store, filler: Filler) -> None:
    filler.add(queue="zebra")
    filler.add(queue="ant")
    assert browse.queue_names() == ["default", "ant", "zebra"]


def test_a_series_has_every_minute_of_the_hour(console_store: Store, filler: Filler, clock: Any) -> None:
    for _ in range(3):
        filler.make(State.SUCCEEDED)
        filler.make(State.DEAD)
        clock.advance(60_000)
    hour = browse.series("hour")
    assert len(hour.starts) == 60
    assert {b - a for a, b in zip(hour.starts, hour.starts[1:], strict=False)} == {60_000}
    assert (sum(hour.values["succeeded"]), sum(hour.values["failed"])) == (3, 3)
    day = browse.series("day")
    assert len(day.starts) == 96
    assert sum(day.values["succeeded"]) == 3


@pytest.fixture
def few_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three queues are many."""
    monkeypatch.setattr(counts, "LIVE_QUEUES", 2)
    monkeypatch.setattr("django_jobs.browse.snapshot.LIVE_QUEUES", 2)


def fill(filler: Filler) -> None:
    for queue in ("default", "mail", "photos", "reports"):
        filler.make(State.DEAD, queue=queue)
        filler.make(State.SUCCEEDED, queue=queue)


def test_a_snapshot_says_the_same_as_asking(
    console_store: Store, filler: Filler, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(filler)
    console_store.pause("mail", reason="why")
    console_store.pause("photos", name="shop.send_receipt", reason="no paper")
    filler.make(State.SCHEDULED, queue="mail", run_in=60_000)
    clock.advance(3_600_000)
    asked, hour, day = browse.job_counts(), browse.series("hour"), browse.series("day")
    monkeypatch.setattr(counts, "LIVE_QUEUES", 2)
    monkeypatch.setattr("django_jobs.browse.snapshot.LIVE_QUEUES", 2)
    assert browse.publish_snapshot()
    told = browse.job_counts()
    assert told.at == clock()
    assert told.counts == asked.counts
    assert told.missing == 0
    paused = told.queues["mail"].paused
    assert paused is not None
    assert paused.reason == "why"
    for queue, stats in asked.queues.items():
        same = ("counts", "latency", "paused_types", "overdue", "overdue_since", "dead_since", "unarchived")
        assert [getattr(told.queues[queue], key) for key in same] == [getattr(stats, key) for key in same]
    assert told.queues["mail"].overdue == 1
    assert list(told.queues["photos"].paused_types) == ["shop.send_receipt"]
    assert (browse.series("hour"), browse.series("day")) == (hour, day)


def test_a_series_goes_on_from_snapshot_to_snapshot(
    console_store: Store, filler: Filler, few_live: None, clock: Any
) -> None:
    for _ in range(50):
        fill(filler)
        browse.publish_snapshot()
        clock.advance(61_000)
    browse.publish_snapshot()
    assert sum(browse.series("day").values["dead"]) == 200
    hour = browse.series("hour")
    assert sum(hour.values["succeeded"]) == 200


def test_an_old_snapshot_is_not_believed(console_store: Store, filler: Filler, few_live: None, clock: Any) -> None:
    fill(filler)
    browse.publish_snapshot()
    clock.advance(counts.SNAPSHOT_LIFE + 1)
    counted = browse.job_counts()
    assert counted.at == 0
    assert (counted.missing, counted.counts["dead"]) == (0, 4), "no worker publishes, so every queue is counted"


def test_with_more_queues_than_can_be_counted_in_time_it_says_how_many_are_missing(
    console_store: Store, filler: Filler, few_live: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(filler)
    monkeypatch.setattr(counts, "COUNT_FOR", 0.0)
    assert browse.job_counts().missing == 2


def test_one_worker_publishes_for_all(console_store: Store, filler: Filler, few_live: None, clock: Any) -> None:
    fill(filler)
    assert browse.publish_snapshot() is True
    assert browse.publish_snapshot() is False
    clock.advance(5_000)
    assert browse.publish_snapshot() is True
