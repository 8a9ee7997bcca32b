"""The timeline of a job: what the store knows in its order, what people did, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_jobs.admin.jobs import timeline as page
from django_jobs.browse.timeline import timeline, unkept
from django_jobs.core.values import Attempt, Job, JobInfo, State
from django_jobs.models.audit import Act, AuditEntry, ObjectKind, Source, record
from django_jobs.serialization.record import decode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, shop_jobs

JOB = Job("j", "default", "shop.send_receipt", b"[[7],{}]", 1_000)
FAILED = Attempt(1, "failed", 3_000, 500, "web-1:1/1", "builtins.ValueError", "no")
LOST = Attempt(2, "worker_lost", 9_000, -1, "web-1:1/1")


def parts(state: State, **more: Any) -> list[tuple[str, int, int]]:
    info = JobInfo("j", "default", b"", state, **more)
    return [(part.kind, part.start, part.end) for part in timeline(info, JOB, 20_000)]


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"state": State.QUEUED}, [("waits", 1_000, 20_000)]),
        ({"state": State.QUEUED, "since": 5_000}, [("held", 1_000, 5_000), ("waits", 5_000, 20_000)]),
        (
            {"state": State.RUNNING, "since": 5_000, "at": 7_000},
            [("held", 1_000, 5_000), ("waited", 5_000, 7_000), ("runs", 7_000, 20_000)],
        ),
        ({"state": State.BLOCKED}, [("blocked", 1_000, 20_000)]),
        ({"state": State.SCHEDULED, "at": 90_000}, [("due", 1_000, 90_000)]),
        (
            {"state": State.SUCCEEDED, "at": 9_000, "run_ms": 200},
            [("waited", 1_000, 8_800), ("succeeded", 8_800, 9_000)],
        ),
        ({"state": State.SUCCEEDED, "at": 9_000}, [("unclear", 1_000, 9_000), ("succeeded", 9_000, 9_000)]),
        ({"state": State.CANCELLED, "at": 9_000}, [("waited", 1_000, 9_000), ("ended", 9_000, 9_000)]),
        (
            {"state": State.RETRY, "at": 90_000, "failures": 1, "attempts": (FAILED,)},
            [("waited", 1_000, 2_500), ("attempt", 2_500, 3_000), ("due", 3_000, 90_000)],
        ),
        (
            {"state": State.DEAD, "at": 9_000, "failures": 1, "crashes": 1, "attempts": (FAILED, LOST)},
            [
                ("waited", 1_000, 2_500), ("attempt", 2_500, 3_000), ("unclear", 3_000, 9_000),
                ("attempt", 9_000, 9_000), ("ended", 9_000, 9_000),
            ],
        ),
        # A run that is longer than there was time for: clocks differ.  No part begins before the one before it ended.
        (
            {"state": State.DEAD, "at": 500, "attempts": (FAILED._replace(run_ms=9_000),)},
            [("attempt", 1_000, 3_000), ("ended", 3_000, 3_000)],
        ),
    ],
)  # fmt: skip
def test_the_parts_follow_each_other_without_gaps(info: dict[str, Any], expected: list[tuple[str, int, int]]) -> None:
    found = parts(**info)
    assert found == [("enqueued", 1_000, 1_000), *expected]
    assert all(before[2] == after[1] for before, after in pairwise(found))


def test_attempts_that_the_log_does_not_have_are_counted() -> None:
    info = JobInfo("j", "default", b"", State.RETRY, 30, 1, attempts=(FAILED._replace(attempt=31),))
    assert unkept(info) == 30
    assert unkept(info._replace(failures=1, crashes=0, attempts=(FAILED,))) == 0


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (-50, 5), (10**15, 10**15), (1_000, 2_000), (5, 4)])
def test_a_bar_stays_within_its_drawing(start: int, stop: int) -> None:
    x, width = page.bar(start, stop, 1_000, 2_000)
    assert 0 <= x < x + width <= page.SCALE


@pytest.mark.django_db
@pytest.mark.parametrize("state", [state for state in State if state not in (State.BLOCKED, State.EXPIRED)])
def test_it_is_on_the_page_of_a_job_in_each_state(
    state: State, console_store: Store, filler: Filler, root: Client
) -> None:
    id = filler.make(state)
    info = console_store.get("default", id)
    assert info is not None
    now = console_store.now()
    kinds = [part.kind for part in timeline(info, decode(id, "default", info.record), now)]
    assert kinds[0] == "enqueued"
    response = root.get(f"{BASE}job/default/{id}/")
    assert "Timeline" in response.text
    assert response.context["timeline"].rows[0].text == "Enqueued"
    if state in {State.DEAD, State.RETRY}:
        assert "web-1:4711/1 · TimeoutError" in response.text


@pytest.fixture
def console_now(make_redis_store: Callable[..., Store]) -> Iterator[Store]:
    """A store with the clock of this machine, by which acts are dated."""
    store = make_redis_store(clock=None)
    use_store(store)
    with shop_jobs():
        yield store


@pytest.mark.django_db
def test_it_has_what_people_did_and_says_what_it_does_not_know(
    console_now: Store, root: Client, person: Callable[..., Client]
) -> None:
    filler = Filler(console_now)
    id, other = filler.make(State.DEAD), filler.make(State.DEAD)
    root.post(f"{BASE}job/default/{other}/", {"verb": "retry"})
    root.post(f"{BASE}job/default/{id}/edit/", {"arguments": '[[9], {"email": "new@example.com"}]'})
    root.post(f"{BASE}job/default/{id}/", {"verb": "kill", "confirmed": "1", "reason": "wrong customer"})
    found = root.get(f"{BASE}job/default/{id}/").context["timeline"]
    done = [(row.text, row.badge) for row in found.rows if row.css == "busy"]
    assert done == [("Edit arguments", "root"), ("Kill", "root")]
    assert [row.at for row in found.rows] == sorted(row.at for row in found.rows)
    assert any("wrong customer" in row.more for row in found.rows)
    assert any("new@example.com" in row.more for row in found.rows)
    assert any("leave no entry" in note for note in found.notes)
    shown = person("view_jobs").get(f"{BASE}job/default/{id}/").context["timeline"]
    assert not any("new@example.com" in row.more for row in shown.rows)


@pytest.mark.django_db
def test_it_asks_the_database_once_and_lives_without_it(
    console_now: Store, root: Client, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    id = Filler(console_now).make(State.DEAD)
    info = console_now.get("default", id)
    assert info is not None
    job = decode(id, "default", info.record)
    for i in range(page.ACTS + 1):
        record(f"user{i}", Source.ADMIN, Act("revive", ObjectKind.JOB, "default", {"ids": [["default", "another"]]}))
    for i in range(page.ACTS + 1):
        record(f"user{i}", Source.ADMIN, Act("revive", ObjectKind.JOB, "default", {"ids": [["default", id]]}))
    with django_assert_num_queries(3):  # a savepoint of the test's transaction, the entries, its release
        entries, notes = page.acts_on(info, job)
    assert len(entries) == page.ACTS
    assert "see the history" in notes[0]
    with CaptureQueriesContext(connection) as asked:
        page.acts_on(info, job)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {asked[1]['sql']}")
        assert "(at>?)" in str(cursor.fetchall())  # only the entries since the job was enqueued are searched
    assert page.acts_on(info._replace(id="other"), job)[0] == []

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise DatabaseError("no such table")

    monkeypatch.setattr(AuditEntry.objects, "filter", broken)
    assert "The audit log cannot be read" in root.get(f"{BASE}job/default/{id}/").text
