"""What a PUT costs: one call to the store, no more queries than it must, and nothing left to import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from django_jobs.api.common.schemas import MOST_IN_BULK
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import NewJobRequest
from django_jobs.remote import type_cache
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.docs.pages import ROOT
from tests.integration.api.conftest import SETTINGS, Api


def on_another_request(get_next: Callable[[NewJobRequest], JobHandle]) -> Callable[[NewJobRequest], JobHandle]:
    """Enqueue middleware that does not pass on the request it was given."""
    return lambda request: get_next(replace(request, priority=7))


@pytest.mark.usefixtures("types_stay_known")
@pytest.mark.parametrize(("archive", "queries"), [(None, 1), ({"DAYS": 1}, 2)])
def test_a_new_job_is_one_call_to_the_store_and_a_query_for_token_and_history_each(
    api: Api, store: Store, settings: Any, archive: Any, queries: int, django_assert_num_queries: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    settings.DJANGO_JOBS = {**SETTINGS, "ARCHIVE": archive}
    use_store(store)
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    monkeypatch.setattr(store, "get", lambda *_: pytest.fail("the store is asked what it was just told"))
    with django_assert_num_queries(queries):
        made = api.put("v1/jobs/tests.greet/2", {"data": ["Bob"]})
    monkeypatch.undo()
    assert made.status_code == 201
    not_asked = {"enqueued_at": None, "ready_at": None}  # the store's time, which is not asked for
    assert made.json() == api.get("v1/jobs/tests.greet/2").json() | not_asked


@pytest.mark.usefixtures("types_stay_known")
def test_a_thousand_unknown_names_in_one_call_read_the_types_once(
    api: Api, store: Store, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type_cache._known, "missed", {})
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    jobs: list[dict[str, Any]] = [{"name": f"unknown.{number}", "id": "x"} for number in range(MOST_IN_BULK - 1)]
    jobs.append({"name": "tests.greet", "id": "2", "data": ["Ada"]})
    with django_assert_num_queries(3):  # token, types, archive
        answer = api.post("v1/jobs", {"jobs": jobs})
    assert [each["status"] for each in answer.json()["jobs"]] == [404] * (MOST_IN_BULK - 1) + [201]
    with django_assert_num_queries(1):  # neither are they looked for again, nor names that need no look-up
        api.post("v1/jobs", {"jobs": jobs[:-1]})


def test_a_job_that_middleware_changed_on_its_way_is_accepted_too(api: Api, store: Store, settings: Any) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "ENQUEUE_MIDDLEWARE": [f"{__name__}.on_another_request"]}
    use_store(store)
    made = api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    assert (made.status_code, made.json()["id"], made.json()["state"]) == (201, "1", "queued")
    assert api.get("v1/jobs/1").json()["priority"] == 7


def test_the_store_is_imported_with_the_urls_and_not_by_the_first_request() -> None:
    code = (
        "import django; django.setup(); import sys; assert 'django_jobs.stores.redis' not in sys.modules;"
        "import tests.integration.api.urls; assert 'django_jobs.stores.redis' in sys.modules"
    )
    settings = {"DJANGO_SETTINGS_MODULE": "tests.integration.api.project", "API_STORE": "redis://127.0.0.1:1/0"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **settings}, stderr=subprocess.PIPE
    )
    assert done.returncode == 0, done.stderr.decode()


def test_a_process_that_shows_nothing_does_not_import_what_operators_use() -> None:
    """It was a third of the time that the app adds to the start of every web process and worker, and 1 MB of each."""
    code = (
        "from django.conf import settings;"
        "settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django.contrib.auth', 'django_jobs'],"
        "DJANGO_JOBS={'STORE': 'redis://127.0.0.1:1/0'});"
        "import django; django.setup(); import sys;"
        "print(sorted(n for n in sys.modules if n.startswith(('django_jobs.browse', 'django_jobs.operations'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
