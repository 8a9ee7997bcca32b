"""The outbox in the admin and on the command line: it is seen, sent again and deleted by those who may."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client, override_settings
from django.utils.translation import override

from django_jobs import Batch, chain, operations
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.exceptions import JobNotFound
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import diagnosis
from django_jobs.stores.redis import Store
from tests.integration import sample_jobs
from tests.integration.console.conftest import BASE
from tests.support import kept

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("console_store")]

ADDRESS = "/admin/django_jobs/outboxentry/"
SETTINGS = {"STORE": "memory", "OUTBOX": True}
CARD = "4111111111111111"


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.DJANGO_JOBS = SETTINGS


def receipt(order: int = 7) -> Any:
    return enqueue_by_name("shop.send_receipt", [order])


def charge() -> Any:
    return enqueue_by_name("shop.charge_card", [7, CARD])


def act(client: Client, action: str, *entries: int, **more: Any) -> Any:
    data = {"action": action, "_selected_action": entries, "select_across": "0", **more}
    return client.post(ADDRESS, data, follow=True)


def listed(client: Client, query: str = "") -> list[int]:
    return [row.pk for row in client.get(f"{ADDRESS}{query}").context["cl"].result_list]


# -- the pages ---------------------------------------------------------------------


def test_the_list_shows_each_entry_with_its_reason_and_filters_by_whether_it_is_held(root: Client) -> None:
    waits, holds = kept.entry(receipt()), kept.entry(receipt(8), reason="Queue 'small' is not in QUEUES.")
    chain(sample_jobs.receipt.s(1), sample_jobs.receipt.s(2)).enqueue()
    page = root.get(ADDRESS).text
    for text in ("Queue &#x27;small&#x27; is not in QUEUES.", "shop.send_receipt", "waiting", "held", "workflow"):
        assert text in page
    assert listed(root, "?is_held__exact=1") == [holds]
    assert listed(root, "?is_held__exact=0&kind__exact=job&queue=default&name=shop.send_receipt") == [waits]


def test_an_entry_is_shown_as_a_job_is_with_sensitive_arguments_masked(person: Callable[..., Client]) -> None:
    entry = kept.entry(charge(), reason="why")
    seer, reader = person("view_jobs", "view_arguments"), person("view_jobs")
    page = seer.get(f"{ADDRESS}{entry}/change/").text
    assert "7," in page
    assert "•••" in page
    assert CARD not in page
    assert "•••" not in reader.get(f"{ADDRESS}{entry}/change/").text
    assert "_save" not in page
    assert seer.get(f"{ADDRESS}add/").status_code == 403


def test_data_that_nobody_can_read_is_said_to_be(root: Client) -> None:
    entry = kept.entry(receipt())
    kept.rows("default").filter(pk=entry).update(data=b"nonsense")
    assert "Its data cannot be read" in root.get(f"{ADDRESS}{entry}/change/").text
    assert root.get(ADDRESS).status_code == 200


def test_the_page_of_a_job_that_is_still_in_the_outbox_leads_to_its_entry(root: Client) -> None:
    handle = receipt()
    shown = root.get(f"{BASE}job/default/{handle.id}/", follow=True)
    assert shown.redirect_chain == [(f"{ADDRESS}{kept.entry(handle)}/change/", 302)]
    assert "shop.send_receipt" in shown.text
    assert root.get(f"{BASE}job/default/a%00b/").status_code == 404


def test_it_is_in_the_menus_only_while_it_is_on(root: Client) -> None:
    assert ADDRESS in root.get(BASE).text
    assert ADDRESS in root.get("/admin/").text
    with override_settings(DJANGO_JOBS={"STORE": "memory"}):
        assert ADDRESS not in root.get(BASE).text
        assert ADDRESS not in root.get("/admin/").text
        assert root.get(ADDRESS).status_code == 200


# -- acts --------------------------------------------------------------------------


def test_held_entries_are_sent_again_and_the_act_stands_in_the_history(root: Client) -> None:
    handle = receipt()
    entry = kept.entry(handle, reason="why")
    assert "1 entry of the outbox will be sent." in act(root, "send_again", entry).text
    assert kept.held() == []
    (said,) = AuditEntry.objects.all()
    assert (said.verb, said.kind, said.details) == ("send", "outbox", {"ids": [["default", handle.id]], "moved": 1})
    assert "1 entry of the outbox will be sent." in root.get(f"{BASE}history/").text


def test_an_entry_is_sent_again_from_its_page(root: Client, person: Callable[..., Client]) -> None:
    entry, other = kept.entry(receipt(), reason="why"), kept.entry(receipt(8), reason="why")
    page = f"{ADDRESS}{entry}/change/"
    assert 'value="send_again"' not in person("view_jobs").get(page).text
    (action, form) = re.findall(
        r'<form method="post" action="([^"]+)" class="jobs">(.*?)</form>', root.get(page).text, re.DOTALL
    )[0]
    data = dict(re.findall(r'type="hidden" name="(?!csrf)(\w+)" value="(\w+)"', form))
    assert "1 entry of the outbox will be sent." in root.post(action, data, follow=True).text
    assert kept.held() == [other]


def test_it_asks_before_entries_are_sent_that_may_run_twice(root: Client) -> None:
    old, fresh = kept.entry(receipt(), reason="why", age=kept.OLD), kept.entry(receipt(8), reason="why")
    asked = act(root, "send_again", old, fresh)
    assert "1 of 2 entries is older than IDEMPOTENCY" in asked.text
    assert kept.held() == [old, fresh]
    fields = re.findall(r'type="hidden" name="(?!csrf)(\w+)" value="(\w+)"', asked.text)
    data = {name: [value for each, value in fields if each == name] for name, _ in fields}
    assert "2 entries of the outbox will be sent." in root.post(ADDRESS, data, follow=True).text
    assert kept.held() == []


def test_entries_are_deleted_after_a_question(root: Client) -> None:
    first, second, third = (kept.entry(receipt(n), reason="why") for n in range(3))
    assert "Are you sure" in act(root, "delete_selected", first, second).text
    assert len(kept.ids()) == 3
    act(root, "delete_selected", first, second, post="yes")
    assert kept.ids() == [third]
    assert "Are you sure" in root.get(f"{ADDRESS}{third}/delete/").text
    root.post(f"{ADDRESS}{third}/delete/", {"post": "yes"})
    assert kept.ids() == []
    assert [(each.verb, each.details["moved"]) for each in AuditEntry.objects.order_by("pk")] == [
        ("delete", 2),
        ("delete", 1),
    ]


def test_who_may_send_and_delete_is_who_may_retry_and_delete_jobs(person: Callable[..., Client]) -> None:
    entry = kept.entry(receipt(), reason="why")
    looks, retries, deletes = person("view_jobs"), person("view_jobs", "retry_jobs"), person("view_jobs", "delete_jobs")
    assert person("retry_jobs", "delete_jobs").get(ADDRESS).status_code == 403
    for client in (looks, deletes):
        act(client, "send_again", entry)
    assert kept.held() == [entry]
    for client in (looks, retries):
        act(client, "delete_selected", entry, post="yes")
        assert client.post(f"{ADDRESS}{entry}/delete/", {"post": "yes"}).status_code == 403
    assert kept.ids() == [entry]
    act(retries, "send_again", entry)
    assert kept.held() == []
    act(deletes, "delete_selected", entry, post="yes")
    assert kept.ids() == []


# -- overview and findings -------------------------------------------------------------


def found() -> dict[str, tuple[str, int]]:
    return {
        each.cause: (each.severity.value, each.number) for each in diagnosis.check().findings if each.kind == "outbox"
    }


def test_what_waits_too_long_or_is_held_is_a_finding_that_leads_to_the_list(root: Client) -> None:
    kept.entry(receipt(), age=timedelta(seconds=4))
    assert found() == {}
    assert "in the outbox" not in root.get(BASE).text
    kept.entry(receipt(), age=timedelta(seconds=20))
    assert "2 entries wait in the outbox, the oldest for 2" in root.get(BASE).text
    assert "2 entries wait in the outbox, the oldest for 2" in root.get("/admin/django_jobs/").text
    assert found() == {}
    kept.entry(receipt(), age=timedelta(seconds=70))
    kept.entry(receipt(), reason="why")
    assert found() == {"outbox": ("error", 3), "outbox_held": ("warning", 1)}
    page = root.get(BASE).text
    assert f"{ADDRESS}?is_held__exact=0" in page
    assert f"{ADDRESS}?is_held__exact=1" in page


def test_entries_that_are_left_while_it_is_off_are_a_finding(root: Client) -> None:
    kept.entry(receipt())
    with override_settings(DJANGO_JOBS={"STORE": "memory"}):
        assert found() == {"outbox_off": ("error", 1)}
        assert f'href="{ADDRESS}"' in root.get(BASE).text
        said = StringIO()
        with pytest.raises(SystemExit):
            call_command("jobs", "doctor", stdout=said)
        assert "ERROR    outbox: 1 entry is left in the outbox, and OUTBOX is off" in said.getvalue()


def test_an_outbox_that_cannot_be_read_hides_no_other_finding() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_jobs_outboxentry RENAME TO elsewhere")
    with override("en"):
        assert any("The outbox could not be checked" in text for text in diagnosis.check().unchecked_texts)


# -- the command -------------------------------------------------------------------


def jobs(*words: str) -> tuple[str, int]:
    """What the command prints, and how it ends."""
    out, code = StringIO(), 0
    try:
        call_command("jobs", *words, stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    return out.getvalue().strip(), code


def test_commands_on_a_job_that_is_still_in_the_outbox_say_so() -> None:
    handle = receipt()
    for words in (["show"], ["why"], ["cancel"], ["retry"], ["edit", "--args", "[8]"]):
        with pytest.raises(CommandError, match=f"{handle.id} \\(entry {kept.entry(handle)}\\)"):
            jobs(words[0], handle.id, *words[1:])
    with pytest.raises(JobNotFound, match="jobs outbox"):
        operations.job(handle.id)


def test_the_command_lists_entries(console_store: Store) -> None:
    assert jobs("outbox") == ("No entry of this kind.", 0)
    handle = charge()
    waits, holds = kept.entry(handle), kept.entry(receipt(), reason="why", age=kept.OLD)
    text, _ = jobs("outbox")
    assert handle.id in text
    assert "held, may run twice" in text
    assert "There are more." in jobs("outbox", "--limit", "1")[0]
    first, second = json.loads(jobs("outbox", "--json")[0])
    assert (first["id"], first["held"], first["args"][0]) == (waits, False, 7)
    assert CARD not in json.dumps(first)
    assert (second["id"], second["old"], second["reason"]) == (holds, True, "why")
    assert [each["id"] for each in json.loads(jobs("outbox", "--held", "--json")[0])] == [holds]


def test_the_command_sends_and_deletes_and_says_what_it_did_not(settings: Any) -> None:
    fresh, old = kept.entry(receipt(), reason="why"), kept.entry(receipt(8), reason="why", age=kept.OLD)
    text, code = jobs("outbox", "send", str(fresh), str(old), "999")
    assert (code, kept.held()) == (1, [old])
    assert text.startswith("send: 1 entry. Older than IDEMPOTENCY")
    assert "Not found: 999." in text
    assert jobs("outbox", "send", str(old), "--yes") == ("send: 1 entry.", 0)
    assert kept.held() == []
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "OUTBOX": False}
    assert "OUTBOX is off: nobody sends them" in jobs("outbox", "send", str(old), "--yes")[0]
    assert jobs("outbox", "delete", str(old), str(fresh)) == ("delete: 2 entries.", 0)
    assert kept.ids() == []
    assert [(each.verb, each.source) for each in AuditEntry.objects.order_by("pk")] == [
        ("send", "command"),
        ("send", "command"),
        ("delete", "command"),
    ]
    for words in (("delete", "999"), ("send", str(2**70)), ("send",), ("list", "5")):
        with pytest.raises(CommandError):
            jobs("outbox", *words)


def test_what_waits_already_is_sent_and_is_no_act(root: Client) -> None:
    handle = receipt()
    waits, holds = kept.entry(receipt(8)), kept.entry(handle, reason="why")
    for _ in range(2):
        assert jobs("outbox", "send", str(waits), str(holds)) == ("send: 2 entries.", 0)
    assert "2 entries of the outbox will be sent." in act(root, "send_again", waits, holds).text
    (done,) = AuditEntry.objects.all()
    assert done.details == {"ids": [["default", handle.id]], "moved": 1}


@pytest.mark.parametrize("words", [(), ("--cancel", "--yes"), ("--retry",)])
def test_commands_on_a_workflow_or_batch_that_is_still_in_the_outbox_say_so(words: tuple[str, ...]) -> None:
    flow = chain(sample_jobs.receipt.s(1), sample_jobs.receipt.s(2)).enqueue()
    with Batch("import") as made:
        sample_jobs.receipt.enqueue(1)
    for id, entry in zip((flow.id, made.handle.id), kept.ids()[:2], strict=True):
        with pytest.raises(CommandError, match=f"with the id '{id}'. It is in the outbox \\(entry {entry}\\)"):
            jobs("workflow", id, *words)
