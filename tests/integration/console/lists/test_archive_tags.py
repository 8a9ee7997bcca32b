"""The archive by tag: in the admin and with the command."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from django_jobs import archive
from django_jobs.core.values import Job, JobInfo, Options, State
from django_jobs.models import ArchivedJob
from django_jobs.serialization.record import encode


def ended(id: str, tags: str, at: int) -> JobInfo:
    job = Job(id, "default", "shop.send_receipt", b"[[], {}]", at, Options(tags=tags))
    return JobInfo(id, "default", encode(job), State.DEAD, at=at)


def test_the_archive_in_the_admin_is_filtered_and_searched_by_tag(root: Client) -> None:
    archive.write([ended("one", "customer:42 vip", 1_000_000), ended("two", "customer:4", 2_000_000)])
    address = "/admin/django_jobs/archivedjob/"
    for query in ("?tag=customer:42", "?q=tag:customer:42"):
        text = root.get(f"{address}{query}").text
        assert (">one<" in text, ">two<" in text) == (True, False), query
    pk = ArchivedJob.objects.get(job_id="one").pk
    text = root.get(f"{address}{pk}/change/").text
    assert '<a href="/admin/django_jobs/archivedjob/?tag=customer%3A42">customer:42</a>' in text
    assert root.get(f"{address}?tag={'x' * 300}").status_code == 200


def jobs(*words: str) -> str:
    out = StringIO()
    call_command("jobs", "archived", *words, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_the_command_lists_the_archive_by_tag_newest_first(settings: Any) -> None:
    with pytest.raises(CommandError, match="There is no archive"):
        jobs()
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ARCHIVE": {"DAYS": 30}}
    archive.write([ended(str(n), "vip" if n % 2 else "customer:42", 1_000_000 + n) for n in range(6)])
    assert [each["id"] for each in json.loads(jobs("--json", "--tag", "vip"))] == ["5", "3", "1"]
    assert "There are more." in jobs("--tag", "vip", "--limit", "2")
    assert "There are more." not in jobs("--tag", "vip", "--limit", "3")
    assert jobs("--tag", "vip", "--state", "succeeded") == "No job of this kind.\n"
    assert jobs("--tag", "vip", "--name", "shop.pay") == "No job of this kind.\n"
    with pytest.raises(CommandError, match="use 1 to 10,000"):
        jobs("--limit", "0")
