"""Every address × everybody × every method."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from django_jobs.admin.common.acts import sentence
from django_jobs.browse import Match
from django_jobs.core.values import State
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import bulk
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE, PERMISSIONS
from tests.support.console_data import Filler, fill_typical, worker_info

pytestmark = pytest.mark.django_db

PAGES = [
    "",
    "?period=day",
    "queues/",
    "queues/default/",
    *(f"jobs/{state}/" for state in State),
    "jobs/dead/?group=1",
    "jobs/retry/?group=1",
    "jobs/dead/?q=x&name=y&queue=default&error=z",
    "search/",
    "search/?q=x",
    "store/",
    "types/shop.send_receipt/",
    "types/nobody.knows/?queue=default",
    "workers/",
    "workers/web-1_3A4711/",
    "bulk/",
    "history/",
    "job/default/dead/",
    "bulk/{operation}/",
]
#: (address, what is sent, the permission it needs)
CHANGES = [
    ("jobs/dead/", {"verb": "retry", "job": "default/dead"}, "retry_jobs"),
    ("jobs/dead/", {"verb": "retry", "scope": "all", "confirmed": "1"}, "retry_jobs"),
    ("jobs/dead/", {"verb": "delete", "job": "default/dead", "confirmed": "1"}, "delete_jobs"),
    ("jobs/scheduled/", {"verb": "cancel", "job": "default/scheduled"}, "delete_jobs"),
    ("jobs/scheduled/", {"verb": "kill", "job": "default/scheduled", "confirmed": "1"}, "delete_jobs"),
    (
        "jobs/scheduled/",
        {"verb": "reschedule", "job": "default/scheduled", "confirmed": "1", "run_at": "2029-01-01T00:00:00"},
        "retry_jobs",
    ),
    ("job/default/dead/", {"verb": "retry"}, "retry_jobs"),
    ("job/default/dead/", {"verb": "delete", "confirmed": "1"}, "delete_jobs"),
    ("job/default/dead/edit/", {"arguments": "[[9], {}]"}, "retry_jobs"),
    (
        "job/default/dead/another/",
        {"arguments": "[[9], {}]", "queue": "default", "priority": "0", "form": "0" * 32, "confirmed": "1"},
        "enqueue_jobs",
    ),
    ("queues/default/", {"do": "pause"}, "pause_queues"),
    ("queues/default/", {"do": "pause", "for": "1h"}, "pause_queues"),
    ("queues/default/", {"do": "resume"}, "pause_queues"),
    ("queues/default/", {"do": "pause", "name": "shop.send_receipt"}, "pause_queues"),
    ("workers/", {"worker": "web-1:4711", "command": "stop", "confirmed": "1"}, "manage_workers"),
    ("bulk/{operation}/", {"do": "stop"}, "delete_jobs"),
    ("bulk/{operation}/", {"do": "continue"}, "delete_jobs"),
]
EVERYBODY = ["anonymous", "customer", "staff", "view_jobs", "all but view_jobs", "superuser"]


@pytest.fixture
def operation(console_store: Store) -> str:
    """A store with one known job in each state that changes need, and an operation that waits."""
    filler = Filler(console_store)
    filler.make(State.DEAD, id="dead")
    filler.make(State.SCHEDULED, id="scheduled")
    console_store.publish_worker("web-1:4711", worker_info(), 60_000)
    return bulk.start("delete", State.EXPIRED, Match()).id


@pytest.fixture(params=EVERYBODY)
def who(request: pytest.FixtureRequest, person: Callable[..., Client]) -> tuple[str, Client]:
    name: str = request.param
    if name == "anonymous":
        return name, Client()
    if name == "superuser":
        return name, person(superuser=True)
    chosen = PERMISSIONS[1:] if name == "all but view_jobs" else PERMISSIONS[:1] if name == "view_jobs" else ()
    return name, person(*chosen, staff=name != "customer")


def everything(store: Store) -> object:
    """All that a page could have changed."""
    return (
        [(info.id, info.record) for state in State for info in store.page("default", state)],
        store.stats(["default"])[0],
        store.get_document("bulk"),
    )


def test_a_page_is_for_those_who_may_view_jobs_and_changes_nothing(
    who: tuple[str, Client], operation: str, console_store: Store
) -> None:
    name, client = who
    before = everything(console_store)
    for page in PAGES:
        response = client.get(BASE + page.format(operation=operation))
        if name in {"anonymous", "customer"}:
            assert response.status_code == 302, page
            assert "/admin/login/" in response["Location"]
        else:
            assert response.status_code == (200 if name in {"view_jobs", "superuser"} else 403), page
    assert everything(console_store) == before
    assert AuditEntry.objects.count() == 0


@pytest.mark.parametrize("who", EVERYBODY[:-1], indirect=True)
def test_nobody_else_changes_anything(who: tuple[str, Client], operation: str, console_store: Store) -> None:
    name, client = who
    before = everything(console_store)
    for page, data, _ in CHANGES:
        response = client.post(BASE + page.format(operation=operation), data)
        assert response.status_code == (302 if name in {"anonymous", "customer"} else 403), page
    assert everything(console_store) == before
    assert AuditEntry.objects.count() == 0


def test_a_change_needs_its_own_permission(operation: str, console_store: Store, person: Callable[..., Client]) -> None:
    before = everything(console_store)
    for permission in {needed for *_, needed in CHANGES}:
        client = person(*(each for each in PERMISSIONS if each != permission))
        for page, data, needed in CHANGES:
            if needed == permission:
                assert client.post(BASE + page.format(operation=operation), data).status_code == 403, (page, data)
    assert everything(console_store) == before
    assert AuditEntry.objects.count() == 0


@pytest.mark.parametrize(("page", "data", "permission"), CHANGES)
def test_with_its_permission_a_change_is_made_and_logged(
    page: str,
    data: dict[str, str],
    permission: str,
    operation: str,
    console_store: Store,
    person: Callable[..., Client],
) -> None:
    with_arguments = page.endswith(("/edit/", "/another/"))
    needed = ("view_jobs", "view_arguments", permission) if with_arguments else ("view_jobs", permission)
    client = person(*needed)
    if data.get("do") == "resume":
        console_store.pause("default")
    response = client.post(BASE + page.format(operation=operation), data)
    assert response.status_code in {302, 303}
    if data.get("do") != "continue":
        (entry,) = AuditEntry.objects.all()
        assert entry.actor == "-".join(needed)
        assert sentence(entry)


def test_without_the_token_against_forged_requests_nothing_changes(
    operation: str, console_store: Store, root: Client
) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = root.cookies
    before = everything(console_store)
    for page, data, _ in CHANGES:
        assert strict.post(BASE + page.format(operation=operation), data).status_code == 403, page
    assert everything(console_store) == before


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options"])
def test_other_methods_are_refused(method: str, operation: str, console_store: Store, root: Client) -> None:
    before = everything(console_store)
    for page in PAGES:
        response = getattr(root, method)(BASE + page.format(operation=operation))
        assert response.status_code == 405, page
    assert everything(console_store) == before


def test_a_page_without_changes_refuses_them(operation: str, console_store: Store, root: Client) -> None:
    for page in ("", "queues/", "bulk/", "history/"):
        assert root.post(BASE + page).status_code == 405


def test_buttons_are_shown_to_those_who_may_press_them(console_store: Store, person: Callable[..., Client]) -> None:
    fill_typical(console_store)
    dead = console_store.page("default", State.DEAD, 0, 1)[0].id
    page = f"{BASE}job/default/{quote(dead)}/"
    viewer, mender = person("view_jobs"), person("view_jobs", "retry_jobs")
    assert 'name="verb"' not in viewer.get(page).text
    assert 'value="retry"' in mender.get(page).text
    assert 'value="delete"' not in mender.get(page).text
    assert 'value="retry"' in mender.get(f"{BASE}jobs/dead/").text
    assert 'name="verb"' not in viewer.get(f"{BASE}jobs/dead/").text


def test_the_index_shows_the_console_to_viewers_only(console_store: Store, person: Callable[..., Client]) -> None:
    assert "django_jobs/dashboard" in person("view_jobs").get("/admin/").text
    assert "django_jobs" not in person("retry_jobs").get("/admin/").text


def test_pages_are_neither_kept_nor_guessed(console_store: Store, root: Client) -> None:
    response = root.get(BASE)
    assert "no-store" in response["Cache-Control"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Type"].startswith("text/html")
