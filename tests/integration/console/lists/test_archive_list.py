"""The archive in the admin, with so many rows that a page cannot look at all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobs.admin.models import archive_list
from django_jobs.models import ArchivedJob, ArchivedTag
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE as DASHBOARD

ADDRESS = "/admin/django_jobs/archivedjob/"
NEWEST = datetime(2026, 3, 29, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def a_short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_list, "LISTED", 120)
    monkeypatch.setattr("django_jobs.admin.models.archive.LISTED", 120)


def fill(number: int, **more: Any) -> None:
    """Rows that end an hour apart, id0 last."""
    values: dict[str, Any] = {"queue": "default", "name": "shop.send_receipt", "status": "dead", "record": b""} | more
    rows = (ArchivedJob(job_id=f"id{n}", ended_at=NEWEST - timedelta(hours=n), **values) for n in range(number))
    ArchivedJob.objects.bulk_create(rows)


def listed(root: Client, query: str = "") -> tuple[list[str], Any]:
    changelist = root.get(f"{ADDRESS}{query}").context["cl"]
    return [row.job_id for row in changelist.result_list], changelist


def test_the_first_rows_are_listed_and_the_page_says_that_there_are_more(root: Client) -> None:
    fill(121)
    ids, changelist = listed(root)
    assert ids == [f"id{n}" for n in range(50)]
    assert changelist.result_count == 120
    assert "The first 120 archived jobs of this list. Filters and the search find the others." in root.get(ADDRESS).text
    assert listed(root, "?p=3")[0] == [f"id{n}" for n in range(100, 120)]
    assert listed(root, "?all=")[0] == [f"id{n}" for n in range(120)]
    assert listed(root, "?o=4")[0] == [f"id{n}" for n in range(120, 70, -1)]
    assert listed(root, "?q=id120")[0] == ["id120"]


def test_the_page_of_a_job_that_has_left_the_store_leads_to_its_row(root: Client, console_store: Store) -> None:
    fill(2)
    row = ArchivedJob.objects.get(job_id="id1")
    shown = root.get(f"{DASHBOARD}job/default/id1/", follow=True)
    assert shown.redirect_chain == [(f"{ADDRESS}{row.pk}/change/", 302)]
    assert "shop.send_receipt" in shown.text
    for other in ("job/mail/id1/", "job/default/id3/", "job/default/id1%00/"):
        assert root.get(f"{DASHBOARD}{other}").status_code == 404


def test_who_may_not_see_the_archive_is_not_led_to_it(
    root: Client, person: Callable[..., Client], console_store: Store, settings: Any
) -> None:
    settings.DJANGO_JOBS = {"STORE": "memory", "ARCHIVE": {"DAYS": 7}}
    use_store(console_store)
    fill(1)
    reader, both = person("view_jobs"), person("view_jobs", "view_archivedjob")
    gone = reader.get(f"{DASHBOARD}job/default/id0/")
    assert (gone.status_code, "This job does not exist any more" in gone.text) == (404, True)
    assert both.get(f"{DASHBOARD}job/default/id0/").status_code == 302
    found = [ADDRESS in each.get(f"{DASHBOARD}search/?q=id0").text.partition("jobs-scan")[2] for each in (reader, both)]
    assert found == [False, True]


def test_a_row_is_written_for_people(root: Client, console_store: Store, settings: Any) -> None:
    log = json.dumps([[1, "failed", 1, 5, "w", "E", "no", "one\ntwo"]])
    fill(1, run_ms=61_000, log=log)
    address = f"{ADDRESS}{ArchivedJob.objects.get().pk}/change/"
    page = root.get(address).text
    for text in ("1 min 1 s", ">Dead<", "<pre", "one\ntwo"):
        assert text in page, text
    assert "historylink" not in page, "the admin has no history of it"
    settings.LANGUAGE_CODE = "de"
    assert "Job im Archiv ansehen" in root.get(address).text
    assert ">Gescheitert<" in root.get(ADDRESS).text.partition("result_list")[2]


def test_a_long_list_is_not_shown_whole(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_list, "LISTED", 250)
    fill(201)
    ids, changelist = listed(root, "?all=")
    assert (len(ids), changelist.result_count) == (50, 201)
    assert listed(root, "?all=&p=5")[0] == ["id200"]


def test_as_many_as_are_listed_are_all(root: Client) -> None:
    fill(120)
    assert "The first 120" not in root.get(ADDRESS).text
    assert listed(root)[1].result_count == 120


def test_no_page_counts_or_looks_through_all_rows(root: Client) -> None:
    fill(130)
    ArchivedJob.objects.filter(job_id="id129").update(status="succeeded", queue="old", name="shop.gone")
    ArchivedTag.objects.bulk_create(
        ArchivedTag(job=row, tag="vip", ended_at=row.ended_at) for row in ArchivedJob.objects.all()
    )
    queries = (
        "",
        "?status=dead",
        "?queue=old",
        "?name=shop.gone",
        "?day=2026-03-29",
        "?q=id3",
        "?o=-4",
        "?tag=vip",
        "?_facets=1",
    )
    for query in queries:
        with CaptureQueriesContext(connection) as asked:
            root.get(f"{ADDRESS}{query}")
        about = [each["sql"] for each in asked if "django_jobs_archivedjob" in each["sql"]]
        assert len(about) <= 3, query
        for sql in about:
            assert "COUNT(" not in sql, query
            assert "DISTINCT" not in sql, query
            assert "LIMIT" in sql or " IN (" in sql, query
            if connection.vendor == "sqlite" and " IN (" not in sql and query != "?q=id3":  # these are few
                plan = explained(sql)
                assert "USING" in plan, (query, plan)
                assert "TEMP B-TREE FOR ORDER BY" not in plan, (query, plan)


def explained(sql: str) -> str:
    """How SQLite answers a query."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        return " ".join(str(line[-1]) for line in cursor.fetchall())


def test_the_jobs_of_a_tag_are_in_the_order_of_the_list(root: Client) -> None:
    fill(130)
    for n, row in enumerate(ArchivedJob.objects.order_by("-ended_at")):
        tags = ["vip", "even"] if n % 2 == 0 else ["vip"]
        ArchivedTag.objects.bulk_create(ArchivedTag(job=row, tag=tag, ended_at=row.ended_at) for tag in tags)
    ArchivedTag.objects.filter(job__job_id="id2").update(ended_at=NEWEST - timedelta(days=9))  # of an earlier end
    assert listed(root, "?tag=vip")[0] == [f"id{n}" for n in range(51) if n != 2]
    assert listed(root, "?tag=vip")[1].result_count == 120
    assert listed(root, "?tag=even&p=2")[0] == [f"id{n}" for n in range(102, 130, 2)]
    assert listed(root, "?tag=even&o=4")[0][:2] == ["id128", "id126"]
    assert listed(root, "?tag=vip&q=tag:even")[0][:2] == ["id0", "id4"]


def test_a_search_that_finds_little_looks_through_the_rows_once(root: Client) -> None:
    fill(60, error="no answer from the bank")
    for text, number in (("nowhere", 0), ("bank", 60)):
        with CaptureQueriesContext(connection) as asked:
            assert listed(root, f"?q={text}")[1].result_count == number
        assert sum("LIKE" in each["sql"] and " IN (" not in each["sql"] for each in asked) == 1


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("?status=succeeded", ["id3"]),
        ("?queue=old", ["id4"]),
        ("?name=shop.gone", ["id5"]),
        ("?name=shop.gone&status=dead", ["id5"]),
        ("?name=shop.gone&queue=old", []),
        ("?queue=none", []),
        ("?status=", ["id0", "id1", "id2", "id3", "id4", "id5"]),
        ("?q=id2", ["id2"]),
        ("?q=%20%20", ["id0", "id1", "id2", "id3", "id4", "id5"]),
        ("?q=gone", ["id5"]),
    ],
)
def test_filters_find_exactly_their_rows(query: str, ids: list[str], root: Client) -> None:
    fill(6)
    for id, values in {"id3": {"status": "succeeded"}, "id4": {"queue": "old"}, "id5": {"name": "shop.gone"}}.items():
        ArchivedJob.objects.filter(job_id=id).update(**values)
    assert listed(root, query)[0] == ids


def test_a_value_of_the_address_that_is_not_offered_is_shown_as_chosen(root: Client) -> None:
    fill(1, queue="gone")
    assert '<a href="?queue=gone"' in root.get(f"{ADDRESS}?queue=gone").text
    assert '<a href="?queue=gone"' not in root.get(ADDRESS).text
    assert '<a href="?queue=default"' in root.get(ADDRESS).text


def test_a_day_is_one_of_the_current_time_zone(root: Client, settings: Any) -> None:
    """On the day on which summer time begins, with 23 hours."""
    settings.TIME_ZONE = "Europe/Berlin"
    with timezone.override("Europe/Berlin"):
        fill(48)
        ids, changelist = listed(root, "?day=2026-03-29")
        assert changelist.result_count == 14
        assert (ids[0], ids[-1]) == ("id0", "id13")  # from 14:00 back to 01:00, without the hour from 02:00
        assert listed(root, "?day=2026-03-28")[1].result_count == 24


@pytest.mark.parametrize("day", ["yesterday", "2026-02-30", "0001-01-01", "9999-12-31", "x" * 5_000])
def test_a_day_that_cannot_be_read_leads_to_the_whole_list(day: str, root: Client) -> None:
    fill(1)
    response = root.get(f"{ADDRESS}?day={day}", follow=True)
    assert response.status_code == 200
    if day[0] != "0" and day[0] != "9":
        assert response.redirect_chain == [(f"{ADDRESS}?e=1", 302)]


def test_all_that_the_page_counts_are_deleted_and_no_more(root: Client) -> None:
    """«Select all 120» must not delete rows that nobody has counted."""
    fill(130)
    chosen = {"action": "delete_selected", "select_across": "1", "_selected_action": ["1"], "index": "0"}
    assert root.post(ADDRESS, chosen | {"post": "yes"}, follow=True).status_code == 200
    left = set(ArchivedJob.objects.values_list("job_id", flat=True))
    assert left == {f"id{n}" for n in range(120, 130)}


def test_a_project_without_time_zones_has_the_list_and_the_days(root: Client) -> None:
    with override_settings(USE_TZ=False):
        ArchivedJob.objects.create(
            queue="default", name="shop.x", status="dead", record=b"", job_id="a", ended_at=datetime(2026, 3, 29, 12)
        )
        assert listed(root, "?day=2026-03-29")[0] == ["a"]
        assert listed(root, "?day=2026-03-28")[0] == []


@pytest.mark.parametrize("query", ["queue", "name", "tag", "status"])
def test_nul_in_an_address_finds_nothing(root: Client, query: str) -> None:
    """PostgreSQL refuses it in a text."""
    fill(1)
    assert listed(root, f"?{query}=a%00b")[0] == []


@pytest.mark.parametrize("query", ["user", "source", "verb"])
def test_nul_in_the_address_of_the_history_finds_nothing(root: Client, query: str) -> None:
    assert root.get(f"/admin/django_jobs/dashboard/history/?{query}=a%00b").status_code == 200
