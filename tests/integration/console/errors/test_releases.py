"""Releases: workers report them, failures carry them, charts mark where each first appeared."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client, override_settings

from django_jobs import checks
from django_jobs.core.values import Attempt
from django_jobs.operations import releases
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.acting.test_command import as_json, jobs
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db
HOUR = 3_600_000


def note(release: str) -> None:
    releases.noting(release)()


@pytest.mark.parametrize("value", ["x" * 201, "a\nb", " a", 7])
def test_a_release_is_one_short_line(value: Any) -> None:
    with override_settings(DJANGO_JOBS={"STORE": "memory", "RELEASE": value}):
        assert any("RELEASE" in each.msg for each in checks.check_settings(None))


def test_a_failed_attempt_has_the_release_that_ran_it(filler: Filler, root: Client) -> None:
    claim = filler.run(filler.add())
    filler.store.retry(claim, Attempt(1, "failed", 0, error_type="E", error="no", release="v7"), 60_000)
    assert as_json("show", claim.id)["log"][0]["release"] == "v7"
    assert "release v7" in jobs("show", claim.id)
    assert "release" in root.get(f"{BASE}job/{claim.queue}/{claim.id}/").text


def test_a_query_chooses_by_the_release_of_the_last_attempt(filler: Filler) -> None:
    ids = {}
    for release in ("v7", "v8", ""):
        claim = filler.run(filler.add())
        filler.store.bury(claim, Attempt(1, "failed", 0, error_type="E", error="no", release=release))
        ids[release] = claim.id
    assert [each["id"] for each in as_json("list", "dead", "--query", "release:v7")] == [ids["v7"]]
    assert as_json("list", "dead", "--query", "release:v9") == []


def test_a_worker_reports_its_release(console_store: Store, root: Client) -> None:
    console_store.publish_worker("w:1", worker_info(release="v7"), 60_000)
    console_store.publish_worker("old:1", worker_info(), 60_000)
    page = root.get(f"{BASE}workers/").text
    assert page.count("v7") == 1
    assert [each.get("release") for each in as_json("workers")] in (["v7", None], [None, "v7"])


def test_releases_are_remembered_by_when_they_first_appeared(console_store: Store, clock: Clock) -> None:
    began = clock.now
    for name in ("v1", "v2", "v1", ""):
        note(name)
        clock.advance(HOUR)
    assert releases.releases() == {"v1": began, "v2": began + HOUR}
    console_store.update_document(releases.DOCUMENT, {"v3": "soon", "v1": [1]})
    note("v3")
    assert list(releases.releases()) == ["v2", "v3"]
    for n in range(releases.MOST + 5):
        note(f"n{n}")
        clock.advance(1)
    known = list(releases.releases())
    assert len(known) == releases.MOST
    assert known[-1] == f"n{releases.MOST + 4}"


def test_charts_mark_where_a_release_first_appeared(console_store: Store, root: Client, clock: Clock) -> None:
    for n in range(5):
        note(f"v{n}")
        clock.advance(60_000)
    for page in ("", "queues/default/", "queues/default/?period=week"):
        text = root.get(BASE + page).text
        assert text.count("Release v4 from") >= 2, page  # in the drawing, and below it
        assert "and 2 earlier releases" in text, page
    clock.advance(2 * HOUR)
    assert "Release v4" not in root.get(BASE).text
