"""What the fleet wrote down, broken by somebody: what can be read is shown, the rest is named, and work goes on."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from django_jobs import browse
from django_jobs.browse import Match, counts
from django_jobs.core.values import State
from django_jobs.operations import bulk
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db

#: One text of each kind that readers meet differently: no text, half of one, types of JSON, numbers that are none or
#: too large, nesting that the parser refuses, and a document with the wrong types inside.
GARBAGE = (
    "", "{", "null", "[]", "7", '"text"', "1e999", "9" * 5000, "[" * 100_000,
    '{"queues": 5, "children": [{"memory": "x", "jobs": [7]}], "started_at": 1e308}',
)  # fmt: skip


def write(store: Store, document: str, entry: str, text: str) -> None:
    """By hand, past everything that checks."""
    key = "workers" if document == "workers" else f"document:{document}"
    text = f"{store.now()}:{text}" if document == "workers" else text
    store.transport.command("HSET", store.keys.fleet(key), entry, text)


@pytest.fixture
def operation(console_store: Store, filler: Filler) -> bulk.Operation:
    for _ in range(3):
        filler.make(State.DEAD)
    return bulk.start("revive", State.DEAD, Match(), user="ada")


def drive_all() -> None:
    for _ in range(4):
        bulk.tick(0.0)


def test_a_broken_operation_is_named_and_the_others_go_on(
    console_store: Store, root: Client, operation: bulk.Operation
) -> None:
    for number, text in enumerate(GARBAGE):
        write(console_store, "bulk", f"broken-{number}", text)
    page = root.get(f"{BASE}bulk/")
    assert page.status_code == 200
    assert all(f"broken-{number}" in page.text for number in range(len(GARBAGE)))
    assert operation.id in page.text
    assert root.get(f"{BASE}bulk/broken-0/").status_code == 404
    drive_all()
    ended = bulk.get(operation.id)
    assert ended is not None
    assert (ended.moved, ended.percent) == (3, 100)
    assert [each.id for each in bulk.operations_list()] == [operation.id]
    assert bulk.start("revive", State.DEAD, Match()).id in [each.id for each in bulk.operations_list()]


@pytest.mark.parametrize("part", ["", "/at", "/driver", "/by/me", "/finished", "/stopped", "/doing/me"])
def test_whatever_part_of_an_operation_is_broken_the_pages_stay(
    console_store: Store, root: Client, operation: bulk.Operation, part: str
) -> None:
    intact = console_store.get_document("bulk")[operation.id]
    for text in GARBAGE:
        console_store.update_document("bulk", {operation.id: intact})
        write(console_store, "bulk", f"{operation.id}{part}", text)
        drive_all()
        assert root.get(f"{BASE}bulk/").status_code == 200, text[:40]
        assert root.get(f"{BASE}bulk/{operation.id}/").status_code in (200, 404), text[:40]
        known = {each.id for each in bulk.operations_list()} | set(bulk.unreadable())
        assert known == {operation.id}, text[:40]


def test_a_worker_whose_description_is_broken_is_shown_beside_the_others(console_store: Store, root: Client) -> None:
    console_store.publish_worker("broken:1", worker_info(), 60_000)
    console_store.publish_worker("sound:2", worker_info(), 60_000)
    for text in GARBAGE:
        write(console_store, "workers", "broken:1", text)
        page = root.get(f"{BASE}workers/")
        assert page.status_code == 200, text[:40]
        assert "broken:1" in page.text
        assert "sound:2" in page.text
        assert ("unreadable" in page.text) is (not text.startswith(('{"', "{}"))), text[:40]
        page = root.get(f"{BASE}workers/broken_3A1/")
        assert page.status_code == 200, text[:40]
        assert "no data yet" in page.text
        for page_name in ("", "schedules/"):
            assert root.get(f"{BASE}{page_name}").status_code == 200, text[:40]
        out = StringIO()
        call_command("jobs", "workers", stdout=out)
        assert "broken:1" in out.getvalue()
        call_command("jobs", "workers", "--json", stdout=out)


def test_a_worker_whose_entry_says_no_time_is_shown(redis_store: Store) -> None:
    redis_store.publish_worker("broken:1", worker_info(), 60_000)
    for text in ("", "junk", "soon:{}", "9" * 400 + ":{}"):
        redis_store.transport.command("HSET", redis_store.keys.fleet("workers"), "broken:1", text)
        (worker,) = redis_store.workers()
        assert (worker.name, worker.seen_at) == ("broken:1", redis_store.now())


def test_a_broken_snapshot_counts_as_none_and_is_replaced(
    console_store: Store, filler: Filler, root: Client, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "LIVE_QUEUES", 2)
    monkeypatch.setattr("django_jobs.browse.snapshot.LIVE_QUEUES", 2)
    for queue in ("default", "mail", "photos"):
        filler.make(State.DEAD, queue=queue)
    for entry in ("at", "series_at", "queues", "counts", "hour", "day"):
        for text in GARBAGE[1::2]:
            browse.publish_snapshot()
            write(console_store, "snapshot", entry, text)
            for page in ("?period=day", "queues/"):
                assert root.get(f"{BASE}{page}").status_code == 200, (entry, text[:40])
            clock.advance(61_000)
            assert browse.publish_snapshot(), (entry, text[:40])
            assert browse.job_counts().missing == 0
