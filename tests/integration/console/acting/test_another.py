"""A job like an existing one: what is copied, who may, what is refused, and that the same call enqueues once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_jobs.admin.common.acts import sentence
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.values import Completed, Controls, Job, Lane, NewJob, Options, State
from django_jobs.models.audit import AuditEntry
from django_jobs.serialization.record import decode, encode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, charge_card

pytestmark = pytest.mark.django_db

CARD = "4111111111111111"


def page_of(id: str) -> str:
    return f"{BASE}job/default/{id}/another/"


def form_of(client: Client, id: str, **changes: str) -> dict[str, str]:
    """What the form of the page sends if a person changes only this."""
    context = client.get(page_of(id)).context
    form = context["form"]
    fields = {name: str(form[name].value()) for name in ("arguments", "queue", "priority", "form")}
    return {**fields, **changes}


def call_of(store: Store, id: str) -> Any:
    info = store.get("default", id)
    assert info is not None
    return json.loads(decode(id, "default", info.record).args)


def waiting(store: Store) -> list[str]:
    return [info.id for info in store.page("default", State.QUEUED)]


@pytest.fixture
def card(console_store: Store, filler: Filler) -> str:
    """A dead job with a sensitive argument."""
    return filler.make(State.DEAD, name="shop.charge_card", call=[[7], {"card_number": CARD}])


def test_it_is_shown_and_confirmed_and_then_enqueued_and_logged(
    console_store: Store, filler: Filler, root: Client
) -> None:
    old = filler.make(State.SUCCEEDED, call=[[7], {"email": "ada@example.com"}], controls=Controls(priority=5))
    data = form_of(root, old, priority="6")
    asked = root.post(page_of(old), data)
    assert asked.status_code == 200
    assert "ada@example.com" in asked.text
    assert 'name="confirmed"' in asked.text
    assert waiting(console_store) == []
    assert root.post(page_of(old), {**data, "change": "1"}).context["new"] is None
    done = root.post(page_of(old), {**data, "confirmed": "1"}, follow=True)
    (new,) = waiting(console_store)
    assert done.redirect_chain[-1][0] == f"{BASE}job/default/{new}/"
    assert call_of(console_store, new) == [[7], {"email": "ada@example.com"}]
    info = console_store.get("default", new)
    assert info is not None
    assert decode(new, "default", info.record).controls.priority == 6
    (entry,) = AuditEntry.objects.all()
    assert (entry.verb, entry.subject, entry.details["ids"]) == ("enqueue", "default", [["default", new]])
    assert old in sentence(entry)
    assert old in root.get(f"{BASE}history/").text


def test_the_same_call_twice_enqueues_once_and_another_call_a_second_job(
    console_store: Store, filler: Filler, root: Client
) -> None:
    old = filler.make(State.DEAD)
    data = {**form_of(root, old), "confirmed": "1"}
    first, again = (root.post(page_of(old), data, follow=True) for _ in range(2))
    assert len(waiting(console_store)) == 1
    assert first.redirect_chain == again.redirect_chain
    assert "Nothing was enqueued a second time" in again.text
    assert AuditEntry.objects.count() == 1
    root.post(page_of(old), {**data, "arguments": "[[8], {}]"})
    root.post(page_of(old), {**form_of(root, old), "confirmed": "1"})
    assert len(waiting(console_store)) == 3


def test_sensitive_values_are_copied_and_never_shown(console_store: Store, card: str, root: Client) -> None:
    data = form_of(root, card)
    assert CARD not in root.get(page_of(card)).text
    assert HIDDEN in data["arguments"]
    assert CARD not in root.post(page_of(card), data).text
    root.post(page_of(card), {**data, "arguments": json.dumps([[8], {"card_number": HIDDEN}]), "confirmed": "1"})
    (new,) = waiting(console_store)
    assert call_of(console_store, new) == [[8], {"card_number": CARD}]
    assert CARD not in root.get(f"{BASE}job/default/{new}/").text
    assert CARD not in json.dumps(list(AuditEntry.objects.values_list("details", flat=True)))


@pytest.fixture
def _open_type(console_store: Store) -> None:
    """The type of the card names no sensitive argument any more."""
    registry.unregister("shop.charge_card")
    registry.register(JobDefinition(charge_card, name="shop.charge_card"))


@pytest.mark.usefixtures("_open_type")
def test_a_masked_value_that_the_new_job_would_show_is_refused(console_store: Store, root: Client) -> None:
    args = json.dumps([[7], {"card_number": CARD}]).encode()
    job = Job("old", "default", "shop.charge_card", args, console_store.now(), Options(sensitive="@1 card_number"))
    console_store.enqueue("default", [NewJob("old", encode(job))])
    answer = root.post(page_of("old"), {**form_of(root, "old"), "confirmed": "1"})
    assert "no longer names its argument as sensitive" in answer.text
    assert CARD not in answer.text
    assert waiting(console_store) == ["old"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arguments": "["}, "not JSON"),
        ({"arguments": "[[], {}]"}, "cannot be called"),
        ({"arguments": json.dumps([[HIDDEN], {}])}, "masked value"),
        ({"arguments": json.dumps([["x" * 300_000], {}])}, "MAX_PAYLOAD"),
        ({"arguments": "[[1e400], {}]"}, "a number that is too large"),
        ({"arguments": '[["\\ud800"], {}]'}, "half of a surrogate pair"),
        ({"queue": "nowhere"}, "Select a valid choice"),
        ({"priority": "1000"}, "less than or equal to 100"),
        ({"form": "x"}, "no valid key"),
        ({"form": ""}, "This form cannot be used"),
    ],
)
def test_what_is_wrong_is_said_and_enqueues_nothing(
    changes: dict[str, str], said: str, console_store: Store, root: Client
) -> None:
    old = Filler(console_store).make(State.DEAD)
    answer = root.post(page_of(old), {**form_of(root, old, **changes), "confirmed": "1"})
    assert answer.status_code == 200
    assert said in re.sub(r"&#x27;", "'", answer.text)
    assert waiting(console_store) == []
    assert AuditEntry.objects.count() == 0


def test_a_full_queue_and_an_equal_unique_job_are_said(console_store: Store, root: Client, settings: Any) -> None:
    old = Filler(console_store).make(State.DEAD)
    registry.unregister("shop.send_receipt")
    registry.register(JobDefinition(receipt_once, name="shop.send_receipt", unique="queued"))
    root.post(page_of(old), {**form_of(root, old), "confirmed": "1"})
    answer = root.post(page_of(old), {**form_of(root, old), "confirmed": "1"}, follow=True)
    assert "An equal job is already waiting. Nothing was enqueued." in answer.text
    assert len(waiting(console_store)) == 1
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"default": {"MAX_LENGTH": 1, "ON_FULL": "block"}}}
    use_store(console_store)  # a change of the settings closes the store in use
    answer = root.post(page_of(old), {**form_of(root, old, arguments="[[8], {}]"), "confirmed": "1"})
    assert "is full" in answer.text
    assert AuditEntry.objects.count() == 1


def receipt_once(order_id: int, email: str = "") -> None:
    """Never run."""


def test_a_job_that_may_have_been_started_once_is_copied_only_by_somebody_who_found_out(
    console_store: Store, root: Client
) -> None:
    filler = Filler(console_store)
    old = filler.add(controls=Controls(at_most_once=True))
    (claim,) = console_store.claim("default", "web-1:4711/1", 1, lease=60_000, lane=Lane.ALONE).claims
    console_store.complete("default", [Completed(claim, b"", 1, "shop.send_receipt")])
    data = {**form_of(root, old), "confirmed": "1"}
    answer = root.post(page_of(old), data)
    assert "Find out what it did first" in answer.text
    assert "Without this, no job like it is enqueued." in answer.text
    assert waiting(console_store) == []
    root.post(page_of(old), {**data, "start_again": "True"})
    assert len(waiting(console_store)) == 1


def test_a_job_that_is_gone_or_cannot_be_read_or_is_unknown_has_no_form(console_store: Store, root: Client) -> None:
    filler = Filler(console_store)
    broken, unknown = filler.add(record=b"\xff\xfe\x00"), filler.add(name="nobody.knows")
    assert root.get(page_of("nothing")).status_code == 404
    for id in (broken, unknown):
        assert root.get(page_of(id)).status_code == 302
        assert "another/" not in root.get(f"{BASE}job/default/{id}/").text
    assert "does not know its type" in root.get(page_of(unknown), follow=True).text


def test_the_button_is_for_those_who_may(console_store: Store, person: Callable[..., Client]) -> None:
    old = Filler(console_store).make(State.DEAD)
    page = f"{BASE}job/default/{old}/"
    may = ("view_jobs", "view_arguments", "enqueue_jobs")
    assert "another/" in person(*may).get(page).text
    for missing in may[1:]:
        client = person(*(each for each in may if each != missing))
        assert "another/" not in client.get(page).text
        assert client.get(page_of(old)).status_code == 403
        assert client.post(page_of(old), {"confirmed": "1"}).status_code == 403
