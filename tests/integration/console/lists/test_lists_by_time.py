"""Lists of jobs by the time of their state: from, until, the order; alone, with other filters, and for bulk actions."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from django.test import Client, override_settings

from django_jobs.core.values import State
from django_jobs.models import AuditEntry
from django_jobs.operations import bulk, searching
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, search_in_small_steps

pytestmark = pytest.mark.django_db

MINUTE = 60_000


def at(ms: int) -> str:
    """A time in an address, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def shown(root: Client, state: str, **query: Any) -> list[str]:
    """The ids of a list, page by page, in its order."""
    found: list[str] = []
    address = f"?{urlencode(query)}"
    while address:
        response = root.get(f"{BASE}jobs/{state}/{address}")
        assert response.status_code == 200, response.text
        found += re.findall(r'name="job" value="[^/"]+/([^"]+)"', response.text)
        following = re.search(r'href="(\?[^"]*)" rel="next"', response.text)
        address = unescape(following[1]) if following else ""
    return found


@pytest.fixture
def dead(filler: Filler, clock: Clock) -> dict[str, int]:
    """Twelve dead jobs, a minute apart, oldest first: the id and when it died."""
    clock.now = clock.now // MINUTE * MINUTE
    found = {}
    for n in range(12):
        error = "declined" if n % 2 else "timed out"
        id = filler.make(State.DEAD, error, queue="mail" if n % 3 else "default", id=f"j{n:02}")
        found[id] = clock.now
        clock.advance(MINUTE)
    return found


@override_settings(TIME_ZONE="UTC")
def test_dead_jobs_of_a_stretch_of_time(dead: dict[str, int], root: Client) -> None:
    since, until = at(dead["j03"]), at(dead["j08"])
    wanted = ["j07", "j06", "j05", "j04", "j03"]
    assert shown(root, "dead", **{"from": since, "until": until}) == wanted
    assert shown(root, "dead", **{"from": since}) == [f"j{n:02}" for n in range(11, 2, -1)]
    assert shown(root, "dead", until=until) == [f"j{n:02}" for n in range(7, -1, -1)]
    assert shown(root, "dead", **{"from": since, "until": until, "queue": "mail"}) == ["j07", "j05", "j04"]
    assert shown(root, "dead", **{"from": since, "until": until, "name": "shop.send_receipt"}) == wanted
    assert shown(root, "dead", **{"from": since, "until": until, "q": "declined"}) == ["j07", "j05", "j03"]
    text = root.get(f"{BASE}jobs/dead/?{urlencode({'from': since, 'until': until})}").text
    assert "5 jobs" in text
    assert "Died at" in text
    assert f'name="from" id="jobs-from" value="{since}"' in text


@override_settings(TIME_ZONE="UTC")
def test_an_error_and_a_stretch_of_time(dead: dict[str, int], root: Client) -> None:
    page = root.get(f"{BASE}jobs/dead/?group=1").text
    keys = dict.fromkeys(re.findall(r"error=([0-9a-f]{16})", page))
    found = [shown(root, "dead", error=key, **{"from": at(dead["j03"]), "until": at(dead["j08"])}) for key in keys]
    assert sorted(found) == [["j06", "j04"], ["j07", "j05", "j03"]]


@override_settings(TIME_ZONE="UTC")
def test_a_stretch_of_time_has_pages(filler: Filler, root: Client, clock: Clock) -> None:
    clock.now = clock.now // MINUTE * MINUTE
    began = clock.now
    for n in range(120):
        filler.make(State.DEAD, id=f"j{n:03}")
        clock.advance(1000)
    times = {"from": at(began + 5_000), "until": at(began + 115_000)}
    wanted = [f"j{n:03}" for n in range(5, 115)]
    assert shown(root, "dead", **times) == wanted[::-1]
    assert shown(root, "dead", order="asc", **times) == wanted
    assert shown(root, "dead", order="asc", name="shop.send_receipt", **times) == wanted


def test_every_state_in_the_order_of_a_time_has_this_filter(console_store: Store, root: Client) -> None:
    names = {
        "scheduled": "Runs at", "retry": "Next attempt", "succeeded": "Finished at", "dead": "Died at",
        "cancelled": "Cancelled at", "expired": "Expired at",
    }  # fmt: skip
    for state in State:
        text = root.get(f"{BASE}jobs/{state}/").text
        assert ('name="from"' in text) is (state in names)
        response = root.get(f"{BASE}jobs/{state}/?from=2026-01-01T00:00")
        assert response.status_code == (200 if state in names else 400)
        if state in names:
            assert f"<summary>{names[state]} " in response.text
        else:
            assert "cannot be filtered by time" in response.text


WRONG_TIMES = (
    "from=yesterday", "until=2026-13-01T00:00", "from=2026-01-01T25:00", "from=0001-01-01T00:00", "until=" + "9" * 400,
    "from=9999-12-31T23:59:59-23:59", "from=1900-01-01", "from=%00", "from=2026-01-02&until=2026-01-01",
    "from=2026-01-01&until=2026-01-01",
)  # fmt: skip


def test_a_wrong_time_is_said_and_nothing_is_listed_or_done(dead: dict[str, int], root: Client) -> None:
    data = {"verb": "delete", "scope": "all", "confirmed": "1"}
    for n, query in enumerate(WRONG_TIMES):
        response = root.get(f"{BASE}jobs/dead/?{query}{('', '&queue=mail', '&q=declined', '&group=1')[n % 4]}")
        assert response.status_code == 400, query
        assert 'role="alert"' in response.text
        assert "is not a time" in response.text or "must be before" in response.text
        assert "j05" not in response.text
        assert root.post(f"{BASE}jobs/dead/?{query}", data).status_code == 400
    assert bulk.operations_list() == []
    assert len(shown(root, "dead")) == 12


@override_settings(TIME_ZONE="America/New_York")
def test_times_are_in_the_time_zone_of_the_reader(dead: dict[str, int], root: Client, clock: Clock) -> None:
    local = at(dead["j03"] - 5 * 3_600_000)  # the clock of the tests is in winter
    wanted = [f"j{n:02}" for n in range(11, 2, -1)]
    assert shown(root, "dead", **{"from": local}) == wanted
    assert shown(root, "dead", **{"from": at(dead["j03"]) + "Z"}) == wanted
    text = root.get(f"{BASE}jobs/dead/?{urlencode({'from': at(dead['j03']) + 'Z'})}").text
    assert f'value="{local}"' in text
    assert "America/New_York" in text or "EST" in text


@override_settings(TIME_ZONE="UTC")
def test_all_that_match_are_those_of_the_stretch_of_time_and_the_log_has_it(
    dead: dict[str, int], root: Client, console_store: Store
) -> None:
    address = f"{BASE}jobs/dead/?{urlencode({'from': at(dead['j03']), 'until': at(dead['j08'])})}"
    asked = root.post(address, {"verb": "delete", "scope": "all"}).text
    assert "5 jobs match, of 12" in asked
    assert re.search(r"Died at: from .*:00 until .*:00", asked)
    done = root.post(address, {"verb": "delete", "scope": "all", "confirmed": "1"}, follow=True).text
    assert "5 jobs were deleted." in done
    assert "Died at: from" in done
    assert shown(root, "dead", order="asc") == ["j00", "j01", "j02", "j08", "j09", "j10", "j11"]
    (entry,) = AuditEntry.objects.all()
    assert entry.details["filter"] == {"since": dead["j03"], "before": dead["j08"]}
    assert entry.details["moved"] == 5
    said = unescape(root.get(f"{BASE}history/").text)
    assert re.search(r"from \S+ \d\d:\d\d:00.*, until \S+ \d\d:\d\d:00", said)


@override_settings(TIME_ZONE="UTC")
@pytest.mark.parametrize("more", [{}, {"name": "shop.send_receipt"}, {"text": "declined"}, {"queue": "mail"}])
def test_a_bulk_operation_takes_only_the_jobs_of_its_time(
    dead: dict[str, int], console_store: Store, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    monkeypatch.setattr(bulk, "INDEXED_BATCH", 2)
    operation = bulk.start("revive", State.DEAD, bulk.Match(since=dead["j03"], before=dead["j08"], **more))
    wanted = ["j03", "j04", "j05", "j06", "j07"]
    if "text" in more:
        wanted = ["j03", "j05", "j07"]
    if "queue" in more:
        wanted = ["j04", "j05", "j07"]
    while not (ended := bulk.get(operation.id)) or not ended.finished:
        bulk.drive(operation.id, 0.0)
    assert ended.moved == len(wanted)
    queued = [info.id for queue in ("default", "mail") for info in console_store.page(queue, State.QUEUED)]
    assert sorted(queued) == wanted
    assert operation.total <= 5


@override_settings(TIME_ZONE="UTC")
def test_jobs_that_are_rescheduled_to_a_time_of_the_same_list_are_moved_once(
    filler: Filler, console_store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "INDEXED_BATCH", 2)
    for n in range(8):
        filler.make(State.SCHEDULED, run_in=100_000 + n * 1000)
    when = clock.now + 90_000  # behind the walk, which goes from the latest down
    match = bulk.Match(since=clock.now + 50_000, before=clock.now + 200_000)
    operation = bulk.start("reschedule", State.SCHEDULED, match, run_at=when)
    while not (ended := bulk.get(operation.id)) or not ended.finished:
        bulk.drive(operation.id, 0.0)
    assert (ended.moved, ended.total) == (8, 8)
    assert {info.at for info in console_store.page("default", State.SCHEDULED)} == {when}


def test_an_operation_without_times_is_stored_as_older_workers_read_it(console_store: Store) -> None:
    """They know no times, and cannot read an operation that has some: they leave it to others."""
    plain = bulk.start("revive", State.DEAD, bulk.Match("default", arguments=False))
    timed = bulk.start("revive", State.DEAD, bulk.Match(since=5))
    document = console_store.get_document("bulk")
    assert set(document[plain.id]["match"]) == {"queue", "name", "text", "error", "arguments"}
    assert document[timed.id]["match"]["since"] == 5
    assert bulk.get(plain.id).match == bulk.Match("default", arguments=False)  # type: ignore[union-attr]
    assert bulk.get(timed.id).match == bulk.Match(since=5)  # type: ignore[union-attr]


@override_settings(TIME_ZONE="UTC")
def test_a_long_search_keeps_its_times(dead: dict[str, int], root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    search_in_small_steps(monkeypatch)
    address = f"{BASE}jobs/dead/?{urlencode({'from': at(dead['j03']), 'until': at(dead['j08']), 'q': 'j'})}"
    assert "5 of 5 jobs" not in root.get(address).text
    while searching.tick(0.0):
        pass
    text = root.get(address).text
    assert "5 of 5 jobs were checked" in text
    assert sorted(re.findall(r'name="job" value="[^/"]+/([^"]+)"', text)) == ["j03", "j04", "j05", "j06", "j07"]


def heading(text: str) -> tuple[str, dict[str, list[str]]]:
    """The sorted heading of a list: its direction, and where its link goes."""
    (found,) = re.findall(r'<th scope="col" aria-sort="(\w+)"><a href="\?([^"]*)"', text)
    return found[0], parse_qs(unescape(found[1]))


@override_settings(TIME_ZONE="UTC")
def test_the_time_sorts_a_list_both_ways_and_no_other_column_does(dead: dict[str, int], root: Client) -> None:
    text = root.get(f"{BASE}jobs/dead/").text
    assert heading(text) == ("descending", {"order": ["asc"]})
    assert text.count('class="jobs-sort"') == 1
    text = root.get(f"{BASE}jobs/dead/?order=asc&queue=mail&until=2030-01-01T00:00").text
    assert heading(text) == ("ascending", {"queue": ["mail"], "until": ["2030-01-01T00:00:00"]})
    assert shown(root, "dead", order="asc") == list(dead)
    assert shown(root, "dead", order="desc") == shown(root, "dead") == list(dead)[::-1]
    assert shown(root, "dead", order="sideways") == list(dead)[::-1]
    assert shown(root, "dead", order="asc", queue="mail") == [id for n, id in enumerate(dead) if n % 3]
    assert shown(root, "dead", order="asc", name="shop.send_receipt") == list(dead)


def test_what_cannot_be_sorted_has_no_links(dead: dict[str, int], filler: Filler, root: Client) -> None:
    for state in (State.RUNNING, State.QUEUED):
        filler.make(state)
    for page in ("jobs/running/", "jobs/queued/", "jobs/running/?order=desc", "jobs/dead/?q=declined&order=asc"):
        text = root.get(BASE + page).text
        assert "jobs-list" in text
        assert "aria-sort" not in text, page
        assert "jobs-sort" not in text, page


def test_a_list_of_succeeded_jobs_by_time_says_which_it_lacks(filler: Filler, root: Client) -> None:
    filler.make(State.SUCCEEDED)
    says = "Jobs with keep_result are not in a list that is filtered by time."
    assert says in root.get(f"{BASE}jobs/succeeded/?from=2020-01-01").text
    assert says not in root.get(f"{BASE}jobs/succeeded/").text
    assert says not in root.get(f"{BASE}jobs/dead/?from=2020-01-01").text
