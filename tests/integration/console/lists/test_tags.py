"""Jobs by their tags: lists, search, links, bulk actions, and the command."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from django_jobs import browse
from django_jobs.browse import Match
from django_jobs.core.values import Job, Options, State
from django_jobs.operations import bulk, searching
from django_jobs.serialization.record import encode, tags_of
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.lists import MOST_TAGS
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, search_in_small_steps

pytestmark = pytest.mark.django_db


def tagged(filler: Filler, state: State, tags: str, id: str, *, name: str = "shop.send_receipt", **more: Any) -> str:
    queue = more.get("queue", "default")
    record = encode(Job(id, queue, name, b"[[7],{}]", filler.store.now(), Options(max_attempts=10, tags=tags)))
    return filler.make(state, id=id, record=record, **more)


@pytest.fixture
def filler_of() -> Any:
    """Fill this store, which the console uses."""

    def use(store: Store) -> Filler:
        use_store(store)
        return Filler(store)

    return use


@pytest.fixture
def some(filler: Filler) -> None:
    """Two dead and two queued jobs of a customer, and as many of others."""
    tagged(filler, State.DEAD, "billing customer:42", "d1")
    tagged(filler, State.DEAD, "customer:42", "d2", queue="mail")
    tagged(filler, State.DEAD, "customer:4", "d3", name="shop.charge_card")
    tagged(filler, State.DEAD, "", "d4")
    tagged(filler, State.QUEUED, "customer:42", "q1")
    tagged(filler, State.QUEUED, "customer:42", "q2", queue="mail")
    tagged(filler, State.QUEUED, "billing", "q3")


def counted(tag: str) -> tuple[int, bool]:
    """How many dead jobs have it, and whether there may be more."""
    found = {each.tag: each for each in browse.tag_counts(State.DEAD, ["default", "mail"])[0]}
    return found[tag].jobs, found[tag].or_more


def shown(client: Client, state: str, **query: str) -> set[str]:
    response = client.get(f"{BASE}jobs/{state}/?{urlencode(query)}")
    assert response.status_code == 200, response.text
    return set(re.findall(r'name="job" value="[^/"]+/([^"]+)"', response.text))


def jobs(*words: str) -> str:
    out = StringIO()
    call_command("jobs", *words, stdout=out)
    return out.getvalue()


@pytest.mark.usefixtures("some")
def test_a_list_shows_the_jobs_with_a_tag(root: Client) -> None:
    assert shown(root, "dead", tag="customer:42") == {"d1", "d2"}
    assert shown(root, "queued", tag="customer:42") == {"q1", "q2"}
    assert shown(root, "dead", tag="customer:4") == {"d3"}
    assert shown(root, "dead", tag="customer") == set()
    assert shown(root, "dead", tag="customer:42", queue="mail") == {"d2"}
    assert shown(root, "dead", tag="billing", name="shop.send_receipt") == {"d1"}
    assert shown(root, "dead", tag="billing", q="d1") == {"d1"}
    assert shown(root, "dead", tag="customer:42", q="timed out") == {"d1", "d2"}


@pytest.mark.usefixtures("some")
def test_a_list_says_how_far_it_has_looked(root: Client, monkeypatch: pytest.MonkeyPatch, filler: Filler) -> None:
    for n in range(6):
        tagged(filler, State.QUEUED, "", f"more-{n}")
    search_in_small_steps(monkeypatch)
    text = root.get(f"{BASE}jobs/queued/?tag=customer%3A42").text
    assert "of 9 jobs were checked" in text
    while searching.tick(60):
        pass
    text = root.get(f"{BASE}jobs/queued/?tag=customer%3A42").text
    assert "2 matches. 9 of 9 jobs were checked." in text


@pytest.mark.usefixtures("some")
def test_failed_jobs_are_found_by_the_index_at_once(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a stretch of time; together with another filter, only the jobs of the tag are looked at."""
    search_in_small_steps(monkeypatch)
    text = root.get(f"{BASE}jobs/dead/?tag=customer%3A42").text
    assert "2 jobs" in text
    assert "were checked" not in text
    assert shown(root, "dead", tag="customer:42", until="2100-01-01") == {"d1", "d2"}
    assert shown(root, "dead", tag="customer:42", until="2020-01-01") == set()
    text = root.get(f"{BASE}jobs/dead/?tag=customer%3A42&q=d1").text
    assert "of 2 jobs were checked" in text


@pytest.mark.usefixtures("some")
def test_a_tag_and_an_error_together(filler: Filler, root: Client) -> None:
    tagged(
        filler, State.DEAD, "customer:42", "other-error", error="no such order", error_type="KeyError", queue="third"
    )
    (group,) = [each for each in browse.error_groups(State.DEAD, Match()) if each.error_type == "KeyError"]
    assert shown(root, "dead", tag="customer:42", error=group.key) == {"other-error"}
    text = root.get(f"{BASE}jobs/dead/?{urlencode({'tag': 'customer:42', 'error': group.key})}").text
    assert "KeyError: no such order" in text
    root.post(
        f"{BASE}jobs/dead/?{urlencode({'tag': 'customer:42', 'error': group.key})}",
        {"verb": "delete", "scope": "all", "confirmed": "1"},
    )
    assert shown(root, "dead") == {"d1", "d2", "d3", "d4"}


@pytest.mark.usefixtures("some")
def test_by_tag_shows_how_many_jobs_have_each(root: Client) -> None:
    text = root.get(f"{BASE}jobs/dead/?group=tag").text
    found = re.findall(r'href="(\?tag=[^"]*)">(\d+)<', text)
    assert found == [("?tag=customer%3A42", "2"), ("?tag=billing", "1"), ("?tag=customer%3A4", "1")]
    assert "or more" not in text
    assert re.findall(r'href="\?[^"]*">(\d+)<', root.get(f"{BASE}jobs/dead/?group=tag&queue=mail").text) == ["1"]
    assert "jobs-empty" in root.get(f"{BASE}jobs/retry/?group=tag").text
    assert "?group=tag" not in root.get(f"{BASE}jobs/queued/?group=tag").text


@pytest.mark.parametrize(
    ("view", "offered"),
    [
        ("", {"q", "queue", "name", "tag", "from", "until"}),
        ("group=1", {"queue", "name", "from", "until"}),
        ("group=tag", {"queue"}),
    ],
)
def test_each_view_offers_the_filters_that_it_takes(root: Client, view: str, offered: set[str]) -> None:
    """A filter that stands on a page and changes nothing there would make its numbers wrong."""
    page = root.get(f"{BASE}jobs/dead/?{view}").content.decode()
    (form,) = re.findall(r'<form method="get" class="jobs-filters".*?</form>', page, re.S)
    assert set(re.findall(r'(?<!type="hidden" )name="(\w+)"', form)) - {"group"} == offered


def test_a_list_without_tags_says_so(filler: Filler, root: Client) -> None:
    filler.make(State.DEAD)
    assert "No job in this list has a tag." in root.get(f"{BASE}jobs/dead/?group=tag").text


@pytest.mark.usefixtures("some")
def test_the_button_at_a_tag_retries_its_jobs(root: Client, console_store: Store) -> None:
    root.post(f"{BASE}jobs/dead/?tag=billing", {"verb": "delete", "scope": "all", "confirmed": "1"})
    assert {info.id for info in console_store.page("default", State.DEAD)} == {"d3", "d4"}


def test_too_many_tags_are_told_and_no_number_is_wrong(
    redis_store: Store, filler_of: Any, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler = filler_of(redis_store)
    for n in range(MOST_TAGS + 3):
        tagged(filler, State.DEAD, f"t{n:03} all", f"j{n:03}")
    tagged(filler, State.DEAD, "t001", "other", queue="mail")
    text = root.get(f"{BASE}jobs/dead/?group=tag").text
    assert "jobs have tags that are not counted: of each queue, 500 different tags are." in text
    assert re.search(r">503<[^¬]*?>all</bdi></a></h3>", text), "a tag that is counted is counted exactly"
    text = root.get(f"{BASE}jobs/dead/?tag=t{MOST_TAGS + 2}").text
    assert "1 match. 4 of 4 jobs were checked." in text
    assert shown(root, "dead", tag="t001") == {"j001", "other"}
    assert counted("t001") == (2, False)
    tagged(filler, State.DEAD, f"t{MOST_TAGS + 2}", "more", queue="mail")
    (each,) = [
        each for each in browse.tag_counts(State.DEAD, ["default", "mail"])[0] if each.tag == f"t{MOST_TAGS + 2}"
    ]
    assert (each.jobs, each.or_more) == (1, True)


@pytest.mark.usefixtures("some")
def test_the_search_over_all_states_finds_a_tag(root: Client) -> None:
    text = root.get(f"{BASE}search/?q=tag%3Acustomer%3A42").text
    assert set(re.findall(r"<code class=\"jobs-quiet\">([dq]\d)</code>", text)) == {"d1", "d2", "q1", "q2"}


@pytest.mark.usefixtures("some")
def test_the_tags_of_a_job_lead_to_the_list_of_its_state(root: Client) -> None:
    for page in ("job/default/d1/", "jobs/dead/", "search/?q=tag%3Acustomer%3A42"):
        text = root.get(f"{BASE}{page}").text
        assert f'href="{BASE}jobs/dead/?tag=customer%3A42"' in text, page
    assert "jobs-tags" not in root.get(f"{BASE}job/default/d4/").text


@pytest.mark.usefixtures("some")
def test_all_that_have_a_tag_are_retried_and_no_others(root: Client, console_store: Store) -> None:
    address = f"{BASE}jobs/dead/?tag=customer%3A42"
    asked = root.post(address, {"verb": "retry", "scope": "all"})
    assert "Tag: <bdi>customer:42</bdi>" in asked.text
    root.post(address, {"verb": "retry", "scope": "all", "confirmed": "1"})
    (operation,) = bulk.operations_list()
    assert (operation.match.tag, operation.moved, operation.finished > 0) == ("customer:42", 2, True)
    assert shown(root, "dead") == {"d3", "d4"}
    assert "customer:42" in root.get(f"{BASE}bulk/{operation.id}/").text


@pytest.mark.usefixtures("some")
def test_a_filter_by_tag_can_be_saved(root: Client) -> None:
    root.post(f"{BASE}jobs/dead/?tag=customer%3A42", {"do": "save-filter", "name": "Ada"})
    assert 'href="?tag=customer%3A42"' in root.get(f"{BASE}jobs/dead/").text


@pytest.mark.usefixtures("some")
def test_the_command_lists_shows_retries_and_deletes_by_tag(console_store: Store) -> None:
    assert {each["id"] for each in json.loads(jobs("list", "dead", "--tag", "customer:42", "--json"))} == {"d1", "d2"}
    assert json.loads(jobs("show", "d1", "--json"))["tags"] == ["billing", "customer:42"]
    assert "customer:42" in jobs("show", "d1")
    jobs("retry", "--all", "--tag", "customer:42")
    assert {info.id for info in console_store.page("default", State.DEAD)} == {"d3", "d4"}
    assert console_store.page("mail", State.DEAD) == []
    jobs("delete", "--all", "dead", "--tag", "customer:4")
    assert {info.id for info in console_store.page("default", State.DEAD)} == {"d4"}
    with pytest.raises(CommandError, match="--tag chooses among the jobs of a state"):
        jobs("retry", "d4", "--tag", "billing")


def test_the_command_enqueues_with_tags(console_store: Store) -> None:
    id = json.loads(jobs("enqueue", "shop.send_receipt", "--args", "[7]", "--tag", "a", "--tag", "b", "--json"))["id"]
    assert tags_of(console_store.get("default", id).record) == ("a", "b")  # type: ignore[union-attr]
    with pytest.raises(CommandError, match="'a b' cannot be used"):
        jobs("enqueue", "shop.send_receipt", "--args", "[7]", "--tag", "a b")
