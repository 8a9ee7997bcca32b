"""One query for pages, commands, bulk acts and the archive: all jobs of customer 42, and nobody else's."""

from __future__ import annotations

import html
import json
import re
from io import StringIO
from typing import Any
from urllib.parse import parse_qs, quote

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from django_jobs import archive
from django_jobs.archive import rows
from django_jobs.browse import Match, search
from django_jobs.core.values import Options, State
from django_jobs.exceptions import InvalidQuery
from django_jobs.models import ArchivedJob, AuditEntry
from django_jobs.operations import bulk, searching
from django_jobs.operations.matching import count_matching
from django_jobs.serialization.arguments import dump
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, search_in_small_steps

pytestmark = pytest.mark.django_db

ARCHIVE = "/admin/django_jobs/archivedjob/"
HERS = "arg.order_id=42"


@pytest.fixture
def some(filler: Filler) -> list[str]:
    """Dead jobs in two queues: two of order 42, others of 420, 4, "42" and of a type that nobody knows."""
    hers = [
        filler.make(State.DEAD, call=[[42], {}]),
        filler.make(State.DEAD, queue="mail", call=[[], {"order_id": 42}]),
    ]
    for call in ([[420], {}], [[4], {}], [["42"], {}], [[7, "42@example.com"], {}]):
        filler.make(State.DEAD, call=call)
    filler.make(State.DEAD, name="shop.gone", call=[[42], {}])
    return sorted(hers)


def ids_on(page: str) -> list[str]:
    return sorted(re.findall(r'<code class="jobs-quiet">(\w+)</code>', page.partition("<tbody>")[2]))


def jobs(*words: str) -> str:
    out = StringIO()
    call_command("jobs", *words, stdout=out)
    return out.getvalue()


def dead(store: Store) -> int:
    return sum(stats.counts["dead"] for stats in store.stats(["default", "mail"]))


@pytest.mark.parametrize("page", ["jobs/dead/", "search/"])
def test_a_page_shows_exactly_the_jobs_of_one_argument(page: str, some: list[str], root: Client) -> None:
    shown = root.get(f"{BASE}{page}", {"q": HERS}).text
    assert ids_on(shown) == some
    assert "7 of 7 jobs were checked." in shown
    assert "only keyword arguments that are not hidden were searched" in shown
    assert ids_on(root.get(f"{BASE}{page}", {"q": f"{HERS} queue:mail"}).text) == some[1:]
    assert f'value="{html.escape(HERS)}"' in shown


def test_the_command_lists_them_and_says_what_was_checked(some: list[str]) -> None:
    assert sorted(job["id"] for job in json.loads(jobs("list", "dead", "--query", HERS, "--json"))) == some
    assert "Shown: 2. Checked: 7 of 7 dead jobs. Of 1 of these jobs, only keyword" in jobs(
        "list", "dead", "--query", HERS
    )
    assert "No job that was checked has arg.order." in jobs("list", "dead", "--query", "arg.order=42")
    assert some[0] in jobs("list", "dead", "--query", f"id:{some[0]} {HERS}")
    assert some[0] not in jobs("list", "dead", "--query", f"id:{some[0]} arg.order_id=43")


def test_a_bulk_act_shows_count_and_sample_and_takes_no_others(
    some: list[str], root: Client, console_store: Store
) -> None:
    address = f"{BASE}jobs/dead/?q={quote(HERS)}"
    asked = root.post(address, {"verb": "delete", "scope": "all"}).text
    assert "2 jobs match, of 7" in asked
    assert sorted(re.findall(r"<code>(\w+)</code>", asked)) == some
    assert dead(console_store) == 7
    root.post(address, {"verb": "delete", "scope": "all", "confirmed": "1"})
    assert dead(console_store) == 5
    assert not console_store.find(["default", "mail"], some[0])
    assert AuditEntry.objects.get(verb="delete").details["filter"] == {"terms": HERS}


@pytest.mark.parametrize("verb", ["delete", "retry"])
def test_the_command_asks_with_count_and_sample_and_acts_on_no_others(
    verb: str, some: list[str], console_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "n")
    with pytest.raises(CommandError, match="Nothing was changed"):
        jobs(verb, "--query", f"state:dead {HERS}")
    assert f"{verb}: 2 dead jobs." in questions[0]
    assert all(id in questions[0] for id in some)
    assert dead(console_store) == 7
    assert f"{verb}: 2 of" in jobs(verb, "--query", f"state:dead {HERS}", "--yes")
    assert dead(console_store) == 5
    assert AuditEntry.objects.get(verb__in=("delete", "revive")).details["filter"] == {"terms": HERS}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("delete", "--query", HERS, "--yes"), "names no state"),
        (("delete", "--query", f"state:running {HERS}", "--yes"), "does not apply"),
        (("delete", "--all", "dead", "--query", f"state:retry {HERS}", "--yes"), "the jobs that are dead"),
        (("delete", "--query", "state:dead customer:42", "--yes"), r"At character 12 .* no field 'customer'"),
        (("delete", "x", "--query", f"state:dead {HERS}", "--yes"), "not both"),
        (("cancel", "--query", "state:queued", "--terminate"), "leave out --query"),
        (("list", "dead", "--query", "queue:none"), "no queue 'none'"),
        (("list", "dead", "--query", "before:then"), "not a time"),
    ],
)
def test_a_query_that_cannot_be_used_is_refused_and_nothing_is_done(
    words: tuple[str, ...], why: str, some: list[str], console_store: Store
) -> None:
    with pytest.raises(CommandError, match=why):
        jobs(*words)
    assert dead(console_store) == 7


@pytest.mark.parametrize("query", [HERS, "tag:vip"])
def test_waiting_jobs_are_cancelled_by_query(query: str, filler: Filler, console_store: Store) -> None:
    hers, other = filler.add(call=[[42], {}], tags="vip"), filler.add(call=[[420], {}], tags="vi")
    assert "cancel: 1 of 2 queued jobs." in jobs("cancel", "--query", f"state:queued {query}", "--yes")
    states = {id: info.state for id in (hers, other) if (info := console_store.get("default", id))}
    assert states == {hers: State.CANCELLED, other: State.QUEUED}


def test_a_page_says_what_it_cannot_read_and_does_nothing(some: list[str], root: Client, console_store: Store) -> None:
    for query, why in (("customer:42", "no field"), ("queue:none", "no queue"), ("state:retry", "Leave out")):
        page = root.get(f"{BASE}jobs/dead/", {"q": query})
        assert page.status_code == 400
        assert why in page.text
        assert f'value="{query}"' in page.text
        root.post(f"{BASE}jobs/dead/?q={query}", {"verb": "delete", "scope": "all", "confirmed": "1"})
    assert dead(console_store) == 7
    assert "no field" in root.get(f"{BASE}search/?q=customer:42").text


def test_who_may_not_see_arguments_cannot_ask_for_them(some: list[str], person: Any) -> None:
    client = person("view_jobs")
    for page in ("jobs/dead/", "search/"):
        answer = client.get(f"{BASE}{page}", {"q": HERS})
        assert (answer.status_code, "You may not see arguments" in answer.text) == (400, True)
    with pytest.raises(InvalidQuery, match="not see arguments"):
        Match(arguments=False).asked(HERS)


def test_a_long_search_is_shown_as_far_as_it_is(some: list[str], root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    search_in_small_steps(monkeypatch)
    first = root.get(f"{BASE}jobs/dead/", {"q": HERS}).text
    assert "2 of 7 jobs were checked." in first
    assert "<progress" in first
    while searching.tick(0):
        continue
    assert ids_on(root.get(f"{BASE}jobs/dead/", {"q": HERS}).text) == some


def test_what_an_older_version_stores_is_read_and_what_it_cannot_read_is_left_to_others() -> None:
    assert set(Match(text="x").stored()) == set(Match(text="x").asked("queue:a").stored()) | {"queue"}
    assert "terms" in Match().asked(HERS).stored()
    assert "id" in Match().asked("id:x").stored()


@pytest.mark.parametrize(
    ("query", "number"),
    [("name:shop.send_receipt", 6), ("tag:a", 0), ("scope:acme", 0), ("error:TimeoutError", 7), ("error:Timeout", 0)],
)
def test_what_a_query_finds_is_what_an_act_counts(query: str, number: int, some: list[str]) -> None:
    match = Match().asked(query, State.DEAD)
    assert count_matching(State.DEAD, match).matching == number
    assert search.go_on(search.begin([State.DEAD], match), 1).matches == number


def test_times_mean_the_same_in_every_state(filler: Filler, console_store: Store, clock: Any) -> None:
    for state in (State.DEAD, State.SUCCEEDED, State.RUNNING, State.QUEUED):
        filler.make(state, call=[[42], {}])
    day = "after:2020-01-01 before:2100-01-01"
    for state in (State.DEAD, State.SUCCEEDED, State.RUNNING, State.QUEUED):
        for query, number in ((day, 1), ("before:2020-01-01", 0), ("after:2100-01-01", 0)):
            match = Match().asked(query, state)
            assert count_matching(state, match).matching == number, (state, query)


# -- the archive ---------------------------------------------------------------


@pytest.fixture
def archived(some: list[str], console_store: Store, settings: Any) -> list[str]:
    settings.DJANGO_JOBS = settings.DJANGO_JOBS | {"ARCHIVE": {"DAYS": 30}}
    infos, _ = console_store.listed(["default", "mail"], State.DEAD, 100)
    archive.write(infos)
    return some


def archive_page(root: Client, query: str) -> tuple[list[str], str]:
    page = root.get(ARCHIVE, {"q": query})
    return sorted(row.job_id for row in page.context["cl"].result_list), html.unescape(page.text)


def test_the_archive_is_searched_with_the_same_query(archived: list[str], root: Client) -> None:
    found, text = archive_page(root, HERS)
    assert found == archived
    assert "7 archived jobs were checked." in text
    assert archive_page(root, f"{HERS} queue:mail error:TimeoutError after:2020-01-01")[0] == archived[1:]
    assert archive_page(root, "state:succeeded")[0] == []
    assert "There is no field" in archive_page(root, "customer:42")[1]
    assert sorted(job["id"] for job in json.loads(jobs("archived", "--query", HERS, "--json"))) == archived
    assert "Shown: 2. Checked: 7 archived jobs." in jobs("archived", "--query", HERS)


def test_a_long_search_of_the_archive_says_where_it_stopped_and_goes_on(
    archived: list[str], root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n, row in enumerate(ArchivedJob.objects.order_by("-ended_at", "-pk")):
        ArchivedJob.objects.filter(pk=row.pk).update(ended_at=row.ended_at.replace(microsecond=0, second=59 - n))
    monkeypatch.setattr(rows, "CHUNK", 2)
    monkeypatch.setattr(rows, "MOST_CHECKED", 2)
    found, query = set[str](), HERS
    for _ in range(10):
        ids, text = archive_page(root, query)
        found |= set(ids)
        link = re.search(r'href="\?q=([^"]+)">go on', text)
        if link is None:
            break
        query = parse_qs(f"q={link[1]}")["q"][0]
    assert sorted(found) == archived


def test_one_row_of_an_unknown_state_breaks_no_list(archived: list[str], root: Client) -> None:
    ArchivedJob.objects.filter(job_id=archived[0]).update(status="frozen")
    assert len(archive_page(root, "")[0]) == 7
    assert archive_page(root, HERS)[0] == archived
    assert "frozen" in root.get(f"{ARCHIVE}{ArchivedJob.objects.get(job_id=archived[0]).pk}/change/").text
    assert "does not know the state 'frozen'" in jobs("archived", "--json")


def test_a_scope_and_a_worker_are_found_wherever_the_job_is(filler: Filler, console_store: Store) -> None:
    id = filler.make(State.DEAD, call=[[42], {}])
    (info,) = console_store.get_many("default", [id])
    job = decode(id, "default", info.record)
    theirs = encode(job._replace(options=Options(scope="acme"), args=dump((42,), {})))
    assert Match().asked("scope:acme worker:web-1:4711/1").accepts(info._replace(record=theirs))
    assert not Match().asked("scope:acm").accepts(info._replace(record=theirs))
    assert bulk.operations_list() == []


def test_an_id_that_looks_like_a_term_is_found_in_quotes(filler: Filler, root: Client) -> None:
    id = filler.add(id="order:42")
    for page in ("jobs/queued/", "search/"):
        text = root.get(f"{BASE}{page}", {"q": '"order:42"'}).text
        assert f"/job/default/{id.replace(':', '_3A')}/" in text, page
