"""The pages in a site: its store, its other pages, its other admin, its many queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import path

from django_jobs import admin as console
from django_jobs.core.values import State
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.acting.test_who_may_do_what import PAGES
from tests.integration.console.conftest import BASE
from tests.integration.console.pages.test_many_jobs import Sent, sent
from tests.support.console_data import Filler

__all__ = ["sent"]

pytestmark = pytest.mark.django_db

own_site = admin.AdminSite(name="operations")
console.register(own_site)
urlpatterns = [path("admin/", admin.site.urls), path("operations/", own_site.urls)]


@pytest.fixture
def broken_store(console_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store whose server is gone."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise StoreUnavailable("Redis at redis://db:6379/0 refuses connections.")

        def close(self) -> None:
            """Nothing was open."""

    use_store(Broken())  # type: ignore[arg-type]
    yield
    use_store(None)


@pytest.mark.accepts("K28")
def test_a_store_out_of_reach_gives_a_page_that_says_so(broken_store: None, root: Client) -> None:
    for page in [page for page in PAGES if page != "history/"]:  # which needs only the database
        response = root.get(BASE + page.format(operation="x"))
        assert response.status_code == 503, page
        assert "refuses connections" in response.text
        assert "jobs doctor" in response.text
    assert root.post(f"{BASE}jobs/dead/", {"verb": "retry", "job": "a/b"}).status_code == 503
    assert root.get("/admin/").status_code == 200
    index = root.get("/admin/django_jobs/")
    assert index.status_code == 200  # it leads to tables as well, which are there
    assert "refuses connections" in index.text
    assert "archivedjob" in index.text


@override_settings(DJANGO_JOBS={"STORE": ""})
def test_a_missing_setting_gives_a_page_that_says_so(root: Client) -> None:
    use_store(None)
    response = root.get(BASE)
    assert response.status_code == 503
    assert "STORE" in response.text
    assert "STORE" in root.get("/admin/django_jobs/").text


@override_settings(ROOT_URLCONF="tests.integration.console.pages.test_host_settings")
def test_a_site_of_ones_own_has_the_console_under_its_own_addresses(console_store: Store, root: Client) -> None:
    Filler(console_store).make(State.DEAD)
    page = root.get("/operations/django_jobs/dashboard/jobs/dead/").text
    assert "/operations/django_jobs/dashboard/job/default/" in page
    assert 'href="/admin/django_jobs' not in page


def test_django_finds_nothing_to_complain_about(console_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("check", fail_level="WARNING", tags=["admin", "models", "templates", "urls"])
    call_command("makemigrations", "--check", "--dry-run", "django_jobs")
    call_command("dumpdata", "django_jobs")
    assert "[]" in capsys.readouterr().out


@pytest.mark.redis
def test_with_500_queues_no_page_asks_more_than_30_times(
    make_redis_store: Callable[..., Store], root: Client, sent: Sent
) -> None:
    from django_jobs.browse import publish_snapshot

    store = make_redis_store()
    use_store(store)
    filler = Filler(store)
    for _ in range(60):
        filler.make(State.DEAD, queue="tenant-007")
    for i in range(500):
        filler.add(queue=f"tenant-{i:03}")
    assert publish_snapshot() is True
    assert publish_snapshot() is False
    for page in ("", "?period=day", "queues/", "queues/?p=25", "queues/tenant-007/", "jobs/dead/", "jobs/queued/",
                 "jobs/dead/?group=1", "jobs/dead/?name=shop.send_receipt"):  # fmt: skip
        sent.clear()
        assert root.get(BASE + page).status_code == 200
        assert 0 < len(sent.commands) <= 30, page
    assert ">500<" in root.get(BASE).text
