"""The error inbox: what commands, pages and the API say of errors, and what people decide about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from django_jobs import browse
from django_jobs.conf.release import release
from django_jobs.core.values import Attempt, Ended, State
from django_jobs.execution.executor import Executor
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import error_inbox, releases
from django_jobs.operations.diagnosis.failing import failing_types
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration import sample_jobs
from tests.integration.console.acting.test_command import as_json, jobs
from tests.integration.console.conftest import BASE
from tests.support.console_data import MARKUP, Filler

pytestmark = pytest.mark.django_db
FRAME = "shop/jobs.py, in pay: bank.pay(card)"
#: Different errors: twice as many as a queue remembers.
MANY = 1000


def fail(filler: Filler, error: str = "no", *, release: str = "", frame: str = FRAME, **job: Any) -> str:
    claim = filler.run(filler.add(**job), queue=job.get("queue", "default"))
    log = Attempt(claim.attempt, "failed", 0, 5, "w", "shop.BankError", error, "Traceback", release, frame)
    filler.store.bury(claim, log)
    return claim.id


def the_error() -> error_inbox.Error:
    (error,) = error_inbox.inbox().errors
    return error


def test_one_cause_is_one_row_over_all_queues_and_types(filler: Filler, clock: Clock) -> None:
    fail(filler, "500 from 'bank'", release="v1")
    clock.advance(1000)
    fail(filler, "503 from 'bank'", release="v2", queue="mail", name="shop.charge_card")
    fail(filler, "500 from 'bank'", frame="shop/jobs.py, in other: bank.pay(card)")
    first, second = sorted(as_json("errors"), key=lambda each: each["count"])
    assert (first["count"], second["count"]) == (1, 2)
    assert set(second) >= {"id", "type", "frame", "count", "first_seen", "last_seen", "state"}
    assert (second["type"], second["frame"], second["state"]) == ("shop.BankError", FRAME, "new")
    assert (second["first_release"], second["last_release"]) == ("v1", "v2")
    assert second["types"] == {"shop.send_receipt": 1, "shop.charge_card": 1}
    assert second["queues"] == {"default": 1, "mail": 1}
    assert sum(second["days"].values()) == 2
    found = error_inbox.find(second["id"])
    assert found is not None
    assert [each["id"] for each in as_json("errors", "--queue", "mail")] == [second["id"]]
    assert FRAME in jobs("errors")
    assert error_inbox.find("0" * 16) is None


def test_its_jobs_are_those_of_the_filter_and_it_outlives_them(filler: Filler, root: Client) -> None:
    id = fail(filler)
    fail(filler, frame="elsewhere")
    error = next(each for each in error_inbox.inbox().errors if each.frame == FRAME)
    page = root.get(f"{BASE}errors/{error.id}/").text
    assert id in page
    listed = root.get(f"{BASE}jobs/dead/?error={error.id}").text
    assert id in listed
    assert listed.count('name="job"') == 1
    filler.store.delete("default", [id])
    page = root.get(f"{BASE}errors/{error.id}/")
    assert page.status_code == 200
    assert FRAME in page.text


def test_lists_and_a_job_lead_to_the_page_of_their_error_if_it_is_remembered(filler: Filler, root: Client) -> None:
    id = fail(filler)
    killed = filler.add()
    filler.store.kill("default", [killed], "a person was here")
    link = f'href="{BASE}errors/{the_error().id}/"'
    other = browse.error_key("killed: a person was here")
    groups = root.get(f"{BASE}jobs/dead/?group=1").text
    assert (groups.count(link), groups.count(f"errors/{other}/")) == (1, 0)
    assert groups.count(f"error={other}") > 0
    assert link in root.get(f"{BASE}jobs/dead/?error={the_error().id}").text
    assert "Page of this error" not in root.get(f"{BASE}jobs/dead/?error={other}").text
    assert link in root.get(f"{BASE}job/default/{id}/").text
    assert "Page of this error" not in root.get(f"{BASE}job/default/{killed}/").text


def test_a_resolved_error_comes_back_with_a_newer_release_only(filler: Filler, root: Client, clock: Clock) -> None:
    for name in ("v1", "v2"):
        releases.noting(name)()
        clock.advance(1000)
    fail(filler, release="v1")
    fail(filler, release="v2")
    clock.advance(1000)
    assert as_json("errors", "resolve", the_error().id, "fixed in #7")["state"] == "resolved"
    clock.advance(1000)
    for old in ("v1", "v2", ""):  # the deployment goes on
        fail(filler, release=old)
        assert the_error().state == "resolved", old
    releases.noting("v3")()
    clock.advance(1000)
    fail(filler, release="v3")
    error = the_error()
    assert (error.state, error.came_back, error.note) == ("new", "v3", "fixed in #7")
    assert "came back" in root.get(f"{BASE}errors/").text
    assert "Release v3 has it" in root.get(f"{BASE}errors/{error.id}/").text
    noted = as_json("errors", "note", error.id, "fixed in #7")
    assert (noted["state"], noted["came_back"]) == ("new", True)
    jobs("errors", "resolve", error.id)
    assert the_error().state == "resolved"
    assert the_error().note == "fixed in #7"


def test_a_fix_that_runs_already_counts_as_newer_and_so_does_everything_without_releases(
    filler: Filler, clock: Clock
) -> None:
    for name in ("v1", "v2"):
        releases.noting(name)()
        clock.advance(1000)
    fail(filler, release="v1")
    jobs("errors", "resolve", the_error().id)
    clock.advance(1000)
    fail(filler, release="v2")
    assert the_error().came_back == "v2"
    filler.store.update_document(error_inbox.DOCUMENT, dict.fromkeys(filler.store.get_document(error_inbox.DOCUMENT)))
    fail(filler, frame="other")
    other = next(each for each in error_inbox.inbox().errors if each.frame == "other")
    jobs("errors", "resolve", other.id)
    clock.advance(1000)
    fail(filler, frame="other")
    assert error_inbox.find(other.id).state == "new"  # type: ignore[union-attr]


def test_an_ignored_error_stays_ignored_and_each_decision_is_audited(filler: Filler, clock: Clock) -> None:
    fail(filler)
    id = the_error().id
    jobs("errors", "ignore", id)
    clock.advance(1000)
    fail(filler, release="v9")
    assert [each["state"] for each in as_json("errors", "--state", "ignored")] == ["ignored"]
    jobs("errors", "note", id, "the bank knows")
    assert (the_error().state, the_error().note) == ("ignored", "the bank knows")
    jobs("errors", "reopen", id)
    assert the_error().state == "new"
    found = AuditEntry.objects.order_by("pk").values_list("verb", "kind", "subject")
    assert [verb for verb, _, _ in found] == ["ignore", "note", "reopen"]
    assert {(kind, subject) for _, kind, subject in found} == {("error", f"shop.BankError {FRAME}")}
    for words in (["--queue", "nowhere"], ["resolve", "nonsense"], ["note", id], ["note", id, "x" * 501]):
        with pytest.raises(CommandError):
            jobs("errors", *words)


def test_pages_act_for_those_who_may(filler: Filler, person: Callable[..., Client]) -> None:
    fail(filler)
    url = f"{BASE}errors/{the_error().id}/"
    reader, actor = person("view_jobs"), person("view_jobs", "pause_queues")
    assert "Resolve" not in reader.get(url).text
    assert reader.post(url, {"do": "resolve"}).status_code == 403
    for _ in range(2):  # the second changes nothing
        assert actor.post(url, {"do": "resolve", "note": "soon"}).status_code == 302
    jobs("errors", "resolve", the_error().id)
    assert AuditEntry.objects.filter(kind="error").count() == 1
    assert (the_error().state, the_error().note) == ("resolved", "soon")
    assert actor.post(url, {"do": "ignore", "list": "1"})["Location"].endswith("/errors/")
    assert (the_error().state, the_error().note) == ("ignored", "soon")
    assert "soon" in actor.get(f"{BASE}errors/?state=ignored").text
    assert actor.post(url, {"do": "explode"}).status_code == 400
    assert "at most 500" in actor.post(url, {"do": "note", "note": "x" * 501}).text
    assert reader.get(f"{BASE}errors/nonsense/").status_code == 404
    assert person().get(f"{BASE}errors/").status_code in (302, 403)
    assert "Resolve" in actor.get(f"{BASE}history/").text


def test_a_page_that_is_older_than_a_decision_undoes_none_of_it(filler: Filler, root: Client) -> None:
    fail(filler)
    address = f"{BASE}errors/{the_error().id}/"
    shown = root.get(address).text
    assert 'name="initial-note"' in shown
    root.post(address, {"do": "note", "initial-note": "", "note": "the bank's disk is full"})
    root.post(address, {"do": "resolve", "initial-note": "", "note": ""})  # of a page without the note
    root.post(address, {"do": "resolve", "initial-note": "", "note": ""})
    jobs("errors", "resolve", the_error().id)
    assert (the_error().state, the_error().note) == ("resolved", "the bank's disk is full")
    assert [entry.verb for entry in AuditEntry.objects.order_by("pk")] == ["note", "resolve"]


def test_messages_are_for_those_who_may_see_arguments(filler: Filler, person: Callable[..., Client]) -> None:
    fail(filler, "no money on 4711")
    fail(filler, "card 4711 declined", frame="")
    fail(filler, "card 4712 declined", name="shop.charge_card", frame="other")  # it has sensitive arguments
    root = person("view_jobs", "view_arguments")
    text = root.get(f"{BASE}errors/").text
    assert "no money on 4711" in text
    assert "4712" not in text
    text = person("view_jobs").get(f"{BASE}errors/").text
    assert "4711" not in text
    assert "card" not in text.replace("bank.pay(card)", "")
    assert FRAME in text


def test_hostile_values_are_shown_as_text(filler: Filler, root: Client, console_store: Store) -> None:
    fail(filler, MARKUP, release=MARKUP[:190], frame=f"{MARKUP} {MARKUP}")
    console_store.update_document(error_inbox.DOCUMENT, {"x": 5, "y": ["resolved", 1], the_error().signature: "odd"})
    key = console_store.keys.of("default")["errors"]
    for n, value in enumerate(
        (b"\xff", b"1\t2\t3\t\t{}", b"9999999999999999\t1\t1\t\t{}", b"1\t2\t3\t\t[" + b"[" * 5000)
    ):
        console_store.transport.client.hset(key, f"odd {n}", value)
    for url in ("errors/", f"errors/{the_errors()[0].id}/"):
        page = root.get(BASE + url)
        assert page.status_code == 200
        assert MARKUP not in page.text
    as_json("errors")


def the_errors() -> list[error_inbox.Error]:
    return error_inbox.inbox().errors


def test_more_errors_than_are_remembered_are_bounded_and_said(filler: Filler, root: Client, clock: Clock) -> None:
    store = filler.store
    for start in range(0, MANY, 200):
        for _ in range(200):
            filler.add()
        logs = (Attempt(1, "failed", 0, 1, "w", "E", "no", "", "v1", f"f{start + n}") for n in range(200))
        ended = [Ended(claim, "bury", log) for claim, log in zip(filler.claim(limit=200), logs, strict=True)]
        store.settle("default", ended)
        clock.advance(1)
    inbox = error_inbox.inbox()
    assert 400 <= len(inbox.errors) <= 500
    assert inbox.forgotten == MANY - len(inbox.errors)
    page = root.get(f"{BASE}errors/").text
    assert "older errors were forgotten" in page
    assert "errors that were seen earlier are not shown" in page
    assert "Forgotten, because" in jobs("errors")


def test_a_list_of_groups_says_that_its_index_is_being_built(filler: Filler, root: Client) -> None:
    fail(filler)
    filler.make(State.DEAD)
    assert "workers are building" not in root.get(f"{BASE}jobs/dead/?group=1").text
    filler.store.transport.client.delete(filler.store.keys.of("default")["failures"])
    assert "2 jobs are not among the groups yet" in root.get(f"{BASE}jobs/dead/?group=1").text


def test_a_failing_type_names_the_releases_of_its_error(filler: Filler, console_store: Store, clock: Clock) -> None:
    for name in ("v1", "v2") * 10:
        fail(filler, release=name)
        clock.advance(1)
    (found,), _ = failing_types(browse.job_counts(), clock.now)
    assert found.error == f"shop.BankError: {FRAME} (release v1, v2)"


def test_a_job_that_runs_is_told_by_its_own_line_and_its_release(
    console_store: Store, make_job: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert sample_jobs.failing.name == "sample.failing"
    console_store.enqueue("default", [make_job(name="sample.failing", args=b"[[%d],{}]" % n) for n in (1, 2)])
    for claim in console_store.claim("default", "w", 2, lease=30_000).claims:
        Executor(close_connections=False).run(claim, console_store)
    error = the_error()
    raised = 'raise ValueError(f"no order {order_id}")'
    assert error.frame == f"tests/integration/sample_jobs.py, in failing: {raised}"
    assert (error.type, error.seen.number, error.last_release) == ("ValueError", 2, release())
    assert sorted(error.messages) == ["no order 1", "no order 2"]
