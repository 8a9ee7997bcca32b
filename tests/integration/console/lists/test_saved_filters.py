"""Saved filters: links above a list, private to the user who saved them."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client

from django_jobs.core.values import State
from django_jobs.models import AuditEntry, SavedFilter
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

pytestmark = pytest.mark.django_db

QUERY = "queue=mail&q=timed+out&from=2026-01-31T08%3A30%3A00&order=asc"


@pytest.fixture
def filler(console_store: Store) -> Filler:
    filler = Filler(console_store)
    filler.make(State.DEAD, queue="mail")
    return filler


def save(client: Client, name: str, query: str = QUERY, state: str = "dead") -> str:
    data = {"do": "save-filter", "name": name}
    return unescape(client.post(f"{BASE}jobs/{state}/?{query}", data, follow=True).text)


def links(client: Client, state: str = "dead") -> dict[str, str]:
    """Saved filters of a list: name → query."""
    text = client.get(f"{BASE}jobs/{state}/").text
    part = text.partition('<ul aria-label="Saved filters">')[2].partition("</ul>")[0]
    return {name: unescape(query) for query, name in re.findall(r'<a href="\?([^"]*)"[^>]*><bdi>([^<]*)', part)}


def test_a_filter_is_saved_shown_and_deleted(filler: Filler, root: Client) -> None:
    assert "Save this filter" not in root.get(f"{BASE}jobs/dead/").text
    assert "Save this filter" in root.get(f"{BASE}jobs/dead/?{QUERY}").text
    assert "The filter “Mail, timed out” was saved." in save(root, "  Mail,   timed out ")
    assert links(root) == {"Mail, timed out": QUERY}
    assert links(root, "retry") == {}
    assert root.get(f"{BASE}jobs/dead/?{QUERY}").text.count(' aria-current="true"><bdi>Mail') == 1
    save(root, "Mail, timed out", "queue=mail")
    assert links(root) == {"Mail, timed out": "queue=mail"}, "one of the same name is replaced"
    row = SavedFilter.objects.get()
    said = root.post(f"{BASE}jobs/dead/", {"do": "forget-filter", "filter": row.pk}, follow=True).text
    assert "The filter “Mail, timed out” was deleted." in said
    assert links(root) == {}
    assert not AuditEntry.objects.exists()


def test_nobody_sees_or_deletes_the_filters_of_another(filler: Filler, person: Callable[..., Client]) -> None:
    ada, bob = person("view_jobs"), person("view_jobs", "view_arguments")
    save(ada, "mine")
    row = SavedFilter.objects.get()
    assert links(bob) == {}
    said = bob.post(f"{BASE}jobs/dead/", {"do": "forget-filter", "filter": row.pk}, follow=True).text
    assert "There is no such saved filter." in said
    assert links(ada) == {"mine": QUERY}
    save(bob, "mine", "queue=mail")
    assert (links(ada), links(bob)) == ({"mine": QUERY}, {"mine": "queue=mail"})


def test_only_who_may_see_jobs_saves_filters(filler: Filler, person: Callable[..., Client]) -> None:
    assert person("retry_jobs").post(f"{BASE}jobs/dead/?{QUERY}", {"do": "save-filter", "name": "x"}).status_code == 403
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = person("view_jobs").cookies
    assert strict.post(f"{BASE}jobs/dead/?{QUERY}", {"do": "save-filter", "name": "x"}).status_code == 403
    assert not SavedFilter.objects.exists()


@pytest.mark.parametrize(
    ("name", "query", "says"),
    [
        ("", QUERY, "Give the filter a name."),
        ("a\0b", QUERY, "Give the filter a name."),
        ("x" * 61, QUERY, "at most 60 characters"),
        ("none", "", "This list has no filter to save."),
        ("none", "nothing=1", "This list has no filter to save."),
        ("long", "q=" + "%F0%9F%98%80" * 290, "too long to be saved"),
        ("wrong", "from=yesterday", "is not a time"),
    ],
)
def test_what_cannot_be_saved_is_said(filler: Filler, root: Client, name: str, query: str, says: str) -> None:
    assert says in save(root, name, query)
    assert not SavedFilter.objects.exists()


def test_there_is_a_limit_for_each_list_and_user(filler: Filler, root: Client, person: Callable[..., Client]) -> None:
    for n in range(20):
        assert "was saved" in save(root, f"filter {n}")
    assert "You have 20 saved filters for this list" in save(root, "one more")
    assert "was saved" in save(root, "filter 7", "queue=mail")
    assert "was saved" in save(root, "another list", "q=x", "retry")
    assert "was saved" in save(person("view_jobs"), "another user")
    assert len(links(root)) == 20


@pytest.mark.parametrize("id", ["", "x", "-1", "9" * 30, "٣"])
def test_an_id_that_nobody_wrote_deletes_nothing(filler: Filler, root: Client, id: str) -> None:
    save(root, "mine")
    said = root.post(f"{BASE}jobs/dead/", {"do": "forget-filter", "filter": id}, follow=True)
    assert said.status_code == 200
    assert "There is no such saved filter." in said.text
    assert links(root) == {"mine": QUERY}


def test_names_are_text(filler: Filler, root: Client) -> None:
    save(root, "<script>alert(1)</script>")
    text = root.get(f"{BASE}jobs/dead/").text
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text


@pytest.mark.django_db(transaction=True)
def test_without_the_table_the_lists_are_shown_and_saving_says_why(filler: Filler, root: Client) -> None:
    """The code is deployed before the migration has run."""
    with connection.schema_editor() as editor:
        editor.delete_model(SavedFilter)
    try:
        text = root.get(f"{BASE}jobs/dead/?{QUERY}")
        assert text.status_code == 200
        assert "Save this filter" not in text.text
        assert "Filters cannot be saved now" in save(root, "x")
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(SavedFilter)


def test_the_filters_of_a_user_go_with_the_user(filler: Filler, person: Callable[..., Client]) -> None:
    ada, bob = person("view_jobs"), person(superuser=True)
    for client in (ada, bob):
        save(client, "Mail")
    users = get_user_model().objects
    users.get(username="view_jobs").delete()
    assert list(SavedFilter.objects.values_list("owner", flat=True)) == [str(users.get(username="root").pk)]
    users.all().delete()
    assert not SavedFilter.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_user_is_deleted_although_the_table_of_filters_is_not_there_yet(person: Callable[..., Client]) -> None:
    person(superuser=True)
    with connection.schema_editor() as editor:
        editor.delete_model(SavedFilter)
    try:
        get_user_model().objects.all().delete()
        assert not get_user_model().objects.exists()
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(SavedFilter)
