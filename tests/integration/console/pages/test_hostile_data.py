"""Whatever jobs hold, the pages show it as text, and none of them breaks."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from tests.integration.console.acting.test_who_may_do_what import PAGES
from tests.integration.console.conftest import BASE
from tests.support.console_data import MARKUP, Filler, fill_hostile, fill_typical

pytestmark = pytest.mark.django_db

STATIC_PAGES = [page for page in PAGES if "{" not in page and not page.startswith("job/")]


class Inspector(HTMLParser):
    """Finds what a strict content security policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        self.refused += [f"<{tag} {name}>" for name in names if name == "style" or name.startswith("on")]
        self.refused += [f"{tag} {value}" for name, value in attrs if name in {"href", "src"} and unsafe(value)]
        if tag == "style" or (tag == "script" and "src" not in names):
            kind = dict(attrs).get("type")
            self.refused += [f"<{tag}> inline"] if kind != "application/json" else []


def unsafe(address: str | None) -> bool:
    """Does this address leave the site, or is it a script?"""
    return bool(re.match(r"\s*(javascript|data|https?|//)", address or "", re.IGNORECASE))


def refused(text: str) -> list[str]:
    inspector = Inspector()
    inspector.feed(text)
    return inspector.refused


def job_pages(store: Store) -> list[str]:
    return [f"job/default/{quote(info.id)}/" for state in State for info in store.page("default", state)]


@pytest.mark.accepts("G79")
def test_hostile_data_is_text_on_every_page(console_store: Store, root: Client) -> None:
    fill_hostile(console_store)
    pages = [page for page in STATIC_PAGES if not page.startswith("workers/web-1")]
    pages += [f"workers/{quote(worker.name)}/" for worker in console_store.workers()] + job_pages(console_store)
    assert len(pages) > len(STATIC_PAGES) + 15
    for page in pages:
        response = root.get(BASE + page)
        assert response.status_code == 200, page
        assert MARKUP not in response.text, page
        assert refused(response.text) == [], page


def test_pages_hold_nothing_that_a_strict_policy_refuses(console_store: Store, root: Client) -> None:
    fill_typical(console_store)
    for page in STATIC_PAGES + job_pages(console_store):
        assert refused(root.get(BASE + page).text) == [], page
    assert refused(root.get("/admin/django_jobs/").text) == []


def test_every_change_works_on_hostile_ids(console_store: Store, root: Client) -> None:
    filler = Filler(console_store)
    ids = [MARKUP, "a/b", "a b", "100%", "é\u202e", "..", "x?y#z", "a\\b", '"', "_2F"]
    for id in ids:
        filler.make(State.DEAD, id=id)
    for id in ids:
        assert root.get(f"{BASE}job/default/{quote(id)}/").status_code == 200, id
        response = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "job": f"default/{quote(id)}"})
        assert response.status_code == 302
        info = console_store.get("default", id)
        assert info is not None
        assert info.state is State.QUEUED, id


def test_an_id_of_dots_does_not_lead_out_of_its_folder(console_store: Store, filler: Filler, root: Client) -> None:
    filler.make(State.DEAD, id="..")
    assert f'href="{BASE}job/default/_2E_2E/"' in root.get(f"{BASE}jobs/dead/").text
    assert root.get(f"{BASE}job/default/_2E_2E/").status_code == 200


def test_an_id_that_is_empty_has_a_page_too(console_store: Store, make_job: Any, root: Client) -> None:
    """Nobody can enqueue one; a damaged store may hold it, and it must not take the list down."""
    console_store.enqueue("default", [make_job()._replace(id="")])
    assert f'href="{BASE}job/default/_/"' in root.get(f"{BASE}jobs/queued/").text
    assert root.get(f"{BASE}job/default/_/").status_code == 200
    assert root.get(f"{BASE}job/default/_5F/").status_code == 404


@pytest.mark.accepts("G79")
def test_a_record_that_cannot_be_read_shows_its_bytes_and_can_be_deleted(
    console_store: Store, filler: Filler, root: Client
) -> None:
    filler.make(State.DEAD, record=b"\xff\x00<script>", id="broken")
    page = root.get(f"{BASE}job/default/broken/").text
    assert "\\xff" in page
    assert "&lt;script&gt;" in page
    root.post(f"{BASE}job/default/broken/", {"verb": "delete", "confirmed": "1"})
    assert console_store.get("default", "broken") is None


@pytest.mark.parametrize(
    "address",
    [
        "jobs/nothing/",
        "jobs/dead%00/",
        "queues/nothing/",
        "jobs/dead/?queue=nothing",
        "job/default/nothing/",
        "job/nothing/nothing/",
        "job/default/nothing/edit/",
        "bulk/nothing/",
        f"queues/{quote(MARKUP)}/",
    ],
)
def test_what_does_not_exist_is_not_found(address: str, console_store: Store, root: Client) -> None:
    response = root.get(BASE + address)
    assert response.status_code == 404
    assert MARKUP not in response.text


def test_page_numbers_nobody_wrote_give_a_page(console_store: Store, filler: Filler, root: Client) -> None:
    filler.make(State.DEAD)
    for number in ("0", "-1", "999999999999999999999", "x", "1e9", "٣", "", "1.5"):
        for page in (
            f"jobs/dead/?p={number}",
            f"jobs/dead/?q=a&after={number}",
            f"queues/?p={number}",
            f"history/?p={number}",
        ):
            assert root.get(BASE + page).status_code == 200, page


def test_zero_bytes_and_endless_filters_find_nothing_and_break_nothing(filler: Filler, root: Client) -> None:
    filler.make(State.DEAD)
    for value in ("%00", "x" * 2_000, "%F0%9F%92%A9", "' OR 1=1 --", "*", "["):
        assert root.get(f"{BASE}jobs/dead/?q={value}&name={value}&error={value}").status_code == 200
        assert root.get(f"{BASE}search/?q={value}").status_code == 200
    for page in ("jobs/dead", "search"):  # cut short, it would choose other jobs
        assert root.get(f"{BASE}{page}/?q={'x' * 5_000}").status_code == 400, page


@pytest.mark.parametrize(
    "data",
    [{}, {"verb": "explode"}, {"verb": "cancel"}, {"verb": "retry", "job": "no-slash"}, {"verb": "kill", "job": "a/b"}],
)
def test_a_change_that_makes_no_sense_changes_nothing(data: dict[str, str], console_store: Store, root: Client) -> None:
    Filler(console_store).make(State.DEAD)
    assert root.post(f"{BASE}jobs/dead/", data).status_code in {302, 400}
    assert console_store.stats(["default"])[0].counts["dead"] == 1
