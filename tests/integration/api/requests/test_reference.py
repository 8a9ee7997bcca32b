"""The reference names every call, every key and every metric, and none that is not there."""

from __future__ import annotations

import re

import pytest

from django_jobs.api.common.problems import TYPES, Kind
from django_jobs.api.urls import api as the_api
from django_jobs.conf.values import PARTS
from tests.docs.pages import ROOT, column
from tests.integration.api.conftest import Api

PAGE = "reference/http-api.md"


@pytest.mark.accepts("K32")
def test_the_reference_lists_the_calls_of_the_openapi_document() -> None:
    document = the_api.get_openapi_schema(path_prefix="/")
    calls = {f"{method.upper()} {path[1:]}" for path, methods in document["paths"].items() for method in methods}
    assert column(PAGE, "call") == calls


def test_the_reference_lists_the_keys_of_the_setting() -> None:
    assert column(PAGE, "key") == set(PARTS["API"])


def test_the_reference_lists_the_kinds_of_errors() -> None:
    assert column(PAGE, "problem") == {kind.type.removeprefix(TYPES) for kind in Kind}


def test_the_page_on_metrics_lists_what_is_served(redis_store: object, api: Api) -> None:
    served = set(re.findall(r"^# TYPE (\w+)", api.get("metrics").content.decode(), re.MULTILINE))
    assert column("howto/metrics.md", "metric") == served


def test_the_workers_of_the_examples_are_named_where_they_are() -> None:
    page = (ROOT / "docs/howto/remote-workers.md").read_text()
    for path in re.findall(r"`(example_project/[\w./]+)`", page):
        assert (ROOT / path).is_file()
