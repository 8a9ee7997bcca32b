"""The reference names every call, every key and every metric, and none that is not there."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin

import pytest

from django_jobs.api.common.problems import TYPES, Kind
from django_jobs.api.urls import DEPRECATED
from django_jobs.api.urls import api as the_api
from django_jobs.conf.values import PARTS
from tests.docs.pages import ROOT, column
from tests.integration.api.conftest import SETTINGS, Api

PAGE = "reference/http-api.md"


@pytest.mark.accepts("K32")
def test_the_reference_lists_the_calls_of_the_openapi_document() -> None:
    document = the_api.get_openapi_schema(path_prefix="/")
    calls = {f"{method.upper()} {path[1:]}" for path, methods in document["paths"].items() for method in methods}
    assert column(PAGE, "call") == calls


def test_the_reference_lists_what_is_deprecated_and_every_answer_and_the_document_say_so(
    redis_store: object, api: Api
) -> None:
    assert column(PAGE, "deprecated") == set(DEPRECATED)
    paths = api.get("v1/openapi.json").json()["paths"]
    marked = {path for path, methods in paths.items() for each in methods.values() if each.get("deprecated")}
    assert marked == {f"/jobs/{each}" for each in DEPRECATED}
    for path in paths:
        address = path.replace("{name}", "nobody")
        answers = [api.get(address[len("/jobs/") :]), Api().get(address[len("/jobs/") :])]
        for answer in answers:
            assert ("Deprecation" in answer) == (path in marked), path
            if path in marked:
                assert answer["Deprecation"] == "@1795737600"  # 2026-11-27
                link, relation = answer["Link"].split("; ")
                assert urljoin(address, link.strip("<>")) == f"/jobs/{DEPRECATED[path.removeprefix('/jobs/')]}"
                assert relation == 'rel="successor-version"'


def test_the_reference_lists_the_keys_of_the_setting() -> None:
    assert column(PAGE, "key") == set(PARTS["API"])


def test_the_reference_lists_the_kinds_of_errors() -> None:
    assert column(PAGE, "problem") == {kind.type.removeprefix(TYPES) for kind in Kind}


def test_the_page_on_metrics_lists_what_is_served(redis_store: object, api: Api, settings: Any) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "OUTBOX": True}
    served = set(re.findall(r"^# TYPE (\w+)", api.get("metrics").content.decode(), re.MULTILINE))
    assert column("howto/metrics.md", "metric") == served


def test_the_workers_of_the_examples_are_named_where_they_are() -> None:
    page = (ROOT / "docs/howto/remote-workers.md").read_text()
    for path in re.findall(r"`(example_project/[\w./]+)`", page):
        assert (ROOT / path).is_file()
