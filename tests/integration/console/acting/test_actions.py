"""What people do on the pages, from the list to the log."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from django_jobs import browse, operations
from django_jobs.admin.common.acts import sentence
from django_jobs.core.values import State
from django_jobs.exceptions import StoreUnavailable
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import bulk
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db


def state_of(store: Store, id: str) -> State | None:
    info = store.get("default", id)
    return info.state if info else None


@pytest.mark.accepts("G59", "G09", "G41")
def test_a_dead_job_is_retried_and_it_is_said_and_logged(console_store: Store, filler: Filler, root: Client) -> None:
    first, second, other = (filler.make(State.DEAD) for _ in range(3))
    data = {"verb": "retry", "job": [f"default/{quote(id)}" for id in (first, second)]}
    response = root.post(f"{BASE}jobs/dead/", data, follow=True)
    assert "2 jobs were queued." in response.text
    assert [state_of(console_store, id) for id in (first, second, other)] == [State.QUEUED, State.QUEUED, State.DEAD]
    (entry,) = AuditEntry.objects.all()
    assert sentence(entry) == "2 jobs were queued."
    assert entry.details["ids"] == [["default", first], ["default", second]]
    assert entry.subject == "default"
    assert first in root.get(f"{BASE}history/").text


@pytest.mark.accepts("G41")
@pytest.mark.parametrize("verb", ["delete", "kill"])
def test_what_cannot_be_undone_asks_first(verb: str, console_store: Store, filler: Filler, root: Client) -> None:
    state = State.SCHEDULED
    id = filler.make(state)
    data = {"verb": verb, "job": f"default/{id}"}
    response = root.post(f"{BASE}jobs/scheduled/", data)
    assert response.status_code == 200
    assert f"{verb} this job?" in response.text.lower()
    assert f'href="{BASE}job/default/{id}/"' in response.text
    assert "They" not in response.context["explained"]
    assert state_of(console_store, id) is state
    root.post(f"{BASE}jobs/scheduled/", data | {"confirmed": "1", "reason": "wrong customer"})
    assert state_of(console_store, id) is (None if verb == "delete" else State.DEAD)


def test_all_that_match_asks_first_and_then_runs_in_batches(console_store: Store, filler: Filler, root: Client) -> None:
    for _ in range(60):
        filler.make(State.DEAD)
    response = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "scope": "all"})
    assert "60 jobs in state “Dead”." in response.text
    assert AuditEntry.objects.count() == 0
    response = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "scope": "all", "confirmed": "1"}, follow=True)
    assert "60 jobs were queued. It is complete." in response.text
    assert console_store.stats(["default"])[0].counts["dead"] == 0
    assert "60 jobs" in sentence(AuditEntry.objects.get())


def test_the_progress_page_goes_on_by_itself(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 5)
    monkeypatch.setattr("django_jobs.admin.jobs.actions.FIRST_STRETCH", 0.0)
    monkeypatch.setattr("django_jobs.admin.jobs.bulk.STRETCH", 0.0)
    for _ in range(200):
        filler.make(State.DEAD)
    page = root.post(f"{BASE}jobs/dead/", {"verb": "delete", "scope": "all", "confirmed": "1"})["Location"]
    seen = set()
    for _ in range(100):
        seen.add(root.get(page).context["operation"].moved)
        if root.get(page).context["operation"].finished:
            break
        root.post(page, {"do": "continue"})
    assert root.get(page).context["operation"].moved == 200
    assert len(seen) > 1


def test_a_job_is_rescheduled_to_a_time(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.SCHEDULED)
    page = f"{BASE}job/default/{id}/"
    assert 'type="datetime-local"' in root.post(page, {"verb": "reschedule"}).text
    assert "Enter a valid" in root.post(page, {"verb": "reschedule", "confirmed": "1", "run_at": "soon"}).text
    root.post(page, {"verb": "reschedule", "confirmed": "1", "run_at": "2031-05-01T12:00:00"})
    info = console_store.get("default", id)
    assert info is not None
    assert info.at == 1_935_403_200_000


def test_arguments_are_edited_and_the_job_runs(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD)
    page = f"{BASE}job/default/{id}/edit/"
    assert "This is not JSON" in root.post(page, {"arguments": "["}).text
    assert "This is not JSON" in root.post(page, {"arguments": "[[NaN], {}]"}).text
    assert "Write a list of two values" in root.post(page, {"arguments": "[1]"}).text
    assert "cannot be called" in root.post(page, {"arguments": "[[], {}]"}).text
    assert state_of(console_store, id) is State.DEAD
    assert "queued with new arguments" in root.post(page, {"arguments": "[[8], {}]"}, follow=True).text
    assert decode(id, "default", filler.claim()[0].record).args == b"[[8],{}]"


@pytest.mark.accepts("K31")
def test_a_job_that_waits_gets_other_arguments_and_goes_on_waiting(
    console_store: Store, filler: Filler, root: Client
) -> None:
    first, behind = filler.make(State.QUEUED), filler.make(State.QUEUED)
    assert "Edit arguments" in root.get(f"{BASE}job/default/{first}/").text
    page = f"{BASE}job/default/{first}/edit/"
    assert "Save and run now" not in root.get(page).text, "it is queued already"
    assert "cannot be called" in root.post(page, {"arguments": "[[], {}]", "wait": "1"}).text
    assert "is still waiting" in root.post(page, {"arguments": "[[8], {}]", "wait": "1"}, follow=True).text
    assert state_of(console_store, first) is State.QUEUED
    claims = filler.claim(limit=2)
    assert [claim.id for claim in claims] == [first, behind]
    assert decode(first, "default", claims[0].record).args == b"[[8],{}]"
    assert "cannot be edited" in root.post(page, {"arguments": "[[9], {}]", "wait": "1"}, follow=True).text


@pytest.mark.accepts("G41", "G83")
def test_a_queue_is_paused_with_a_reason_and_resumed(console_store: Store, filler: Filler, root: Client) -> None:
    page = f"{BASE}queues/default/"
    response = root.post(page, {"do": "pause", "reason": "the bank is down"}, follow=True)
    assert "Paused: default" in response.text
    assert "the bank is down" in response.text
    filler.add()
    assert filler.claim() == []
    assert "This time has passed" in root.post(page, {"do": "pause", "until": "2001-01-01T00:00"}).text
    root.post(page, {"do": "resume"})
    assert len(filler.claim()) == 1


def test_a_worker_is_told_to_stop_after_a_question(console_store: Store, root: Client) -> None:
    console_store.publish_worker("web-1:4711", worker_info(), 60_000)
    data = {"worker": "web-1:4711", "command": "stop"}
    assert "Stop this worker?" in root.post(f"{BASE}workers/", data).text
    assert console_store.publish_worker("web-1:4711", worker_info(), 60_000) == []
    root.post(f"{BASE}workers/", data | {"confirmed": "1"})
    assert console_store.publish_worker("web-1:4711", worker_info(), 60_000) == ["stop"]
    gone = root.post(f"{BASE}workers/", {"worker": "x", "command": "stop", "confirmed": "1"}, follow=True)
    assert "There is no worker x any more." in gone.text


def test_a_deleted_jobs_page_leads_to_the_list(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD)
    response = root.post(f"{BASE}job/default/{id}/", {"verb": "delete", "confirmed": "1"}, follow=True)
    assert response.redirect_chain == [(f"{BASE}jobs/dead/", 302)]
    assert "1 job was deleted." in response.text


def test_a_job_that_moved_on_is_left_alone_and_it_is_said(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.QUEUED)
    response = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "job": f"default/{id}"}, follow=True)
    assert "0 jobs were queued. 1 job had changed its state and was skipped." in response.text
    response = root.post(f"{BASE}job/default/{id}/", {"verb": "retry"}, follow=True)
    assert "changed its state in the meantime" in response.text


@pytest.mark.parametrize(
    ("shown", "verb", "other", "now"),
    [(State.DEAD, "delete", "revive", State.QUEUED), (State.SCHEDULED, "retry", "cancel", State.CANCELLED)],
)
def test_what_somebody_else_has_decided_since_stays(
    console_store: Store, filler: Filler, root: Client, shown: State, verb: str, other: str, now: State
) -> None:
    id = filler.make(shown)
    operations.act(other, "default", [id])
    data = {"verb": verb, "job": f"default/{id}", "confirmed": "1"}
    assert "1 job had changed its state and was skipped." in root.post(f"{BASE}jobs/{shown}/", data, follow=True).text
    page = root.post(f"{BASE}job/default/{id}/", data | {"state": shown.value}, follow=True).text
    assert "changed its state in the meantime" in page
    assert state_of(console_store, id) is now


def test_the_question_and_the_log_have_the_numbers_of_what_matches(
    console_store: Store, filler: Filler, root: Client
) -> None:
    for i in range(22):
        filler.make(State.DEAD, name="shop.send_receipt" if i < 9 else "shop.charge_card")
    url = f"{BASE}jobs/dead/?name=shop.send_receipt"
    asked = root.post(url, {"verb": "kill", "scope": "all"})
    assert asked.status_code == 400, "dead jobs cannot be killed"
    asked = root.post(url, {"verb": "delete", "scope": "all"})
    assert "9 jobs match, of 22 in state “Dead”." in asked.text
    root.post(url, {"verb": "delete", "scope": "all", "confirmed": "1"})
    message = sentence(AuditEntry.objects.get())
    assert "9 jobs were deleted." in message
    assert "name=shop.send_receipt" in message
    assert not re.search(r"\b22\b", message)


def test_the_history_can_be_read_while_the_store_is_away(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.add()
    root.post(f"{BASE}queues/default/", {"do": "pause", "reason": "the bank is down"})

    def away(*_: object) -> None:
        raise StoreUnavailable("Redis refuses connections.")

    for name in ("stats", "queues"):
        monkeypatch.setattr(console_store, name, away)
    assert root.get(BASE).status_code == 503
    response = root.get(f"{BASE}history/")
    assert response.status_code == 200
    assert "the bank is down" in response.text


def test_a_group_of_errors_is_retried_from_its_row_and_named_in_the_question_and_the_log(
    console_store: Store, filler: Filler, root: Client
) -> None:
    for i in range(9):
        filler.make(State.DEAD, "declined" if i % 3 else "timed out", "BankError", queue=f"q{i % 5}")
    page = root.get(f"{BASE}jobs/dead/?group=1").text
    key = browse.error_key("BankError: declined")
    assert f'action="?error={key}"' in page
    assert page.count('value="retry"') == page.count('value="delete"') == 2
    asked = root.post(f"{BASE}jobs/dead/?error={key}", {"verb": "revive", "scope": "all"}).text
    assert "6 jobs match" in asked
    assert "BankError: declined" in asked
    root.post(f"{BASE}jobs/dead/?error={key}", {"verb": "revive", "scope": "all", "confirmed": "1"})
    assert browse.job_counts().counts["queued"] == 6
    assert browse.job_counts().counts["dead"] == 3
    assert "error=BankError: declined" in sentence(AuditEntry.objects.latest("pk"))


def test_who_may_not_see_arguments_acts_on_a_group_all_the_same(
    console_store: Store, filler: Filler, person: Callable[..., Client]
) -> None:
    for i in range(4):
        filler.make(State.DEAD, "no such user: ada" if i % 2 else "other", "LookupError", call=[["ada"], {}])
    client = person("view_jobs", "delete_jobs")
    key = browse.error_key("LookupError: no such user: ada")
    address = f"{BASE}jobs/dead/?error={key}"
    assert "no such user: ada" not in client.get(address).text
    asked = client.post(address, {"verb": "delete", "scope": "all"}).text
    assert "2 jobs match" in asked
    assert "no such user: ada" not in asked
    client.post(address, {"verb": "delete", "scope": "all", "confirmed": "1"})
    assert browse.job_counts().counts["dead"] == 2


def confirmed(page: str) -> dict[str, str]:
    """What the form of the page that asks would send."""
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))


@pytest.mark.parametrize("invalid_first", [False, True])
def test_a_job_that_comes_after_the_page_that_asks_is_left_alone(
    console_store: Store, filler: Filler, root: Client, clock: Clock, invalid_first: bool
) -> None:
    shown = [filler.make(State.RETRY) for _ in range(3)]
    asked = root.post(f"{BASE}jobs/retry/?q=timed", {"verb": "kill", "scope": "all"}).text
    assert "3 jobs match" in asked
    clock.advance(1_000)
    later = filler.make(State.RETRY)
    sent = {**confirmed(asked), "verb": "kill"}
    if invalid_first:  # the same page again, with a new number: then the job was shown
        again = root.post(f"{BASE}jobs/retry/?q=timed", {**sent, "reason": "x" * 501}).text
        assert "4 jobs match" in again
        sent, shown, later = {**confirmed(again), "verb": "kill"}, [*shown, later], ""
    root.post(f"{BASE}jobs/retry/?q=timed", {**sent, "reason": "wrong"})
    assert {state_of(console_store, id) for id in shown} == {State.DEAD}
    assert not later or state_of(console_store, later) is State.RETRY


@pytest.mark.parametrize("as_of", ["", "x", "-1", "9" * 15, "9" * 400, "²"])
def test_a_page_that_asks_cannot_have_been_made_later_than_now(
    console_store: Store, filler: Filler, root: Client, clock: Clock, as_of: str
) -> None:
    id = filler.make(State.DEAD)
    root.post(f"{BASE}jobs/dead/", {"verb": "delete", "scope": "all", "confirmed": "1", "as_of": as_of})
    (operation,) = bulk.operations_list()
    assert operation.started == clock()
    assert state_of(console_store, id) is None


def test_the_page_that_asks_says_how_many_chosen_jobs_it_does_not_name(filler: Filler, root: Client) -> None:
    ids = [filler.make(State.DEAD) for _ in range(25)]
    page = root.post(f"{BASE}jobs/dead/", {"verb": "delete", "job": [f"default/{id}" for id in ids]}).text
    assert "and 5 more" in page


@pytest.mark.usefixtures("console_store")
@pytest.mark.parametrize("asked", [{}, {"confirmed": "1"}, {"do": "save-filter", "name": "mine"}])
def test_the_list_of_a_queue_that_is_gone_does_nothing(asked: dict[str, str], root: Client) -> None:
    data = {"verb": "delete", "scope": "all", **asked}
    assert root.post(f"{BASE}jobs/dead/?queue=gone", data).status_code == 404
    assert bulk.operations_list() == []
