"""The outbox over HTTP, and in the metrics."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_jobs.exceptions import StoreUnavailable
from django_jobs.models.audit import AuditEntry
from django_jobs.stores.redis import Store
from tests.integration.api import work
from tests.integration.api.conftest import SETTINGS, Api
from tests.support import kept

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _outbox(api: Api, settings: Any) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "OUTBOX": True}


def test_entries_are_listed_page_by_page_with_sensitive_arguments_masked(api: Api) -> None:
    handle = work.charge.enqueue("4111 1111", amount=3)
    entries = [kept.entry(handle), *(kept.entry(work.greet.enqueue(str(n)), reason="why") for n in range(2))]
    first = api.get("v1/outbox?limit=2").json()
    assert [each["id"] for each in first["entries"]] == entries[:2]
    assert api.get(f"v1/outbox?cursor={first['cursor']}").json()["cursor"] is None
    shown = first["entries"][0]
    assert (shown["kind"], shown["key"], shown["name"], shown["held"]) == ("job", handle.id, "tests.charge", False)
    assert "4111 1111" not in str(shown)
    assert first["entries"][1]["data"] == ["0"]
    assert [each["id"] for each in api.get("v1/outbox?held=true").json()["entries"]] == entries[1:]
    assert [each["id"] for each in api.get("v1/outbox?held=false").json()["entries"]] == entries[:1]


def test_an_entry_is_sent_again_once_however_often_the_call_is_sent(api: Api) -> None:
    entry = kept.entry(work.greet.enqueue("Ada"), reason="why")
    for _ in range(2):
        answer = api.post(f"v1/outbox/{entry}/send", {})
        assert (answer.status_code, answer.json()["held"], answer.json()["data"]) == (200, False, ["Ada"])
    assert [(each.verb, each.kind, each.source) for each in AuditEntry.objects.all()] == [("send", "outbox", "http")]
    assert api.post("v1/outbox/999/send", {}).json()["type"].endswith(":no-entry")


def test_an_old_entry_is_sent_only_if_it_may_run_twice(api: Api) -> None:
    entry = kept.entry(work.greet.enqueue("Ada"), reason="why", age=kept.OLD)
    refused = api.post(f"v1/outbox/{entry}/send", {})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:problem-type:django-jobs:may-run-twice")
    assert kept.held() == [entry]
    for _ in range(2):
        assert api.post(f"v1/outbox/{entry}/send", {"run_twice": True}).status_code == 200
    assert kept.held() == []


def test_an_entry_is_deleted_once(api: Api) -> None:
    entry = kept.entry(work.greet.enqueue("Ada"))
    for _ in range(2):
        answer = api("DELETE", f"v1/outbox/{entry}")
        assert (answer.status_code, answer.json()) == (200, {"id": entry, "deleted": True})
    assert kept.ids() == []
    assert AuditEntry.objects.count() == 1


def test_a_token_for_some_job_types_deals_only_with_their_entries(api: Api) -> None:
    own, other = kept.entry(work.greet.enqueue("Ada")), kept.entry(work.rename.enqueue("Ada"))
    limited = Api("read", "manage", jobs=("tests.greet",))
    assert [each["id"] for each in limited.get("v1/outbox").json()["entries"]] == [own]
    assert limited("DELETE", f"v1/outbox/{other}").status_code == 403
    assert limited.post(f"v1/outbox/{other}/send", {}).status_code == 403
    assert limited("DELETE", f"v1/outbox/{own}").status_code == 200
    blind = Api("manage").post(f"v1/outbox/{other}/send", {}).json()
    assert (blind["key"] != "", blind["data"]) == (True, None)


def test_who_asks_for_a_job_that_is_still_in_the_outbox_is_told(api: Api) -> None:
    handle = work.greet.enqueue("Ada")
    limited = Api("read", jobs=("tests.rename",))
    for caller, path, is_told in (
        (api, f"tests.greet/{handle.id}", True),
        (api, handle.id, True),
        (api, "nothing", False),
        (limited, f"tests.rename/{handle.id}", False),
        (limited, handle.id, False),
    ):
        answer = caller.get(f"v1/jobs/{path}")
        assert answer.status_code == 404, path
        assert (f"{handle.id} (entry {kept.entry(handle)})" in answer.json()["detail"]) == is_told, path


def metrics(api: Api) -> dict[str, float]:
    lines = re.findall(r"^(django_jobs_(?:outbox|up)\S*) (\S+)$", api.get("metrics").content.decode(), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def test_the_metrics_count_entries_also_while_the_store_is_away(
    api: Api, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.entry(work.greet.enqueue("Ada"), age=timedelta(seconds=30))
    kept.entry(work.greet.enqueue("Ada"), reason="why")

    def refuse(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("Nobody listens.")

    for up in (1, 0):
        found = metrics(api)
        assert found["django_jobs_up"] == up
        assert found['django_jobs_outbox_entries{state="waiting"}'] == 1
        assert found['django_jobs_outbox_entries{state="held"}'] == 1
        assert found["django_jobs_outbox_oldest_seconds"] >= 30
        monkeypatch.setattr(Store, "workers", refuse)
    settings.DJANGO_JOBS = SETTINGS
    assert metrics(api) == {"django_jobs_up": 0}


def test_a_database_that_does_not_answer_leaves_the_other_metrics(api: Api) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_jobs_outboxentry RENAME TO elsewhere")
    assert metrics(api) == {"django_jobs_up": 1}
