"""The archive: written once, pruned by age, read in pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError, connections
from django.test import Client
from django.utils import timezone

from django_jobs import JobFailed, JobNotFound, aget_job, archive, get_job
from django_jobs.archive import Cursor
from django_jobs.core.values import Attempt, Job, JobInfo, Options, State
from django_jobs.models import ArchivedJob, ArchivedTag
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.archiver import Archiver
from tests.conftest import Clock
from tests.integration.api.conftest import SETTINGS, Api


@pytest.fixture
def archiver(store: Store) -> Archiver:
    return Archiver(store, lambda: ["default", "small"])


@pytest.mark.accepts("K22", "R27")
def test_finished_jobs_of_every_end_are_written_with_their_story(
    api: Api, store: Store, clock: Clock, archiver: Archiver, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/tests.greet/ok", {"data": ["Ada"]})
    api.put("v1/jobs/tests.charge/bad", {"data": {"card": "4111"}})
    api.put("v1/jobs/tests.greet/no", {"data": ["Bob"], "run_after": "2035-01-01T00:00:00Z"})
    api("DELETE", "v1/jobs/tests.greet/no")
    work_off()
    store.kill("default", ["bad"], "enough")
    assert archiver.tick() == 3
    assert archiver.tick() == 0

    rows = {row.job_id: row for row in ArchivedJob.objects.all()}
    assert {key: row.status for key, row in rows.items()} == {"ok": "succeeded", "bad": "dead", "no": "cancelled"}
    assert rows["ok"].result == '"Hello, Ada"'
    assert rows["bad"].failures >= 1
    assert rows["ok"].enqueued_at is not None
    for key in rows:
        assert archive.info_of(rows[key]).record == store.get("default", key).record  # type: ignore[union-attr]


def test_writing_a_job_again_changes_nothing_and_a_later_end_replaces_it(
    api: Api, store: Store, clock: Clock, archiver: Archiver, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"], "run_after": "2035-01-01T00:00:00Z"})
    store.kill("default", ["1"], "wrong")
    batch = [info for _, info in store.archive_batch("default", 10)]
    archive.write(batch)
    before = ArchivedJob.objects.values().get()
    archive.write(batch + batch)
    assert ArchivedJob.objects.values().get() == before

    archiver.tick()
    clock.advance(1000)
    store.revive("default", ["1"])
    work_off()
    archiver.tick()
    assert ArchivedJob.objects.get().status == "succeeded"
    archive.write(batch)
    assert ArchivedJob.objects.get().status == "succeeded"


@pytest.mark.parametrize("vendor", ["", "another database"])
def test_a_revived_job_that_a_retry_has_moved_to_another_queue_keeps_one_row(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, vendor: str, store: Store
) -> None:
    if vendor:
        monkeypatch.setattr(connections["default"], "vendor", vendor)

    def record(enqueued: int) -> bytes:
        return encode(Job("1", "default", "tests.greet", b"[[],{}]", enqueued, Options(tags="a")))

    failed, retried = Attempt(1, "failed", clock.now), Attempt(2, "retried", clock.now)
    dead = JobInfo("1", "default", record(clock.now), State.DEAD, 1, at=clock.now, attempts=(failed,))
    ended = dead._replace(queue="small", state=State.SUCCEEDED, at=clock.now + 5000, attempts=(failed, retried))
    other = dead._replace(queue="other", record=record(clock.now - 5000))  # an id was for one queue once
    for batch in ([dead, other], [ended], [dead], [ended]):
        archive.write(batch)
    assert sorted(ArchivedJob.objects.values_list("queue", "status")) == [("other", "dead"), ("small", "succeeded")]
    assert [info.queue for info in archive.page(tag="a")[0]] == ["small", "other"]
    assert ArchivedTag.objects.count() == 2


def test_a_database_that_is_away_delays_the_archive_and_nothing_else(
    api: Api, store: Store, archiver: Archiver, work_off: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("no database")

    with monkeypatch.context() as broken:
        broken.setattr(archive, "write_rows", away)
        assert work_off() == 1
        assert archiver.tick() == 0
    assert archiver.tick() == 1
    assert ArchivedJob.objects.count() == 1


def test_a_crash_between_writing_and_telling_the_store_writes_nothing_twice(
    api: Api, store: Store, archiver: Archiver, work_off: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    work_off()
    with monkeypatch.context() as broken:
        broken.setattr(store, "archive_done", lambda queue, keys: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            archiver.tick()
    assert archiver.tick() == 1
    assert ArchivedJob.objects.count() == 1


@pytest.mark.parametrize("vendor", ["", "another database"])
def test_every_value_is_written_and_read_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, vendor: str, store: Store
) -> None:
    if vendor:
        monkeypatch.setattr(connections["default"], "vendor", vendor)
    record = b'-\ntests.greet\n\n\n1790000000000\n\n[["\\u0000", "\xc3\xa4"],{}]\xff\x00'
    failed = Attempt(
        2,
        "failed",
        clock.now,
        worker="w-1",
        error_type="ValueError",
        error='half \ud800 a pair, "quotes" and a NUL \x00',
    )
    odd = JobInfo("odd'%s", "default", record, State.DEAD, 2, 3, clock.now, result=b'"\xff"', attempts=(failed,))
    huge = JobInfo("x" * 300, "default", b"nothing", State.EXPIRED, 2**40, run_ms=2**70, at=clock.now)
    archive.write([odd, huge, huge._replace(id="x" * 299)])
    (kept,) = archive.found("odd'%s")
    assert (kept.record, kept.failures, kept.crashes, kept.at, kept.state) == (record, 2, 3, clock.now, State.DEAD)
    assert kept.attempts[0].error_type == "ValueError"
    row = ArchivedJob.objects.get(job_id="odd'%s")
    assert (row.error, row.worker) == ('half ? a pair, "quotes" and a NUL \ufffd', "w-1")
    assert row.enqueued_at is not None
    assert ArchivedJob.objects.get(job_id="x" * 255).enqueued_at is None
    archive.write([odd._replace(at=clock.now + 1, state=State.SUCCEEDED), huge])
    assert ArchivedJob.objects.get(job_id="odd'%s").status == "succeeded"
    assert ArchivedJob.objects.count() == 2


def test_an_archiver_that_leaves_is_followed_at_once_and_takes_no_turn_of_another(
    api: Api, store: Store, work_off: Callable[..., int]
) -> None:
    first, second = (Archiver(store, lambda: ["default"], lease=30_000) for _ in range(2))
    for number, (archiver, moved) in enumerate([(first, 1), (second, 0)]):
        api.put(f"v1/jobs/tests.greet/{number}", {"data": ["Ada"]})
        work_off()
        assert archiver.tick() == moved
    second.leave()
    assert second.tick() == 0
    first.leave()
    first.leave()
    assert second.tick() == 1


def test_what_waits_for_the_archive_is_counted_exactly(api: Api, store: Store, work_off: Callable[..., int]) -> None:
    def unarchived() -> list[int]:
        return [stats.unarchived for stats in store.stats(["default", "small"])]

    for number in range(5):
        api.put(f"v1/jobs/tests.greet/{number}", {"data": ["Ada"]})
    api.put("v1/jobs/tests.swallow/9")
    work_off()
    work_off("small")
    assert unarchived() == [5, 1]
    keys = [key for key, _ in store.archive_batch("default", 3)]
    store.archive_done("default", keys)
    store.archive_done("default", keys)
    assert unarchived() == [2, 1]
    assert "outbox" not in store.stats(["default"])[0].totals
    Archiver(store, lambda: ["default", "small"]).tick()
    assert unarchived() == [0, 0]


@pytest.mark.accepts("K30")
def test_rows_older_than_the_days_that_are_kept_are_deleted_in_batches(archiver: Archiver) -> None:
    now = int(timezone.now().timestamp() * 1000)
    day = 86_400_000
    archive.write([info(str(n), at=now - 181 * day + n) for n in range(archive.BATCH + 10)])
    archive.write([info("young", at=now - 179 * day)])
    archiver.tick()
    assert ArchivedJob.objects.count() == 11
    archiver.tick()
    assert [row.job_id for row in ArchivedJob.objects.all()] == ["young"]


def test_an_id_leads_to_the_job_when_only_the_archive_has_it(
    api: Api, store: Store, archiver: Archiver, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/tests.greet/ok", {"data": ["Ada"]})
    api.put("v1/jobs/tests.charge/bad", {"data": {"card": "4111"}})
    work_off()
    store.kill("default", ["bad"], "enough")
    archiver.tick()
    store.delete("default", ["ok", "bad"])
    handle = get_job("ok")
    assert (handle.name, handle.queue, handle.state) == ("tests.greet", "default", "succeeded")
    assert handle.refresh().wait(1) == "Hello, Ada"
    assert handle.cancel() is False
    assert async_to_sync(aget_job)("ok", "default").result == "Hello, Ada"
    with pytest.raises(JobFailed, match="enough"):
        get_job("bad").wait(1)

    async def now() -> None:
        get_job("ok")

    with pytest.raises(SynchronousOnlyOperation, match="use aget_job"):
        async_to_sync(now)()
    for id, queue in (("never", None), ("ok", "small")):
        with pytest.raises(JobNotFound):
            get_job(id, queue)


def info(id: str, *, at: int, name: str = "tests.greet", state: State = State.SUCCEEDED) -> JobInfo:
    return JobInfo(id, "default", f"-\n{name}\n\n\n{at}\n\n[[],{{}}]".encode(), state, at=at)


def test_pages_walk_the_whole_history_once_newest_first(api: Api, clock: Clock) -> None:
    # Many end in the same millisecond: the cursor must not lose or repeat them.
    archive.write([info(f"{n:03}", at=clock.now + n // 7) for n in range(60)])
    seen: list[str] = []
    path = "v1/archived-jobs?limit=7"
    cursor: str | None = ""
    while cursor is not None:
        page = api.get(f"{path}&cursor={cursor}").json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
        archive.write([info(f"late{len(seen)}", at=clock.now + 1000)])
    assert len(seen) == 60
    assert len(set(seen)) == 60
    ends = [ArchivedJob.objects.get(job_id=id).ended_at for id in seen]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.accepts("K31")
def test_pages_are_filtered_by_name_and_end_and_bounded(api: Api, clock: Clock) -> None:
    archive.write([info("1", at=clock.now), info("2", at=clock.now, name="tests.charge", state=State.DEAD)])
    assert [job["id"] for job in api.get("v1/archived-jobs?name=tests.greet").json()["jobs"]] == ["1"]
    assert [job["id"] for job in api.get("v1/archived-jobs?status=dead").json()["jobs"]] == ["2"]
    assert [job["id"] for job in Api("read", jobs=("tests.charge",)).get("v1/archived-jobs").json()["jobs"]] == ["2"]
    for query in ("limit=101", "limit=0", "cursor=x", "cursor=999999999999999999_1", "status=running", "limit=x"):
        assert api.get(f"v1/archived-jobs?{query}").status_code == 422


def test_without_an_archive_there_is_no_history(settings: Any, redis_store: Store) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "ARCHIVE": None}
    assert Api("read").get("v1/archived-jobs").status_code == 404
    assert Archiver(redis_store, lambda: ["default"]).tick() == 0


def test_a_project_without_time_zones_has_an_archive_too(api: Api, settings: Any, clock: Clock) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"
    archive.write([info(str(n), at=clock.now + n) for n in range(3)])
    first = api.get("v1/archived-jobs?limit=2").json()
    assert [job["id"] for job in first["jobs"]] == ["2", "1"]
    assert first["jobs"][1]["finished_at"] == "2027-01-15T08:00:00.001+00:00"
    assert [job["id"] for job in api.get(f"v1/archived-jobs?cursor={first['cursor']}").json()["jobs"]] == ["0"]


@pytest.mark.parametrize("text", ["1_1", "1763000000000000_9"])
def test_a_cursor_comes_back_as_it_was(text: str) -> None:
    assert str(Cursor.read(text)) == text


def test_whatever_a_record_holds_can_be_archived_and_read(api: Api, clock: Clock) -> None:
    lines = (Attempt(1, "failed", clock.now, error_type="x" * 400, error="a\x00b", traceback="\x00"),)
    bad = JobInfo("1", "default", b"\x00\xff not a record", State.DEAD, at=10**17, attempts=lines, run_ms=5)
    archive.write([bad])
    answer = api.get("v1/jobs/1")
    assert answer.status_code == 200
    assert answer.json()["corrupt"]
    row = ArchivedJob.objects.get()
    assert bytes(row.record) == bad.record
    assert "\x00" not in row.error + row.log


class TestAdmin:
    @pytest.fixture
    def admin(self, settings: Any) -> Client:
        settings.ROOT_URLCONF = "tests.urls"
        client = Client()
        client.force_login(User.objects.create_superuser("root", password="x"))
        return client

    def test_the_archive_is_searched_filtered_and_never_changed(self, admin: Client, clock: Clock) -> None:
        record = b'-\ntests.charge\n\n\n1790000000000\n\n[[],{"card":"4111","amount":"<b>"}]'
        archive.write([JobInfo("1", "default", record, State.DEAD, at=clock.now)])
        base = "/admin/django_jobs/archivedjob/"
        assert b"tests.charge" in admin.get(f"{base}?status__exact=dead&q=tests.charge").content
        row = ArchivedJob.objects.get()
        page = admin.get(f"{base}{row.pk}/change/").content.decode()
        assert "4111" not in page
        assert "<b>" not in page.replace("<b>Delete", "")
        assert admin.get(f"{base}add/").status_code == 403
        assert admin.post(f"{base}{row.pk}/change/", {"name": "x"}).status_code == 403

    def test_a_token_is_shown_once_and_revoked_by_an_action(self, admin: Client) -> None:
        from django_jobs.models import ApiToken

        base = "/admin/django_jobs/apitoken/"
        made = admin.post(
            f"{base}add/", {"name": "shop", "scopes": ["read", "enqueue"], "jobs": "shop.a\r\nshop.b"}, follow=True
        )
        (message,) = [str(m) for m in made.context["messages"] if "djt_" in str(m)]
        secret = next(word.rstrip(".") for word in message.split() if word.startswith("djt_"))
        token = ApiToken.objects.get()
        assert ApiToken.objects.with_secret(secret) == token
        assert token.scopes == ["enqueue", "read"] or token.scopes == ["read", "enqueue"]
        assert token.jobs == ["shop.a", "shop.b"]
        for path in (base, f"{base}{token.pk}/change/"):
            page = admin.get(path).content.decode()
            assert secret not in page
            assert token.digest not in page
        admin.post(base, {"action": "revoke", "_selected_action": [token.pk]})
        assert ApiToken.objects.with_secret(secret) is None

    def test_a_remote_type_is_made_with_the_same_rules_as_over_http(self, admin: Client, settings: Any) -> None:
        from django_jobs import remote

        base = "/admin/django_jobs/remotejobtype/"
        form = {
            "name": "php.mail",
            "queue": "push",
            "delivery_strategy": "at_least_once",
            "attempts": 3,
            "concurrency": 0,
            "timeout": 300,
            "url": "http://example.com/",
            "credentials": "",
        }
        assert b"REMOTE_HOSTS" in admin.post(f"{base}add/", form).content
        admin.post(f"{base}add/", {**form, "url": "http://localhost:9/"})
        assert list(remote.known()) == ["php.mail"]


def test_rows_that_are_too_old_are_deleted_without_a_pause_while_there_are_more(
    redis_store: Store, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_JOBS = SETTINGS
    left = [1200]

    def prune(days: float) -> int:
        gone = min(500, left[0])
        left[0] -= gone
        return gone

    monkeypatch.setattr("django_jobs.archive.prune", prune)
    archiver = Archiver(redis_store, list)
    assert [archiver.tick() for _ in range(4)] == [500, 500, 0, 0]
    assert left == [0]
