"""With OUTBOX, a new job that a person enqueues belongs to the transaction; other acts are done at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client

from django_jobs import operations
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import State
from django_jobs.enqueueing import commits
from django_jobs.exceptions import StoreUnavailable
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import relay
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.acting.test_another import form_of, page_of, receipt_once, waiting
from tests.integration.console.conftest import BASE
from tests.support import kept
from tests.support.console_data import Filler

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = {
    "STORE": "memory",
    "OUTBOX": True,
    "SCHEDULES": {"nightly": {"job": "shop.send_receipt", "cron": "0 3 * * *", "args": [7]}},
}


@pytest.fixture(autouse=True)
def _settings(settings: Any, monkeypatch: pytest.MonkeyPatch, console_store: Store) -> Iterator[None]:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    monkeypatch.setattr(relay, "SPARE", 0.0)
    settings.DJANGO_JOBS = SETTINGS
    use_store(console_store)  # a change of the settings closes the store in use
    yield
    commits._away_until.clear()


@pytest.fixture
def old(filler: Filler) -> str:
    return filler.make(State.DEAD)


def by_form(client: Client, old: str) -> str:
    return client.post(page_of(old), {**form_of(client, old), "confirmed": "1"}, follow=True).text


def by_schedule(client: Client, old: str) -> str:
    return client.post(f"{BASE}schedules/", {"do": "run", "schedule": "settings:nightly"}, follow=True).text


def by_command(*words: str) -> Callable[[Client, str], str]:
    def act(client: Client, old: str) -> str:
        out = StringIO()
        with transaction.atomic():
            call_command("jobs", *words, stdout=out)
        return out.getvalue()

    return act


ACTS = {
    "another": by_form,
    "run": by_schedule,
    "jobs enqueue": by_command("enqueue", "shop.send_receipt", "--args", "[7]"),
    "jobs run": by_command("run", "settings:nightly"),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_new_job_is_sent_after_the_commit_and_the_answer_says_so(
    act: str, old: str, root: Client, console_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ACTS[act](root, old)
    (new,), is_logged = waiting(console_store), act != "jobs enqueue"
    assert f"will be enqueued as job {new} after the commit" in said
    assert (AuditEntry.objects.count(), kept.ids()) == (is_logged, [])

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("Nobody listens.")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "enqueue", refuse)
        assert "after the commit" in ACTS[act](root, old)
    assert (AuditEntry.objects.count(), len(kept.ids()), waiting(console_store)) == (2 * is_logged, 1, [new])
    assert relay.relay() == 1
    assert len(waiting(console_store)) == 2


@pytest.mark.parametrize("act", ACTS)
def test_a_rollback_leaves_neither_the_new_job_nor_its_history(
    act: str, old: str, root: Client, console_store: Store
) -> None:
    with transaction.atomic():
        ACTS[act](root, old)
        transaction.set_rollback(True)
    assert (waiting(console_store), kept.ids(), AuditEntry.objects.count()) == ([], [], 0)


def test_an_equal_job_is_no_error_after_the_commit(root: Client, console_store: Store, old: str) -> None:
    registry.unregister("shop.send_receipt")
    registry.register(JobDefinition(receipt_once, name="shop.send_receipt", unique="queued", on_conflict="raise"))
    for _ in range(2):
        assert "after the commit" in by_form(root, old)
    assert (len(waiting(console_store)), kept.ids()) == (1, [])


def test_a_job_that_exists_is_moved_at_once_and_a_rollback_does_not_undo_it(old: str, console_store: Store) -> None:
    with transaction.atomic():
        operations.revive("default", [old])
        assert waiting(console_store) == [old]
        transaction.set_rollback(True)
    assert (waiting(console_store), kept.ids()) == ([old], [])
