"""A job that is delivered at most once and may have been started is not started again by one click."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from django_jobs import operations
from django_jobs.browse import Match
from django_jobs.core.values import Attempt, Controls, Lane, State
from django_jobs.exceptions import JobMoved
from django_jobs.operations import bulk
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

pytestmark = pytest.mark.django_db

ONCE = Controls(at_most_once=True)


def state_of(store: Store, id: str) -> State:
    info = store.get("default", id)
    assert info is not None
    return info.state


def hidden_in(page: str) -> dict[str, str]:
    """Return the hidden fields of a form."""
    return dict(re.findall(r'type="hidden" name="(state|as_of|was|confirmed)" value="([^"]*)"', page))


@pytest.fixture
def payment(filler: Filler) -> str:
    """A card payment that failed for good."""
    filler.add("shop.charge_card", controls=ONCE, id="payment")
    (claim,) = filler.store.claim("default", "w", 1, lease=60_000, lane=Lane.ALONE).claims
    filler.store.bury(claim, filler.attempt(claim, "TimeoutError", "no answer from the bank"))
    return "payment"


def jobs(*words: str) -> tuple[int, dict[str, Any]]:
    out, code = StringIO(), 0
    try:
        call_command("jobs", *words, "--json", stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, json.loads(out.getvalue())


@pytest.mark.parametrize("where", ["jobs/dead/", "job/default/payment/"])
def test_a_click_asks_says_why_and_starts_nothing(console_store: Store, payment: str, root: Client, where: str) -> None:
    click = {"verb": "retry", "job": f"default/{payment}"}
    asked = root.post(BASE + where, click)
    assert asked.status_code == 200
    assert "delivered at most once and may have been started" in asked.text
    assert state_of(console_store, payment) is State.DEAD
    refused = root.post(BASE + where, click | {"confirmed": "1"})
    assert "Without this, it is not started again." in refused.text
    assert state_of(console_store, payment) is State.DEAD
    root.post(BASE + where, click | {"confirmed": "1", "start_again": "on"})
    assert state_of(console_store, payment) is State.QUEUED


def test_yes_to_a_query_answers_its_question_and_starts_nothing_again(console_store: Store, payment: str) -> None:
    assert jobs("retry", "--query", f"state:dead id:{payment}", "--yes") == (
        1, {"moved": 0, "looked_at": 1, "held": 1, "taken": 0}
    )  # fmt: skip
    assert state_of(console_store, payment) is State.DEAD


def test_its_page_and_its_row_say_at_most_once(payment: str, root: Client) -> None:
    assert "It may have been started" in root.get(f"{BASE}job/default/{payment}/").text
    assert ">at most once</span>" in root.get(f"{BASE}jobs/dead/").text


def test_others_run_while_it_stays(console_store: Store, payment: str, filler: Filler, root: Client) -> None:
    other = filler.make(State.DEAD)
    chosen = {"verb": "retry", "job": [f"default/{payment}", f"default/{other}"]}
    assert "1 of these jobs is delivered at most once" in root.post(f"{BASE}jobs/dead/", chosen).text
    said = root.post(f"{BASE}jobs/dead/", chosen | {"confirmed": "1"}, follow=True).text
    assert "1 job was queued." in said
    assert "1 job is delivered at most once and may have been started: it was not started again." in said
    assert (state_of(console_store, payment), state_of(console_store, other)) == (State.DEAD, State.QUEUED)


def test_editing_it_asks_too(console_store: Store, payment: str, root: Client) -> None:
    url = f"{BASE}job/default/{payment}/edit/"
    assert "Find out what it did first." in root.get(url).text
    call = {"arguments": '[[1], {"card_number": "4111"}]'}
    assert "delivered at most once" in root.post(url, call).text
    assert state_of(console_store, payment) is State.DEAD
    root.post(url, call | {"start_again": "on"})
    assert state_of(console_store, payment) is State.QUEUED


@pytest.mark.parametrize("where", ["jobs/dead/", "job/default/payment/", "job/default/payment/edit/"])
def test_a_question_is_about_the_end_that_its_page_showed(
    console_store: Store, payment: str, root: Client, clock: Clock, where: str
) -> None:
    data = {"verb": "retry", "job": f"default/{payment}", "arguments": "[[7], {}]"}
    asked = root.get(BASE + where).text if "edit" in where else root.post(BASE + where, data).text
    answer = data | hidden_in(asked) | {"start_again": "on"}
    clock.advance(1_000)
    assert operations.revive("default", [payment], start_again=True).moved == [payment]
    (claim,) = console_store.claim("default", "w", 1, lease=60_000, lane=Lane.ALONE).claims
    console_store.bury(claim, Attempt(2, "failed", console_store.now(), error="no answer again"))
    said = root.post(BASE + where, answer, follow=True).text
    assert "changed its state and was skipped" in said or "changed its state in the meantime" in said
    assert state_of(console_store, payment) is State.DEAD


def test_a_bulk_operation_leaves_it_alone_and_counts_it(
    console_store: Store, payment: str, filler: Filler, root: Client
) -> None:
    other = filler.make(State.DEAD)
    everything = {"verb": "retry", "scope": "all"}
    assert "Jobs that are delivered at most once" in root.post(f"{BASE}jobs/dead/", everything).text
    said = root.post(f"{BASE}jobs/dead/", everything | {"confirmed": "1"}, follow=True).text
    assert "it was not started again" in said
    assert (state_of(console_store, payment), state_of(console_store, other)) == (State.DEAD, State.QUEUED)
    root.post(f"{BASE}jobs/dead/", everything | {"confirmed": "1", "start_again": "on"})
    assert state_of(console_store, payment) is State.QUEUED


def test_the_command_needs_yes(console_store: Store, payment: str) -> None:
    code, said = jobs("retry", payment)
    assert (code, said["moved"], said["held"]) == (1, [], [payment])
    code, said = jobs("retry", "--all")
    assert (code, said["moved"], said["held"]) == (1, 0, 1)
    assert state_of(console_store, payment) is State.DEAD
    code, said = jobs("retry", payment, "--yes")
    assert (code, said["moved"], said["held"]) == (0, [payment], [])


def test_in_code_it_is_said_too(console_store: Store, payment: str) -> None:
    assert operations.revive("default", [payment]).held == [payment]
    with pytest.raises(JobMoved, match="at most once"):
        operations.edit_and_revive("default", payment, [1], {"card_number": "4111"})
    assert operations.revive("default", [payment], start_again=True).moved == [payment]


def test_one_that_never_started_needs_no_question(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.add("shop.charge_card", controls=ONCE, run_in=60_000)
    root.post(f"{BASE}jobs/scheduled/", {"verb": "retry", "job": f"default/{id}"})
    assert state_of(console_store, id) is State.QUEUED


def test_sums_of_an_older_version_are_read(console_store: Store, payment: str) -> None:
    operation = bulk.start("revive", State.DEAD, Match())
    console_store.update_document(bulk.DOCUMENT, {f"{operation.id}/by/old": [5, 4, 1]})
    read = bulk.get(operation.id)
    assert read is not None
    assert (read.seen, read.moved, read.asked, read.held) == (5, 4, 1, 0)
