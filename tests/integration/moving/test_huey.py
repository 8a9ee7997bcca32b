"""What docs/howto/from-huey.md says of Huey and of django_jobs is true of both."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import StringIO
from time import monotonic
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client, override_settings

from django_jobs import Discard, JobContext, Retry, Snooze, signals
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.testing import Jobs
from tests.integration.moving.rows import (
    Guide,
    about,
    double,
    fives,
    next_run,
    noting,
    ours,
    parsed,
    run_on,
    runs,
    workflows_here,
)
from tests.support.backends.missing import libraries

(theirs,) = libraries("huey")

from huey.exceptions import CancelExecution, RetryTask, TaskException  # noqa: E402
from huey.signals import SIGNAL_ERROR, SIGNAL_LOCKED, SIGNAL_TIMEOUT  # noqa: E402

GUIDE = Guide("from-huey.md")


@pytest.fixture
def huey() -> Any:
    return theirs.MemoryHuey("moving", store_none=True)


@pytest.fixture
def djhuey(huey: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Huey's module for Django, with a queue of this test."""
    with override_settings(HUEY=huey):
        module = import_module("huey.contrib.djhuey")
    monkeypatch.setattr(module, "HUEY", huey)
    monkeypatch.setattr(module, "task", huey.task)
    return module


def work(huey: Any) -> None:
    """Run what waits, as a consumer does."""
    while (task := huey.dequeue()) is not None:
        huey.execute(task)


def waits_of(huey: Any, ran: list[Any]) -> list[int]:
    """Run everything, also what is for later.  Return the pauses before each further attempt."""
    waits: list[int] = []
    work(huey)
    while huey.scheduled_count():
        (task,) = huey.scheduled()
        waits.append(fives((task.eta.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()))
        count = len(ran)
        for due in huey.read_schedule(task.eta):
            huey.execute(due, timestamp=task.eta)
        work(huey)
        assert len(ran) == count + 1
    return waits


@GUIDE.row(
    "`@task()`, `@db_task()`",
    "`@job`; database connections that `CONN_MAX_AGE` does not keep are closed after each job in any case",
)
@pytest.mark.django_db
def test_connections(djhuey: Any, redis_store: Store, seen: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(djhuey, "close_old_connections", lambda: seen.append("closed"))
    for decorator in (djhuey.task, djhuey.db_task):
        decorator(name=decorator.__name__)(seen.append)("ran")
        work(djhuey.HUEY)
    assert seen == ["ran", "closed", "ran", "closed"]
    seen.clear()

    @ours()
    def queries() -> None:
        connections["default"].ensure_connection()
        seen.append("ran")

    monkeypatch.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", lambda _: seen.append("closed"))
    use_store(redis_store)
    queries.using(on_commit=False).enqueue()
    with ThreadPoolExecutor(1) as thread:  # which has no connection yet
        thread.submit(run_on, redis_store).result()
    assert seen == ["ran", "closed"]


@GUIDE.row("`@on_commit_task()`", "`@job`; every enqueue waits for the commit, unless `ON_COMMIT` is false")
@pytest.mark.django_db(transaction=True)
def test_commits(djhuey: Any, jobs: Jobs, seen: list[Any]) -> None:
    task, note = djhuey.on_commit_task()(seen.append), noting(seen)
    with transaction.atomic():
        task(1)
        handle = note.enqueue(1)
        assert (djhuey.HUEY.pending_count(), handle.state) == (0, "deferred")
    assert (djhuey.HUEY.pending_count(), handle.state) == (1, "queued")
    with override_settings(DJANGO_JOBS={"STORE": "memory", "ON_COMMIT": False}), transaction.atomic():
        assert note.enqueue(1).state == "queued"


@GUIDE.row("`task(1)` enqueues", "`task.enqueue(1)` enqueues; `task(1)` calls the function")
@GUIDE.row("`task.call_local(1)`", "`task(1)`")
def test_calls(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    task = huey.task()(seen.append)
    task(1)
    assert seen == []
    task.call_local(2)
    work(huey)
    assert seen == [2, 1]
    seen.clear()

    note = noting(seen)
    note.enqueue(1)
    assert seen == []
    note(2)
    jobs.run_all()
    assert seen == [2, 1]


@GUIDE.row("`task.schedule((1,), delay=60)`, `eta=…`", "`task.enqueue_in(60, 1)`, `task.enqueue_at(when, 1)`")
def test_later(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    task, when = huey.task()(seen.append), datetime.now(UTC) + timedelta(seconds=60)
    for times in ({"delay": 60}, {"eta": when}):
        task.schedule((1,), **times)
        assert about(huey.pending()[0].eta, 60)
        work(huey)
        assert seen == []
        huey.flush()

    note = noting(seen)
    note.enqueue_in(60, 1)
    note.enqueue_at(when, 1)
    assert [about(job.at, 60) for job in jobs.enqueued()] == [True, True]
    jobs.run_all()
    assert seen == []


@GUIDE.row("`retries=3, retry_delay=60`", "`max_attempts=4, backoff=[60]`")
def test_retries(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    def fails() -> None:
        seen.append("ran")
        raise ValueError("no")

    huey.task(retries=3, retry_delay=60)(fails)()
    assert (waits_of(huey, seen), len(seen)) == ([60, 60, 60], 4)
    seen.clear()
    ours(max_attempts=4, backoff=[60])(fails).enqueue()
    assert (runs(jobs, seen), len(seen)) == ([60, 60, 60], 4)


@GUIDE.row(
    "`raise RetryTask(delay=5)`, which uses up no retry",
    "`raise Snooze(in_=5)`; `raise Retry(in_=5)` counts as a failed attempt",
)
def test_retry_by_hand(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    def asks_again(error: type[Exception], **options: Any) -> Callable[[], None]:
        def again() -> None:
            seen.append("ran")
            if len(seen) < 5:
                raise error(**options)

        return again

    huey.task()(asks_again(RetryTask, delay=5))()
    assert waits_of(huey, seen) == [5, 5, 5, 5]
    seen.clear()
    handle = ours(max_attempts=1)(asks_again(Snooze, in_=5)).enqueue()
    assert (runs(jobs, seen), handle.refresh().state) == ([5, 5, 5, 5], "succeeded")
    seen.clear()
    handle = ours(name="moving.retry", max_attempts=3)(asks_again(Retry, in_=5)).enqueue()
    assert (runs(jobs, seen), handle.refresh().state) == ([5, 5], "dead")


@GUIDE.row(
    "`raise CancelExecution(retry=False)`; without `retry=False`, a task with `retries` is tried again",
    "`raise Discard()`",
)
@pytest.mark.parametrize(("options", "count"), [({"retry": False}, 1), ({}, 3)])
def test_cancelled_by_itself(huey: Any, jobs: Jobs, seen: list[Any], options: dict[str, bool], count: int) -> None:
    @huey.task(retries=2)
    def stops() -> None:
        seen.append("ran")
        raise CancelExecution(**options)

    stops()
    work(huey)
    assert len(seen) == count
    seen.clear()

    @ours()
    def stops_here() -> None:
        seen.append("ran")
        raise Discard

    handle = stops_here.enqueue()
    jobs.run_all()
    assert (seen, handle.refresh().state) == (["ran"], "cancelled")


@GUIDE.row(
    "`priority=10`, `expires=300`, counted from the call, also if there is a delay",
    "`priority=10`, `expires_in=300`, counted from when the job could first run",
)
def test_priority_and_expiry(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    tasks = [huey.task(priority=priority, name=f"p{priority}")(seen.append) for priority in (0, 10)]
    tasks[0](0), tasks[1](10)
    work(huey)
    for delay, age in ((0, 290), (0, 301), (400, 401)):
        tasks[0].schedule((age,), delay=delay, expires=300)
        huey.execute(huey.dequeue(), timestamp=datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=age))
    assert seen == [10, 0, 290]
    seen.clear()

    note = noting(seen, expires_in=300)
    note.enqueue(0), note.using(priority=10).enqueue(10)
    jobs.run_all()
    for delay, age in ((0, 290), (0, 301), (400, 401)):
        note.enqueue_in(delay, age)
        jobs.travel(age)
        jobs.run_all()
    assert seen == [10, 0, 290, 401]


@GUIDE.row(
    "`timeout=30`, which raises an exception in a worker of the kind `process`, and none in one of the kind `thread`",
    "`timeout=30`: the process of the job is ended",
)
@pytest.mark.parametrize(("kind", "outcome"), [("process", "timeout"), ("thread", "ended")])
def test_timeout(huey: Any, seen: list[Any], kind: str, outcome: str) -> None:
    huey.signal(SIGNAL_TIMEOUT)(lambda *_: seen.append("timeout"))
    ends = monotonic() + (0.1 if kind == "thread" else 60)

    @huey.task(timeout=0.05)
    def slow() -> None:
        while monotonic() < ends:
            pass
        seen.append("ended")

    huey.create_consumer(worker_type=kind)
    slow()
    work(huey)
    assert seen == [outcome]


def test_a_timeout_ends_the_process_here(timeout_ends_the_process: Callable[[], None]) -> None:
    timeout_ends_the_process()


@GUIDE.row("`context=True`", "`takes_context=True`")
def test_context(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    @huey.task(context=True)
    def told(task: Any) -> None:
        seen.append(task.id)

    @ours(takes_context=True)
    def told_here(ctx: JobContext) -> None:
        seen.append(ctx.job.id)

    ids = [told().id, told_here.enqueue().id]
    work(huey)
    jobs.run_all()
    assert seen == ids


@GUIDE.row('`@periodic_task(crontab(minute="0", hour="3"))`', '`@job(cron="0 3 * * *")`')
@pytest.mark.django_db
def test_cron(huey: Any) -> None:
    @huey.periodic_task(theirs.crontab(minute="0", hour="3"))
    def nightly() -> None: ...

    @ours(cron="0 3 * * *")
    def nightly_here() -> None: ...

    due = next_run("moving.nightly_here").astimezone(UTC).replace(tzinfo=None)
    day = [due - timedelta(minutes=minute) for minute in range(1440)]
    assert [minute for minute in day if huey.read_periodic(minute)] == [due]


@GUIDE.row(
    '`@lock_task("reports")`, `TaskLockedException`', "`max_concurrency=1`: the second job waits and does not fail"
)
def test_one_at_a_time(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    huey.signal(SIGNAL_LOCKED)(lambda *_: seen.append("locked"))

    @huey.task()
    @huey.lock_task("reports")
    def reports(first: bool) -> None:
        seen.append(first)
        if first:
            work(huey)

    reports(True)
    second = reports(False)
    work(huey)
    assert seen == [True, "locked"]
    with pytest.raises(TaskException, match="TaskLockedException"):
        second()
    seen.clear()

    @ours(max_concurrency=1)
    def reports_here(first: bool) -> None:
        seen.append(first)
        if first:
            assert jobs.run_all() == []
            seen.append([job.state for job in jobs.enqueued()])

    handles = [reports_here.enqueue(True), reports_here.enqueue(False)]
    jobs.run_all()
    assert seen == [True, ["blocked"], False]
    assert [(handle.refresh().state, handle.attempts) for handle in handles] == [("succeeded", ())] * 2


@GUIDE.row("`result(blocking=True, timeout=5)`", "`handle.wait(timeout=5)`")
def test_results(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    result, handle = huey.task()(lambda: 7)(), noting(seen).enqueue(7)
    work(huey)
    jobs.run_all()
    assert result(blocking=True, timeout=5) == handle.wait(timeout=5) == 7


@GUIDE.row(
    "`result.revoke()`, `task.revoke()`",
    "`handle.cancel()`; pause the job type in the admin or with `jobs pause`: its jobs wait, and are not thrown away",
)
def test_revoked(huey: Any, jobs: Jobs, seen: list[Any], admin_client: Client) -> None:
    task, note = huey.task()(seen.append), noting(seen)
    task(1).revoke()
    work(huey)
    task.revoke()
    task(2)
    work(huey)
    task.restore()
    work(huey)
    assert seen == []

    assert note.enqueue(1).cancel()
    for way in ("command", "admin"):
        if way == "command":
            call_command("jobs", "pause", "--job", "moving.note", stdout=StringIO())
        else:
            admin_client.post("/admin/django_jobs/dashboard/queues/default/", {"do": "pause", "name": "moving.note"})
        note.enqueue(way)
        assert jobs.run_all() == []
        call_command("jobs", "resume", "--job", "moving.note", stdout=StringIO())
        jobs.run_all()
        assert seen.pop() == way


@GUIDE.row(
    "`task.s(1).then(other)`, `chord`",
    "`chain(task.s(1), other.s(PREVIOUS))`, `group(…).then(…)`: see [workflows](workflows.md)",
)
def test_workflows(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    task, last = huey.task()(double), huey.task()(seen.append)
    huey.enqueue(task.s(1).then(last))
    huey.enqueue(theirs.chord([task.s(1), task.s(2)], last.s()))
    work(huey)
    assert seen == [2, [2, 4]] == workflows_here(jobs, seen)


@GUIDE.row("`@signal(SIGNAL_ERROR)`", "the [signal](../reference/signals.md) `job_failed`")
def test_signals(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    def fails() -> None:
        raise ValueError("no")

    huey.signal(SIGNAL_ERROR)(lambda signal, task, error: seen.append(task.name))
    huey.task(retries=1)(fails)()
    work(huey)
    assert seen == ["fails", "fails"]

    def receive(name: str, **_: Any) -> None:
        seen.append(name)

    signals.job_failed.connect(receive)
    ours(max_attempts=2)(fails).enqueue()
    jobs.run_all()
    jobs.run_due()
    signals.job_failed.disconnect(receive)
    assert seen[2:] == ["moving.fails", "moving.fails"]


@GUIDE.row("`immediate = True`", "`EAGER`, or the [test kit](testing.md)")
def test_immediate(huey: Any, jobs: Jobs, seen: list[Any]) -> None:
    huey.immediate = True
    huey.task()(seen.append)(1)
    with override_settings(DJANGO_JOBS={"STORE": "memory", "EAGER": True}):
        noting(seen).enqueue(2)
    assert seen == [1, 2]


@GUIDE.row("`run_huey -w 8 -k thread`", "`runworkers --processes 1 --threads 8`")
def test_command_lines() -> None:
    there = parsed("huey.contrib.djhuey", "run_huey", "-w", "8", "-k", "thread")
    here = parsed("django_jobs", "runworkers", "--processes", "1", "--threads", "8")
    assert (there.workers, there.worker_type) == (8, "thread")
    assert (here.processes, here.threads) == (1, 8)
