"""The archive, by tag: found with an index, in pages, also after a job has ended again."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from django_jobs import archive
from django_jobs.core.values import Job, JobInfo, Options, State
from django_jobs.models import ArchivedTag
from django_jobs.serialization.record import encode
from tests.integration.api.conftest import Api


def ended(id: str, *tags: str, at: int, name: str = "tests.greet", state: State = State.DEAD) -> JobInfo:
    job = Job(id, "default", name, b"[[], {}]", at, Options(tags=" ".join(tags)))
    return JobInfo(id, "default", encode(job), state, at=at)


def test_the_jobs_of_a_tag_are_found_page_by_page_newest_first(api: Api) -> None:
    tagged = [ended(str(n), "customer:42", *(["import"] if n % 2 else []), at=1_000_000 + n // 2) for n in range(10)]
    archive.write([*tagged, ended("other", "customer:4", at=2_000_000), ended("plain", at=3_000_000)])
    everything = [job["id"] for job in api.get("v1/archived-jobs").json()["jobs"]]
    assert everything[:2] == ["plain", "other"]
    found, cursor = list[str](), ""
    while True:
        page = api.get(f"v1/archived-jobs?tag=customer:42&limit=3&cursor={cursor}").json()
        found += [job["id"] for job in page["jobs"]]
        if not (cursor := page["cursor"]):
            break
    assert found == everything[2:]
    assert {job["id"] for job in api.get("v1/archived-jobs?tag=import").json()["jobs"]} == {"1", "3", "5", "7", "9"}
    assert api.get("v1/archived-jobs?tag=customer").json() == {"jobs": [], "cursor": None}
    assert api.get("v1/archived-jobs?tag=import&name=tests.pay").json()["jobs"] == []
    assert api.get("v1/archived-jobs?tag=import&status=succeeded").json()["jobs"] == []


def test_a_limited_token_finds_only_its_job_types_by_tag(api: Api) -> None:
    archive.write([ended("1", "vip", at=5), ended("2", "vip", at=6, name="tests.pay")])
    limited = Api("read", jobs=("tests.greet",)).get("v1/archived-jobs?tag=vip").json()
    assert [job["id"] for job in limited["jobs"]] == ["1"]


@pytest.mark.parametrize("vendor", ["", "another database"])
def test_the_tags_of_a_job_that_ended_again_are_those_of_its_last_end(
    api: Api, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    if vendor:
        monkeypatch.setattr(connections["default"], "vendor", vendor)
    archive.write([ended("1", "old", "both", at=1000)])
    archive.write([ended("1", "both", "new", at=9000)])
    assert [info.at for info in archive.page(tag="both")[0]] == [9000]
    assert (len(archive.page(tag="old")[0]), len(archive.page(tag="new")[0])) == (0, 1)
    archive.write([ended("1", at=20_000)])
    assert archive.page(tag="both")[0] == [], "the row of another job with this id, which has no tags"
    assert len(archive.page()[0]) == 1


def test_tags_leave_with_their_jobs(api: Api) -> None:
    recent = round(timezone.now().timestamp() * 1000)
    archive.write([ended("1", "a", "b", at=1000), ended("2", "a", at=recent)])
    assert archive.prune(30) == 1
    assert list(ArchivedTag.objects.values_list("tag", "job__job_id")) == [("a", "2")]


def test_jobs_without_tags_cost_no_statement_more(api: Api, django_assert_num_queries: Any) -> None:
    connections["default"].ensure_connection()
    with django_assert_num_queries(3):  # one in a savepoint
        archive.write([ended(str(n), at=1000) for n in range(600)])
    with django_assert_num_queries(4):
        archive.write([ended(str(n), "a", at=2000) for n in range(10)])
