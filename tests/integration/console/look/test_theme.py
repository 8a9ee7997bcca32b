"""Whatever theme the admin has: every page is there, whole, with its title and its own style."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.test import Client

from django_jobs.browse import Match
from django_jobs.core.values import State
from django_jobs.operations import bulk
from django_jobs.stores.redis import Store
from tests.integration.console.acting.test_who_may_do_what import PAGES
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, fill_typical

pytestmark = pytest.mark.django_db


def test_every_page_is_whole(console_store: Store, root: Client) -> None:
    Filler(console_store).make(State.DEAD, id="dead")
    fill_typical(console_store)
    operation = bulk.start("delete", State.EXPIRED, Match()).id
    for page in [*PAGES, "job/default/dead/edit/", "schedules/"]:
        response = root.get(BASE + page.format(operation=operation))
        assert response.status_code == 200, page
        assert 'id="jobs-nav"' in response.text, page
        assert response.text.count('<h1 class="jobs-title">') == 1, page
        assert "django_jobs/console.css" in response.text, page
        assert "django_jobs/console.js" in response.text, page
        assert ("unfold/css" in response.text) is apps.is_installed("unfold"), page
    index = root.get("/admin/django_jobs/").text
    assert 'id="jobs-nav"' in index
    assert "django_jobs/console.css" in index
