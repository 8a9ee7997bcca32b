"""The pages of workflows and batches: what they show, and what their buttons do."""

from __future__ import annotations

import re

import pytest

from django_jobs import Batch, Workflow, browse, group, operations
from django_jobs.core.values import Attempt, Lane
from django_jobs.models.audit import AuditEntry
from django_jobs.workflows import engine
from tests.contract.workflows.steps import RAN, act, run
from tests.integration.console.conftest import BASE
from tests.integration.console.workflows import flows
from tests.support.console_data import MARKUP

pytestmark = pytest.mark.django_db


def test_the_list_shows_progress_and_filters(store, root):
    done, stopped, batch = flows.order(store), flows.order(store, dead="packed"), flows.batch(store)
    page = root.get(f"{BASE}workflows/").text
    assert all(f"{BASE}workflows/{id}/" in page for id in (done, stopped, batch))
    assert "3 of 4" in page
    assert 'value="75"' in page
    only = root.get(f"{BASE}workflows/?state=stopped").text
    assert stopped in only
    assert done not in only
    assert "3 of 3 workflows were checked." in only
    assert batch in root.get(f"{BASE}workflows/?kind=batch").text
    assert done not in root.get(f"{BASE}workflows/?kind=batch").text
    assert root.get(f"{BASE}workflows/?state=asleep&after=x&kind=y").status_code == 200


def test_the_list_has_pages(store, root):
    ids = {flows.order_waiting(f"order {n}") for n in range(55)}
    first = root.get(f"{BASE}workflows/").text
    (older,) = re.findall(r'href="(\?after=[^"]+)"', first)
    second = root.get(f"{BASE}workflows/{older}").text
    found = [re.findall(rf"{BASE}workflows/(w\w+)/", page) for page in (first, second)]
    assert [len(part) for part in found] == [50, 5]
    assert set(found[0] + found[1]) == ids
    assert "Newest" in second


def test_a_workflow_is_drawn_and_leads_to_its_jobs(store, root):
    id = flows.order(store, dead="packed")
    page = root.get(f"{BASE}workflows/{id}/").text
    assert page.count('class="jobs-step ') == 4
    assert page.count('<path class="jobs-line') == 4
    assert f'href="{BASE}job/default/{id}.1/"' in page.replace("_2E", ".")
    assert 'aria-label="mailed: Waiting"' not in page  # there is no job yet
    assert "<title>mailed: Waiting</title>" in page
    assert "packed: Dead" in page
    assert "Nothing more happens by itself." in page
    assert "style=" not in page[page.index("jobs-live") :]
    only = root.get(f"{BASE}workflows/{id}/?state=dead").text
    assert only.count('id="jobs-step-') == 1
    job = root.get(f"{BASE}job/default/{id}.1/").text
    assert f'href="{BASE}workflows/{id}/"' in job


def test_a_step_that_was_cancelled_before_its_turn_leads_nowhere(store, root):
    id = flows.order_waiting()
    root.post(f"{BASE}workflows/{id}/", {"do": "cancel", "confirmed": "1"})
    page = root.get(f"{BASE}workflows/{id}/").text.replace("_2E", ".")
    links = re.findall(rf'href="({BASE}job/default/{id}[^"]+)"', page)
    assert links
    assert all(root.get(link).status_code == 200 for link in links)


def test_500_steps_are_grouped_and_paged(store, root):
    flow = Workflow("catalogue")
    first = flow.add(act.s("source"), name="source")
    parts = [flow.add(act.s(f"{n}"), after=[first]) for n in range(498)]
    flow.add(act.s("end"), name="end", after=parts)
    id = flow.enqueue().id
    page = root.get(f"{BASE}workflows/{id}/").text
    assert page.count('class="jobs-step ') == 3
    assert "498 Waiting" in page
    assert page.count('id="jobs-step-') == 100
    assert root.get(f"{BASE}workflows/{id}/?p=5").text.count('id="jobs-step-') == 100
    box = root.get(f"{BASE}workflows/{id}/?box=3").text
    assert box.count('id="jobs-step-') == 1
    assert 'id="jobs-step-499"' in box


def test_a_batch_has_counts_jobs_and_callbacks(store, root):
    id = flows.batch(store, *(f"{n}" for n in range(120)), dead="7")
    page = root.get(f"{BASE}workflows/{id}/").text
    assert "jobs-graph" not in page
    assert "on_success" in page
    assert "tests.steps.act" in page
    (older,) = re.findall(r'href="(\?after=[^"#]+)', page)
    assert root.get(f"{BASE}workflows/{id}/{older}").text.count('<th scope="row">') == 20
    only = root.get(f"{BASE}workflows/{id}/?state=dead").text
    assert only.count('<th scope="row">') == 1
    (job,) = re.findall(rf'href="({BASE}job/[^"]+)"', only)
    assert f'href="{BASE}workflows/{id}/"' in root.get(job).text


def test_an_open_batch_says_so(store, root):
    batch = Batch("import")
    with batch:
        act.enqueue("a")
        assert "Jobs may still be added." in root.get(f"{BASE}workflows/{batch.handle.id}/").text


def test_retry_lets_it_go_on_and_is_logged(store, root):
    id = flows.order(store, dead="packed")
    page = root.post(f"{BASE}workflows/{id}/", {"do": "retry"}, follow=True).text
    assert "1 job was queued." in page
    assert (AuditEntry.objects.get().subject, AuditEntry.objects.get().details["name"]) == (id, "order 7")
    RAN.clear()
    assert run(store) == ["packed", "mailed"]
    assert browse.workflow(id).state == "succeeded"


def test_jobs_that_may_have_started_are_asked_about(store, root):
    id = flows.charged_and_dead(store)
    page = root.post(f"{BASE}workflows/{id}/", {"do": "retry"}).text
    assert "may have been started" in page
    assert "4111 1111" not in page + root.get(f"{BASE}workflows/{id}/").text
    assert browse.workflow(id).state == "stopped"
    page = root.post(f"{BASE}workflows/{id}/", {"do": "retry", "confirmed": "1"}, follow=True).text
    assert "it was not started again" in page
    assert not AuditEntry.objects.exists()  # nothing was changed
    root.post(f"{BASE}workflows/{id}/", {"do": "retry", "confirmed": "1", "start_again": "on"})
    assert browse.workflow(id).state == "running"
    assert AuditEntry.objects.get().details["moved"] == 1


def test_the_question_is_about_the_ends_that_its_page_could_show(store, root, clock):
    id = flows.charged_and_dead(store)
    asked = root.post(f"{BASE}workflows/{id}/", {"do": "retry"}).text
    answer = {"do": "retry", "start_again": "on"}
    answer |= dict(re.findall(r'type="hidden" name="(as_of|confirmed)" value="([^"]*)"', asked))
    clock.advance(1_000)
    assert operations.retry_held(id) == 1
    (claim,) = store.claim("default", "w", 1, lane=Lane.ALONE, lease=60_000).claims
    store.bury(claim, Attempt(2, "failed", store.now(), error_type="Declined"))
    engine.advance(store, "default")
    assert "it was not started again" in root.post(f"{BASE}workflows/{id}/", answer, follow=True).text
    assert browse.workflow(id).state == "stopped"


def test_cancel_asks_first(store, root):
    id = flows.order_waiting()
    assert "Cancel this workflow?" in root.post(f"{BASE}workflows/{id}/", {"do": "cancel"}).text
    assert browse.workflow(id).state == "running"
    page = root.post(f"{BASE}workflows/{id}/", {"do": "cancel", "confirmed": "1"}, follow=True).text
    assert "The workflow was cancelled." in page
    assert browse.workflow(id).state == "cancelled"
    page = root.post(f"{BASE}workflows/{id}/", {"do": "retry"}, follow=True).text
    assert "has changed its state in the meantime" in page
    assert root.post(f"{BASE}workflows/{id}/", {"do": "x"}).status_code == 400


def test_a_cancel_that_comes_too_late_is_not_in_the_history(store, root):
    path = f"{BASE}workflows/{flows.order_waiting()}/"
    for said in ("The workflow was cancelled.", "has changed its state in the meantime"):
        assert said in root.post(path, {"do": "cancel", "confirmed": "1"}, follow=True).text
    assert AuditEntry.objects.filter(verb="cancel").count() == 1


def test_one_that_is_stopped_can_be_cancelled(store, root):
    id = flows.order(store, dead="packed")
    assert 'value="cancel"' in root.get(f"{BASE}workflows/{id}/").text
    root.post(f"{BASE}workflows/{id}/", {"do": "cancel", "confirmed": "1"})
    assert browse.workflow(id).state == "cancelled"
    page = root.get(f"{BASE}workflows/{id}/").text
    assert 'value="cancel"' not in page
    assert 'value="retry"' not in page
    assert browse.that_cannot_go_on()[0] == []


def test_who_may_do_what(store, person):
    id = flows.order(store, dead="packed")
    path = f"{BASE}workflows/{id}/"
    for permissions, retry, cancel in (
        (["view_jobs"], 403, 403),
        (["view_jobs", "retry_jobs"], 302, 403),
        (["view_jobs", "delete_jobs"], 403, 200),
        (["retry_jobs", "delete_jobs"], 403, 403),
    ):
        client = person(*permissions)
        assert client.get(path).status_code == (200 if "view_jobs" in permissions else 403)
        assert client.post(path, {"do": "cancel"}).status_code == cancel
        assert client.post(path, {"do": "retry"}).status_code == retry


def test_an_error_quotes_arguments_only_to_those_who_may_see_them(store, person):
    id = flows.mailed_and_dead(store, "ada@example.com")
    page = f"{BASE}workflows/{id}/"
    assert "ada@example.com was refused" in person("view_jobs", "view_arguments").get(page).text
    shown = person("view_jobs").get(page).text
    assert "Refused" in shown
    assert "ada@example.com" not in shown


def test_what_is_not_there(store, root):
    for id in ("w1", "a/b", "..", "<b>"):
        response = root.get(f"{BASE}workflows/{id.replace('/', '_2F').replace('.', '_2E')}/")
        assert response.status_code == 404
        assert "<b>" not in response.text[response.text.index("jobs-title") :]


def test_hostile_names(store, root):
    flow = Workflow(MARKUP)
    flow.add(act.s("a"), name=MARKUP)
    id = flow.enqueue().id
    with Batch(MARKUP) as batch:
        act.enqueue("a")
    for path in ("", f"{id}/", f"{batch.handle.id}/", "?state=<b>&kind=<b>&after=<b>"):
        page = root.get(f"{BASE}workflows/{path}").text
        assert "<script>alert" not in page
        assert "<img src=x" not in page


def test_the_pages_of_10_000_steps_stay_small(store, root):
    """The time is measured by bench; here, what grows with the steps is bounded."""
    id = group(*[act.s("x") for _ in range(10_000)]).enqueue().id
    page = root.get(f"{BASE}workflows/{id}/")
    assert page.status_code == 200
    assert len(page.content) < 150_000
