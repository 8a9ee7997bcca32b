"""What a worker has done, on its page and in the list of workers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import worker_info, worker_numbers

pytestmark = pytest.mark.django_db

PAGE = f"{BASE}workers/web-2_3A1822/"


@pytest.fixture
def busy(console_store: Store) -> dict[str, Any]:
    numbers = worker_numbers(console_store.now(), 3)
    console_store.publish_worker("web-2:1822", worker_info(host="web-2", **numbers), 60_000)
    totals: dict[str, int] = numbers["totals"]
    return totals


def facts(text: str) -> dict[str, str]:
    found = re.findall(r"<dt>([^<]*)</dt><dd>(.*?)</dd>", text, re.DOTALL)
    return {label: re.sub(r"\s*<[^>]*>\s*", " ", value).strip() for label, value in found}


def test_the_page_of_a_worker_has_its_totals_and_the_charts_of_each_period(busy: dict[str, Any], root: Client) -> None:
    text = root.get(PAGE).text
    said = facts(text)
    assert said["Succeeded"].replace(",", "") == str(busy["succeeded"])
    assert (said["Failed attempts"], said["Dead"]) == (str(busy["failed"]), str(busy["dead"]))
    assert (said["Retried"], said["Snoozed"], said["Cancelled"]) == (str(busy["retried"]), "4", "2")
    assert "The last hour" in text
    assert "Throughput per 5 minutes" in text
    assert "not known for" not in text
    for period, title in (("day", "The last 24 hours"), ("week", "The last 7 days")):
        text = root.get(f"{PAGE}?period={period}").text
        assert title in text
        assert f"{busy['succeeded']:,} jobs succeeded" in text, "before it started it did nothing, which is known"


def test_the_list_of_workers_has_a_small_chart_of_each_and_links(busy: dict[str, Any], root: Client) -> None:
    text = root.get(f"{BASE}workers/").text
    assert f"the last 24 hours: {busy['succeeded']:,} succeeded, {busy['failed']} failed" in text
    assert f'href="{PAGE}"' in text
    assert f'href="{PAGE}"' in root.get(BASE).text


def test_what_a_worker_of_an_older_version_did_is_not_known_and_not_zero(console_store: Store, root: Client) -> None:
    console_store.publish_worker("web-2:1822", worker_info(), 60_000)
    said = facts(root.get(f"{BASE}workers/").text)
    assert (said["Succeeded"], said["Failed attempts"]) == ("not known", "not known")
    text = root.get(PAGE).text
    assert "not known for 1 h 0 min" in text
    assert facts(text)["Succeeded"] == "not known"
    assert "Retried" not in facts(text)


def test_a_worker_that_has_gone_has_no_page(busy: dict[str, Any], console_store: Store, root: Client) -> None:
    console_store.forget_worker("web-2:1822")
    assert root.get(PAGE).status_code == 404
    assert "jobs-spark" not in root.get(f"{BASE}workers/").text


def test_a_worker_can_be_stopped_from_its_page(busy: dict[str, Any], root: Client) -> None:
    assert f'<form method="post" action="{BASE}workers/">' in root.get(PAGE).text
