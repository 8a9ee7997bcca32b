"""The archive in the admin, by tag."""

from __future__ import annotations

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
