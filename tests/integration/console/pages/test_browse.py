"""The only way operators look: pages over queues, bounded searches, groups, counts, the published snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from django_jobs import browse
from django_jobs.browse import Match, counts, error_key, pages, search
from django_jobs.core.values import JobInfo, State
from django_jobs.operations import bulk, searching
from django_jobs.operations.matching import count_matching
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler, search_in_small_steps


def ids(jobs: list[JobInfo]) -> list[str]:
    return [info.id for info in jobs]


# -- pages ---------------------------------------------------------------------


def test_pages_over_several_queues_hold_every_job_once(
    console_store: Store, filler: Filler, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", 4)
    made = set()
    for i in range(22):
        made.add(filler.make(State.DEAD, queue=f"q{i % 6}"))
        clock.advance(1_000)
    page, seen = browse.page(State.DEAD), []
    assert page.total == 22
    while True:
        seen += ids(page.jobs)
        if not page.following:
            break
        page = browse.page(State.DEAD, after=page.following)
    assert seen == sorted(made, reverse=True)


def test_jobs_of_a_queue_that_cannot_be_counted_are_listed_and_found(console_store: Store, filler: Filler) -> None:
    made = {filler.make(State.DEAD, queue=queue) for queue in ("default", "broken")}
    key = console_store.keys.of("broken")["totals"]
    console_store.transport.command("DEL", key)
    console_store.transport.command("SET", key, "junk")
    counted = browse.job_counts()
    assert (counted.holding(State.DEAD), counted.uncounted) == (["default"], ["broken"])
    assert set(ids(browse.page(State.DEAD).jobs)) == made
    assert set(ids(search.go_on(search.begin([State.DEAD], Match(text="01J")), 1.0).jobs)) == made


def test_a_place_in_a_list_that_somebody_made_up_is_its_beginning(filler: Filler) -> None:
    for i in range(3):
        filler.make(State.DEAD, queue=f"q{i}")
    for text in ("nonsense", "W10", "eyJhIjoxfQ", "é", "WyJhIiwiYiIsImMiXQ", "====="):
        assert len(browse.page(State.DEAD, after=text).jobs) == 3


# -- searches ------------------------------------------------------------------


def test_a_search_goes_on_where_it_stopped_to_the_end(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FIRST_READ", 4)
    monkeypatch.setattr(search, "READ_MORE", 1)
    for i in range(45):
        filler.make(State.DEAD, "needle" if i % 20 == 1 else "hay", queue=f"q{i % 6}")
    found, steps = search.begin([State.DEAD], Match(text="NEEDLE")), 0
    while not found.finished:
        before, steps = found, steps + 1
        found = search.go_on(found, 0)
        assert 0 <= found.seen - before.seen <= 4
        assert before.percent <= found.percent
    assert (found.matches, found.seen, found.total, found.percent) == (3, 45, 45, 100)
    assert len(set(found.found)) == 3
    assert steps > 10


def test_a_search_counts_all_and_names_the_first(filler: Filler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_FOUND", 3)
    for _ in range(8):
        filler.make(State.DEAD)
    found = search.go_on(search.begin([State.DEAD], Match(text="timed out")), 10)
    assert (len(found.found), found.matches, found.finished) == (3, 8, True)


def found_by(match: Match) -> int:
    """How many jobs a list with these filters has; counted before a bulk operation, too."""
    matching = count_matching(State.DEAD, match)
    assert matching.whole
    if browse.is_exact(State.DEAD, match):
        page = browse.selected(State.DEAD, match)
        assert len(page.jobs) == page.total
        number = page.total
    else:
        number = search.go_on(search.begin([State.DEAD], match), 10).matches
    assert matching.matching == number
    return number


@pytest.mark.parametrize(
    ("match", "number"),
    [
        (Match(name="shop.send_receipt"), 2),
        (Match(text="order_id=41"), 1),
        (Match(text="ADA@"), 1),
        (Match(text="declined"), 1),
        (Match(error="shop.errors.Declined: Card … declined"), 1),
        (Match(error=error_key("shop.errors.Declined: Card … declined")), 1),
        (Match(error="shop.errors.Declined: Card … declined", arguments=False), 0),
        (Match(error=error_key("shop.errors.Declined: Card … declined"), arguments=False), 1),
        (Match(queue="default", name="shop.charge_card", text="declined"), 1),
        (Match(queue="default", name="shop.charge_card"), 1),
        (Match(queue="mail", name="shop.charge_card"), 0),
        (Match(text="4111"), 0),
        (Match(name="shop"), 0),
    ],
)
def test_what_a_search_finds(match: Match, number: int, filler: Filler) -> None:
    filler.make(State.DEAD, call=[[41], {}])
    filler.make(State.DEAD, call=[[1], {"email": "ada@example.com"}])
    filler.make(State.DEAD, "Card 7 declined", "shop.errors.Declined", name="shop.charge_card", call=[[2, "4111"], {}])
    assert found_by(match) == number


def test_another_page_follows_a_long_search_and_a_worker_drives_it(
    console_store: Store, filler: Filler, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_in_small_steps(monkeypatch)
    for i in range(20):
        filler.make(State.DEAD, "needle", queue=f"q{i % 6}")
        clock.advance(1)
    match = Match(text="needle")
    first = searching.search([State.DEAD], match)
    assert 0 < first.seen < 20
    again = searching.search([State.DEAD], match)
    assert again == replace(first, jobs=[]), "a page does not drive what was just driven"
    while searching.tick(0):
        continue
    assert not searching.tick(0)
    whole = searching.search([State.DEAD], match)
    assert (whole.matches, whole.seen, whole.finished) == (20, 20, True)
    clock.advance(searching.KEEP + 1)
    searching.tick(0)
    assert console_store.get_document(searching.DOCUMENT) == {}


def test_a_search_that_is_not_stored_any_more_or_is_damaged_begins_again(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.make(State.DEAD, "needle")
    match = Match(text="needle")
    id = searching.id_of([State.DEAD], match)
    for entry in (7, {"at": 1}, {"at": console_store.now(), "state": "x"}, []):
        console_store.update_document(searching.DOCUMENT, {id: entry})
        assert searching.search([State.DEAD], match).matches == 1
        assert not searching.tick(0)


# -- groups of errors ----------------------------------------------------------


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
def test_messages_that_differ_only_in_what_varies_are_one_group(one: str, other: str, filler: Filler) -> None:
    filler.make(State.DEAD, one, queue="mail")
    filler.make(State.DEAD, other)
    (group,) = browse.error_groups(State.DEAD, Match())
    assert group.count == 2


def test_a_reader_without_arguments_learns_no_error_of_them(filler: Filler) -> None:
    filler.make(State.DEAD, "no such user: ada@example.com", "LookupError", call=[["ada@example.com"], {}])
    filler.make(State.DEAD, "card refused for secret-word", "LookupError", name="shop.charge_card",
                call=[[1], {"card_number": "secret-word"}])  # fmt: skip
    shown = [f"{group.error_type} {group.message}" for group in browse.error_groups(State.DEAD, Match(arguments=False))]
    assert len(shown) == 2
    assert "ada@" not in str(shown)
    assert "secret-word" not in str(browse.error_groups(State.DEAD, Match())[0].message)
    assert all("secret-word" not in f"{group.message}" for group in browse.error_groups(State.DEAD, Match()))


@pytest.mark.parametrize("queues", [6, 20, 60])
def test_lists_groups_and_bulk_operations_are_exact_over_any_number_of_queues(
    queues: int, console_store: Store, filler: Filler
) -> None:
    for i in range(queues + 37):
        name = "shop.charge_card" if i % 3 else "shop.send_receipt"
        filler.make(State.DEAD, "declined" if i % 5 else "timed out", "Error", name=name, queue=f"q{i % queues:02}")
    browse.publish_snapshot()
    number = queues + 37
    receipts = sum(i % 3 == 0 for i in range(number))
    declined = sum(i % 5 > 0 for i in range(number))
    assert count_matching(State.DEAD, Match(name="shop.send_receipt")).matching == receipts
    assert {group.count for group in browse.error_groups(State.DEAD, Match())} == {declined, number - declined}
    operation = bulk.start("delete", State.DEAD, Match(name="shop.send_receipt", error="Error: declined"))
    while bulk.tick():
        continue
    both = sum(i % 3 == 0 and i % 5 > 0 for i in range(number))
    done = bulk.get(operation.id)
    assert done is not None
    assert (done.moved, done.seen, done.total) == (both, both, both)
    assert sum(group.count for group in browse.error_groups(State.DEAD, Match())) == number - both


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
