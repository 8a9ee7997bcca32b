"""The audit log: every act by every way is in it, as data, and is read in the reader's language."""

from __future__ import annotations

import ast
import html
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

import django_jobs
from django_jobs import browse
from django_jobs.admin.common.acts import facts, sentence
from django_jobs.core.signature import signature
from django_jobs.core.values import State
from django_jobs.models import ApiToken, RemoteJobType, Schedule
from django_jobs.models.audit import Act, AuditEntry, ObjectKind, Source, record
from django_jobs.operations import bulk
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

PAGE = f"{BASE}history/"
ENDPOINTS = Path(django_jobs.__file__).parent / "api" / "endpoints"
WRITING = {"post", "put", "patch", "delete"}

pytestmark = pytest.mark.django_db


def managing() -> dict[str, bool]:
    """Endpoint that changes something with the scope `manage` → does it write an entry?"""
    found = {}
    for path in sorted(ENDPOINTS.glob("*.py")):
        tree = ast.parse(path.read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

        def called(node: ast.AST) -> set[str]:
            calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
            return {getattr(each, "id", None) or getattr(each, "attr", "") for each in calls}

        def mentions(node: ast.AST) -> bool:
            return any(isinstance(each, ast.Attribute) and each.attr == "MANAGE" for each in ast.walk(node))

        for name, node in functions.items():
            routes = [each for each in node.decorator_list if isinstance(each, ast.Call)]
            if not any(getattr(each.func, "attr", "") in WRITING for each in routes):
                continue
            below = [functions[each] for each in called(node) if each in functions]
            if mentions(node) or any(mentions(each) for each in below):
                names = called(node).union(*(called(each) for each in below))
                found[f"{path.stem}.{name}"] = bool(names & {"log", "log_job"})
    return found


def test_every_call_over_http_that_manages_something_writes_an_entry() -> None:
    found = managing()
    assert len(found) >= 14
    assert [name for name, writes in found.items() if not writes] == []


@pytest.mark.parametrize("arguments", [("pause", "default", "--reason", "the bank is down"), ("resume", "default")])
def test_a_command_stands_in_it_with_the_user_of_the_shell(
    console_store: Store, filler: Filler, arguments: tuple[str, ...]
) -> None:
    filler.add()
    console_store.pause("default", reason="stocktaking", by="ada")
    call_command("jobs", *arguments, stdout=StringIO())
    (entry,) = AuditEntry.objects.all()
    assert (entry.verb, entry.kind, entry.subject, entry.source) == (arguments[0], "queue", "default", "command")
    assert entry.actor.endswith("shell)") or entry.actor == "shell"
    text = " ".join(facts(entry, arguments=True))
    if arguments[0] == "pause":
        assert "the bank is down" in text
    else:
        assert "paused by ada" in text
        assert "stocktaking" in text


def test_a_resume_of_what_was_not_paused_is_no_act(console_store: Store, filler: Filler) -> None:
    filler.add()
    call_command("jobs", "resume", "default", stdout=StringIO())
    assert not AuditEntry.objects.exists()


def test_retry_delete_and_bulk_of_the_command_line(console_store: Store, filler: Filler) -> None:
    ids = [filler.make(State.DEAD) for _ in range(5)]
    call_command("jobs", "retry", ids[0], stdout=StringIO())
    call_command("jobs", "delete", "--all", "dead", stdout=StringIO())
    every, one = AuditEntry.objects.all()
    assert one.details == {"ids": [["default", ids[0]]], "moved": 1, "asked": 0, "held": 0}
    assert (every.kind, every.verb, every.details["moved"]) == (ObjectKind.BULK, "delete", 4)
    assert "4 jobs were deleted." in sentence(every)


def test_a_bulk_act_that_is_interrupted_stands_in_it_and_goes_on(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.make(State.DEAD)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bulk, "drive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call_command("jobs", "delete", "--all", "dead", stdout=StringIO())
    (entry,), (operation,) = AuditEntry.objects.all(), bulk.operations_list()
    assert (entry.verb, entry.source, entry.subject, entry.details["ended"]) == ("delete", "command", operation.id, 0)
    assert operation.user == entry.actor
    bulk.drive(operation.id, 60.0)
    bulk.tell_ended()
    end = AuditEntry.objects.latest("id")
    assert (end.actor, end.source, end.details["moved"]) == (entry.actor, "command", 1)
    assert console_store.stats(["default"])[0].counts["dead"] == 0
    assert f"bulk/{operation.id}/" in root.get(PAGE).text


def test_the_command_prints_it_and_chooses(console_store: Store, filler: Filler) -> None:
    record("ada", Source.ADMIN, Act("pause", ObjectKind.QUEUE, "default", {"reason": "the bank is down"}))
    record("robot", Source.HTTP, Act("kill", ObjectKind.JOB, "mail", {"ids": [["mail", "7"]], "moved": 1}))

    def said(*options: str) -> str:
        out = StringIO()
        call_command("jobs", "history", *options, stdout=out)
        return out.getvalue()

    assert "reason=the bank is down" in said()
    assert "robot" in said()
    assert "robot" not in said("--user", "ada")
    (entry,) = json.loads(said("--source", "http", "--json"))
    assert (entry["verb"], entry["kind"], entry["details"]["ids"]) == ("kill", "job", [["mail", "7"]])
    assert "Nobody has changed anything yet." in said("--user", "nobody")


def test_an_edit_shows_old_and_new_arguments_only_to_those_who_may_see_arguments(
    console_store: Store, filler: Filler, person: Callable[..., Client]
) -> None:
    id = filler.add()
    editor = person("view_jobs", "view_arguments", "retry_jobs")
    old = console_store.get("default", id)
    assert old is not None
    editor.post(f"{BASE}job/default/{id}/edit/", {"arguments": '[[], {"order_id": 4712}]', "wait": "1"})
    (entry,) = AuditEntry.objects.all()
    assert entry.verb == "edit"
    assert '"order_id": 4712' in entry.details["after"]
    assert entry.details["before"] != entry.details["after"]
    assert "4712" in editor.get(PAGE).text
    assert "4712" not in person("view_jobs").get(PAGE).text


@pytest.mark.parametrize(
    ("query", "error", "secret"),
    [
        ("arg.order_id=424242 tag:eu", "", "424242"),
        ('tag:eu "ada@example.com"', "", "ada@example.com"),
        ("tag:eu ada@example.com", "", "ada@example.com"),
        ("tag:eu", "ValueError: no account of ada@example.com", "ada@example.com"),
    ],
)
def test_what_a_bulk_act_has_searched_for_in_arguments_is_shown_only_to_those_who_may_see_them(
    query: str, error: str, secret: str, console_store: Store, filler: Filler, person: Callable[..., Client]
) -> None:
    call = [[424242], {"email": "ada@example.com"}]
    id = filler.make(State.DEAD, call=call, error=error or "away", error_type="ValueError", tags="eu")
    keeper = person("view_jobs", "view_arguments", "delete_jobs")
    info = console_store.get("default", id)
    assert info is not None
    place = {"q": query} | ({"error": browse.error_key(signature(info.attempts[-1]))} if error else {})
    address = f"{BASE}jobs/dead/?{urlencode(place)}"
    assert keeper.post(address, {"verb": "delete", "scope": "all", "confirmed": "1"}).status_code == 302
    (operation,) = bulk.operations_list()
    assert operation.moved == 1
    viewer = person("view_jobs")
    for page in (PAGE, f"{BASE}bulk/{operation.id}/"):
        assert secret in html.unescape(keeper.get(page).text)
        shown = html.unescape(viewer.get(page).text)
        assert secret not in shown
        assert "eu" in shown


def test_of_a_query_that_this_version_cannot_read_nothing_is_shown_without_arguments() -> None:
    details = {"state": "dead", "query": "state:dead where:4242", "ended": 1, "moved": 1}
    entry = AuditEntry(verb="delete", kind="bulk", subject="1", details=details)
    assert "where:4242" in sentence(entry, arguments=True)
    assert "4242" not in sentence(entry, arguments=False)


def test_sensitive_arguments_are_masked_before_they_are_written(
    console_store: Store, filler: Filler, root: Client
) -> None:
    id = filler.add("shop.charge_card", [[7, "4111111111111111"], {}])
    call = '[[7, "5500005555555559"], {}]'
    answer = root.post(f"{BASE}job/default/{id}/edit/", {"arguments": call, "wait": "1"})
    assert answer.status_code == 302
    written = json.dumps(AuditEntry.objects.get().details)
    assert "4111111111111111" not in written
    assert "5500" not in written


def test_rows_of_the_ordinary_admin_stand_in_it_with_old_and_new_values(console_store: Store, root: Client) -> None:
    token, _ = ApiToken.objects.issue("billing", ["enqueue"])
    root.post(
        f"/admin/django_jobs/apitoken/{token.pk}/change/",
        {"name": "billing", "scopes": ["enqueue", "read"], "jobs": "", "expires_at_0": "", "expires_at_1": ""},
    )
    (changed,) = AuditEntry.objects.all()
    assert (changed.verb, changed.kind, changed.subject) == ("change", "token", "billing")
    assert changed.details["changes"] == {"scopes": [["enqueue"], ["enqueue", "read"]]}
    root.post(
        "/admin/django_jobs/apitoken/", {"action": "revoke", "_selected_action": [token.pk]}
    )  # fmt: skip
    assert AuditEntry.objects.latest("pk").verb == "revoke"
    kind = RemoteJobType.objects.create(name="php.resize", queue="pull")
    root.post(f"/admin/django_jobs/remotejobtype/{kind.pk}/delete/", {"post": "yes"})
    assert AuditEntry.objects.latest("pk").verb == "delete"
    assert AuditEntry.objects.latest("pk").subject == "php.resize"
    page = root.get(PAGE).text
    assert "billing" in page
    assert "php.resize" in page


def test_arguments_of_a_schedule_are_not_written(console_store: Store, root: Client, filler: Filler) -> None:
    row = Schedule.objects.create(name="nightly", job="shop.send_receipt", cron="0 3 * * *", kwargs={"order_id": 1})
    root.post(
        f"/admin/django_jobs/schedule/{row.pk}/change/",
        {"name": "nightly", "job": "shop.send_receipt", "cron": "0 4 * * *", "args": "[]",
         "kwargs": '{"order_id": 987654}', "timezone": "", "missed": row.missed, "overlap": row.overlap, "jitter": "0",
         "enabled": "on"},
    )  # fmt: skip
    (entry,) = AuditEntry.objects.all()
    assert entry.subject == f"db:{row.pk}"
    assert entry.details["changes"]["cron"] == ["0 3 * * *", "0 4 * * *"]
    assert "987654" not in json.dumps(entry.details)
    text = " ".join(facts(entry, arguments=True))
    assert "0 3 * * * → 0 4 * * *" in text
    assert "kwargs was changed." in text


def test_an_entry_is_read_in_the_language_of_its_reader(db: None) -> None:
    record("ada", Source.ADMIN, Act("delete", ObjectKind.JOB, "default", {"moved": 3}))
    entry = AuditEntry.objects.get()
    assert sentence(entry) == "3 jobs were deleted."
    with translation.override("de"):
        assert sentence(entry) == "3 Jobs wurden gelöscht."


@pytest.mark.parametrize("details", [{}, [], 7, "text", {"ids": 5, "changes": [1], "paused": 3, "until": "x"}])
def test_an_entry_of_another_version_breaks_no_page(console_store: Store, root: Client, details: Any) -> None:
    AuditEntry.objects.create(actor="ada", source="fax", verb="dissolve", kind="galaxy", subject="M31", details=details)
    for kind, verb in (
        ("job", "edit"),
        ("bulk", "delete"),
        ("queue", "resume"),
        ("schedule", "run"),
        ("job", "replay"),
    ):
        AuditEntry.objects.create(actor="ada", source="http", verb=verb, kind=kind, subject="x", details=details)
    page = root.get(PAGE)
    assert page.status_code == 200
    assert "M31" in page.text


def test_it_is_chosen_by_user_action_and_way(console_store: Store, root: Client) -> None:
    record("ada", Source.ADMIN, Act("pause", ObjectKind.QUEUE, "alpha"))
    record("robot", Source.HTTP, Act("kill", ObjectKind.JOB, "beta", {"moved": 1}))
    for choice, shown, hidden in (
        ("user=ada", "alpha", "beta"), ("source=http", "beta", "alpha"), ("verb=queue:pause", "alpha", "beta"),
    ):  # fmt: skip
        page = root.get(f"{PAGE}?{choice}").text
        assert shown in page
        assert f"<bdi>{hidden}</bdi>" not in page


def test_what_is_offered_to_choose_is_looked_up_in_an_index(
    console_store: Store, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a million entries, reading all of them for it took half a second."""
    for actor, kind, verb in (("bob", "queue", "pause"), ("ada", "job", "retry"), ("bob", "job", "delete")):
        AuditEntry.objects.create(actor=actor, source="http", verb=verb, kind=kind, subject="x")
        AuditEntry.objects.create(actor=actor, source="http", verb=verb, kind=kind, subject="y")
    with CaptureQueriesContext(connection) as asked:
        page = root.get(PAGE)
    offered = [each["sql"] for each in asked if "MIN(" in each["sql"]]
    assert not any("DISTINCT" in each["sql"] for each in asked)
    assert len(offered) == 3 + 4 + 3 * 2  # one for each value, and one that finds no more
    assert page.context["names"] == ["ada", "bob"]
    assert [verb for verb, _ in page.context["verbs"]] == ["job:delete", "job:retry", "queue:pause"]
    for sql in offered:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            assert "SEARCH" in str(cursor.fetchall()), sql  # not SCAN
    monkeypatch.setattr("django_jobs.admin.pages.history.NAMES", 1)
    assert root.get(PAGE).context["names"] == ["ada"]


def test_an_entry_names_at_most_200_jobs_and_counts_all(console_store: Store, root: Client) -> None:
    ids = [["default", f"job{i}"] for i in range(200)]
    record("ada", Source.ADMIN, Act("delete", ObjectKind.JOB, "default", {"ids": ids, "moved": 1234}))
    page = root.get(PAGE).text
    assert "job/default/job0/" in page
    assert "and 1,214 more" in page


def test_what_was_done_stands_even_if_the_log_cannot_be_written(
    console_store: Store,
    filler: Filler,
    root: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    id = filler.make(State.DEAD)

    def broken(*_: Any, **__: Any) -> None:
        raise DatabaseError("no such table: django_jobs_auditentry")

    monkeypatch.setattr(AuditEntry, "save", broken)
    answer = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "job": f"default/{id}"})
    assert answer.status_code == 302
    assert console_store.stats(["default"])[0].counts["queued"] == 1
    assert "manage.py migrate" in caplog.text
