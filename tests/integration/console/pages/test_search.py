"""One search over every state and queue: what it finds, what it shows first, and how it goes on."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from django_jobs.browse import Match, search
from django_jobs.core.values import State
from django_jobs.operations import searching
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, search_in_small_steps

pytestmark = pytest.mark.django_db

#: The states that the filler makes; the queued job comes last, because a worker would take it before the next.
MADE = [state for state in State if state not in (State.BLOCKED, State.EXPIRED, State.QUEUED)] + [State.QUEUED]
HERS: dict[str, Any] = {"call": [[42], {"email": "customer-42@example.com"}]}


def found(client: Client, text: str) -> list[tuple[str, str]]:
    """State and id of each row."""
    page = client.get(f"{BASE}search/", {"q": text}).text.partition("<tbody>")[2]
    return re.findall(r'<code class="jobs-quiet">([^<]+)</code>.*?jobs-is-(\w+)', page, re.DOTALL)


def test_jobs_in_every_state_and_queue_are_found(console_store: Store, filler: Filler, root: Client) -> None:
    hers = {(filler.make(state, queue=f"q{i}", **HERS), state.value) for i, state in enumerate(MADE)}
    for state in MADE:
        filler.make(state, queue="others", call=[[7], {}])
    assert set(found(root, "CUSTOMER-42@")) == hers
    page = root.get(f"{BASE}search/", {"q": "customer-42@"}).text
    for state in MADE:
        assert f'/jobs/{state}/?q=customer-42%40"' in page, state
    assert f"{len(MADE)} matches. {2 * len(MADE)} of {2 * len(MADE)} jobs were checked." in page


def test_the_job_with_this_id_comes_first_and_says_why_it_waits(
    console_store: Store, filler: Filler, root: Client
) -> None:
    id, other = filler.add(id="42"), filler.make(State.DEAD, queue="mail", call=[[42], {}])
    console_store.pause("default", reason="moving house", by="bob")
    page = root.get(f"{BASE}search/?q=42").text
    first, _, rest = page.partition("<tbody>")
    assert f"/job/default/{id}/" in first
    assert 'data-cause="queue_paused"' in first
    assert f"/job/default/{id}/" not in rest, "it stands there once"
    assert f"/job/mail/{other}/" in rest


def test_without_a_text_nothing_is_searched(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.add()
    monkeypatch.setattr(searching, "search", None)
    for address in ("search/", "search/?q=+"):
        assert "in every state and queue" in root.get(BASE + address).text


def test_a_job_that_moves_on_meanwhile_is_found_once(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "FIRST_STRETCH", 0)
    id = filler.make(State.SCHEDULED, **HERS)
    states, match = list(State), Match(text="customer-42@")
    assert searching.search(states, match).matches == 1
    console_store.cancel("default", [id])
    while searching.tick(0):
        continue
    whole = searching.search(states, match)
    assert (whole.finished, whole.matches, whole.by_state["cancelled"]) == (True, 1, 0)
    assert found(root, "customer-42@") == [(id, "cancelled")], "the page shows the state of now"


def test_a_long_search_goes_on_in_the_background_and_the_page_follows(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_in_small_steps(monkeypatch)
    made = {(filler.make(state, queue=f"q{n}", **HERS), state.value) for state in MADE for n in range(3)}
    page = root.get(f"{BASE}search/", {"q": "customer-42@"}).text
    assert "<progress" in page
    assert 'data-jobs-refresh="3"' in page
    while searching.tick(0):
        continue
    assert set(found(root, "customer-42@")) == made


def test_an_entry_of_another_version_is_begun_again(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD, **HERS)
    match = Match(text="customer-42@")
    name = searching.id_of(list(State), match)
    searching.write(name, search.begin(list(State), match))
    (entry,) = console_store.get_document(searching.DOCUMENT).values()
    older = {key: value for key, value in entry.items() if key not in ("states", "parts", "by_state")}
    for damaged in (older | {"state": "dead", "queues": [["default"]]}, entry | {"parts": [["nowhere", []]]}):
        console_store.update_document(searching.DOCUMENT, {name: damaged})
        assert found(root, "customer-42@") == [(id, "dead")]
