"""The scripts of the pages about moving from another queue do what the pages say.

The other queues are stand-ins here, with the shapes that their real answers had in the versions that the pages name."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs import job
from django_jobs.schedules.models import Schedule
from django_jobs.testing import Jobs
from tests.docs.pages import ROOT, blocks

WHEN = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)


@job(name="tests.moving.remind")
def remind(order_id: int, again: int = 1) -> None: ...


def script(page: str, name: str) -> Any:
    """The function of that name on a page."""
    found: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "howto" / page, "python"):
        exec(block.code, found)
    return found[name]


def assert_moved(jobs: Jobs, job_id: str) -> None:
    """One job waits, with the id, the arguments and the time of the old one."""
    handle = jobs.assert_enqueued(remind, args=(7, 2), at=WHEN, count=1)
    assert handle.id == job_id


def test_tasks_of_celery_with_an_eta_are_moved_once(jobs: Jobs) -> None:
    task = {"id": "43099265-7e95-44ce-93e7-5a338e053544", "name": "shop.remind", "args": [7], "kwargs": {"again": 2}}
    other = {"id": "x", "name": "shop.other", "args": [], "kwargs": {}}
    entries = [{"eta": WHEN.isoformat(), "priority": 6, "request": each} for each in (task, other)]
    revoked: list[str] = []
    control = SimpleNamespace(
        inspect=lambda: SimpleNamespace(scheduled=lambda: {"celery@a": entries, "celery@b": []}), revoke=revoked.append
    )
    move = script("from-celery.md", "move_eta_tasks")
    app = SimpleNamespace(control=control)
    assert move(app, {"shop.remind": remind}) == [task["id"]] == revoked
    move(app, {"shop.remind": remind})
    assert_moved(jobs, str(task["id"]))


def test_no_worker_of_celery_answers(jobs: Jobs) -> None:
    control = SimpleNamespace(inspect=lambda: SimpleNamespace(scheduled=lambda: None))
    assert script("from-celery.md", "move_eta_tasks")(SimpleNamespace(control=control), {}) == []


@pytest.mark.django_db
def test_rows_of_beat_become_schedules_and_the_others_are_returned() -> None:
    crontab = SimpleNamespace(
        minute="0, 30", hour="3", day_of_month="*", month_of_year="*", day_of_week="1-5", timezone="Europe/Paris"
    )
    row = SimpleNamespace(
        name="nightly",
        task="shop.remind",
        crontab=crontab,
        args="[7]",
        kwargs='{"again": 2}',
        enabled=True,
        one_off=False,
    )
    interval = SimpleNamespace(**{**vars(row), "crontab": None, "name": "every 90 s"})
    move = script("from-celery.md", "move_beat_rows")
    for _ in range(2):
        assert move([row, interval], {"shop.remind": remind}) == [interval]
    made = Schedule.objects.get()
    made.full_clean()
    assert (made.cron, made.timezone, made.args, made.kwargs) == ("0,30 3 * * 1-5", "Europe/Paris", [7], {"again": 2})


def test_jobs_of_rq_for_later_are_moved_once(jobs: Jobs) -> None:
    waiting: dict[str, Any] = {}
    waiting["a-1"] = SimpleNamespace(
        func_name="shop.jobs.remind", args=(7,), kwargs={"again": 2}, delete=lambda: waiting.pop("a-1")
    )
    registry = SimpleNamespace(get_job_ids=lambda: list(waiting), get_scheduled_time=lambda job_id: WHEN)
    queue = SimpleNamespace(scheduled_job_registry=registry, fetch_job=waiting.get)
    move = script("from-rq.md", "move_scheduled_jobs")
    assert move(queue, {"shop.jobs.remind": remind}) == ["a-1"]
    assert move(queue, {"shop.jobs.remind": remind}) == []
    assert_moved(jobs, "a-1")


def test_tasks_of_huey_for_later_are_moved_once(jobs: Jobs) -> None:
    revoked: set[str] = set()
    naive = WHEN.replace(tzinfo=None)  # as Huey keeps it
    task = SimpleNamespace(id="h-1", name="remind", args=(7,), kwargs={"again": 2}, eta=naive)
    now = SimpleNamespace(id="h-2", name="remind", args=(8,), kwargs={}, eta=None)
    huey = SimpleNamespace(
        scheduled=list, pending=lambda: [task, now], is_revoked=revoked.__contains__, revoke_by_id=revoked.add
    )
    move = script("from-huey.md", "move_scheduled_tasks")
    assert move(huey, {"remind": remind}) == ["h-1"]
    assert move(huey, {"remind": remind}) == []
    assert_moved(jobs, "h-1")


def test_delayed_messages_of_dramatiq_are_moved_once(jobs: Jobs) -> None:
    message = {
        "queue_name": "default.DQ", "actor_name": "remind", "args": [7], "kwargs": {"again": 2}, "message_id": "d-1",
        "options": {"eta": int(WHEN.timestamp() * 1000)},
    }  # fmt: skip
    messages = {b"k": json.dumps(message).encode()}
    order = [b"k"]
    redis = SimpleNamespace(
        hgetall=lambda key: dict(messages) if key == "dramatiq:default.DQ.msgs" else {},
        lrem=lambda key, count, value: order.remove(value),
        hdel=lambda key, value: messages.pop(value),
    )
    move = script("from-dramatiq.md", "move_delayed_messages")
    assert move(redis, "default", {"remind": remind}) == ["d-1"]
    assert move(redis, "default", {"remind": remind}) == []
    assert_moved(jobs, "d-1")
    assert order == []


@pytest.mark.django_db
def test_schedules_of_django_q2_are_moved_and_the_others_returned(jobs: Jobs) -> None:
    deleted: list[int] = []

    def row(pk: int, kind: str, args: str) -> Any:
        return SimpleNamespace(
            pk=pk, func="shop.jobs.remind", args=args, kwargs="{'again': 2}", schedule_type=kind, cron="0 3 * * *",
            next_run=WHEN, name=None, delete=lambda: deleted.append(pk),
        )  # fmt: skip

    once, nightly, hourly = row(1, "O", "(7,)"), row(2, "C", "7"), row(3, "H", "()")
    assert script("from-django-q2.md", "move_schedules")([once, nightly, hourly], {"shop.jobs.remind": remind}) == [
        hourly
    ]
    assert deleted == [1, 2]
    assert_moved(jobs, "q2-1")
    made = Schedule.objects.get()
    made.full_clean()
    assert (made.name, made.cron, made.args) == ("q2-2", "0 3 * * *", [7])
