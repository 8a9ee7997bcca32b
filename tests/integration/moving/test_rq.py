"""What docs/howto/from-rq.md says of RQ and of django_jobs is true of both."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.test import Client, override_settings

import django_jobs
from django_jobs import JobContext, PayloadError, UnknownJob, get_job
from django_jobs.conf import get_settings
from django_jobs.stores import store_options, use_store
from django_jobs.stores.redis import Store
from django_jobs.testing import Jobs
from tests.conftest import Clock
from tests.integration.moving.rows import Guide, about, fives, next_run, noting, ours, run_on, runs
from tests.integration.workers import WorkerSite
from tests.support.backends.missing import libraries
from tests.support.backends.servers import running_redis
from tests.support.waiting import wait_until

rq, django_rq = libraries("rq", "django_rq")

from rq.cron import CronScheduler  # noqa: E402

GUIDE = Guide("from-rq.md")
#: What the functions below write down: RQ finds functions by their path.
ran: list[Any] = []


class Anything:
    """JSON knows nothing like it."""


def note(*values: Any) -> None:
    ran.append(values)


def fails() -> None:
    ran.append("fails")
    raise ValueError("no")


def too_long() -> None:
    """The alarm of the time limit rings at once."""
    ran.append(rq.get_current_job().timeout)
    signal.raise_signal(signal.SIGALRM)


def reports() -> None:
    job = rq.get_current_job()
    job.meta["message"] = "half"
    job.save_meta()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A Redis of these tests' own: the prefix of RQ's keys is the same for all."""
    with running_redis() as url:
        yield url


@pytest.fixture
def queue(server: str) -> Iterator[Any]:
    ran.clear()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with redis.Redis.from_url(server) as connection:
        yield rq.Queue(connection=connection)
        connection.flushdb()
    for number, handler in handlers.items():  # RQ's worker has set its own
        signal.signal(number, handler)


def work(queue: Any, *queues: str) -> None:
    """Run what waits, as `rqworker --burst` does, in this process."""
    worker = rq.SimpleWorker(queues or [queue], connection=queue.connection)
    worker.work(burst=True, logging_level="CRITICAL")


@GUIDE.row("`queue.enqueue(func, 1)`, `@django_rq.job`, `func.delay(1)`", "`@job` on the function, `func.enqueue(1)`")
def test_enqueue(queue: Any, server: str, jobs: Jobs, seen: list[Any]) -> None:
    with override_settings(RQ_QUEUES={"default": {"URL": server}}):
        queue.enqueue(note, 1)
        django_rq.job(note).delay(2)
    assert ran == []
    work(queue)
    assert ran == [(1,), (2,)]

    noting(seen).enqueue(1)
    assert seen == []
    jobs.run_all()
    assert seen == [1]


@GUIDE.row("`queue.enqueue_in(timedelta(minutes=5), func)`", "`func.enqueue_in(timedelta(minutes=5))`")
def test_enqueue_in(queue: Any, jobs: Jobs, seen: list[Any]) -> None:
    job = queue.enqueue_in(timedelta(minutes=5), note)
    work(queue)
    assert ran == []
    assert about(queue.scheduled_job_registry.get_scheduled_time(job), 300)

    noting(seen).enqueue_in(timedelta(minutes=5))
    assert runs(jobs, seen) == [300]


@GUIDE.row(
    "`Retry(max=3, interval=[10, 60, 300])`",
    "`@job(max_attempts=4, backoff=[10, 60, 300])`; if there are fewer pauses than retries, RQ repeats the first one, "
    "django_jobs the last",
)
@pytest.mark.parametrize(
    ("pauses", "theirs", "here"),
    [([10, 60, 300], [10, 60, 300], [10, 60, 300]), ([10, 60], [10, 10, 60], [10, 60, 60])],
)
def test_retries(
    queue: Any, jobs: Jobs, seen: list[Any], pauses: list[int], theirs: list[int], here: list[int]
) -> None:
    job = queue.enqueue(fails, retry=rq.Retry(max=3, interval=pauses))
    work(queue)
    registry, waits = queue.scheduled_job_registry, []
    while job.id in registry:
        waits.append(fives((registry.get_scheduled_time(job) - datetime.now(UTC)).total_seconds()))
        registry.remove(job)
        queue.enqueue_job(rq.job.Job.fetch(job.id, connection=queue.connection))
        work(queue)
    assert (waits, len(ran), job.get_status()) == (theirs, 4, "failed")

    @ours(max_attempts=4, backoff=pauses)
    def tries() -> None:
        seen.append("ran")
        raise ValueError("no")

    handle = tries.enqueue()
    assert (runs(jobs, seen), len(seen), handle.refresh().state) == (here, 4, "dead")


@GUIDE.row("`job_timeout=120`", "`timeout=120`")
def test_timeout(queue: Any, jobs: Jobs) -> None:
    job = queue.enqueue(too_long, job_timeout=120)
    work(queue)
    assert ran == [120]
    assert "JobTimeoutException" in job.latest_result().exc_string

    @ours(timeout=0.05, max_attempts=1)
    def endless() -> None:
        while True:
            pass

    handle = endless.enqueue()
    jobs.run_all()
    assert (handle.refresh().state, handle.attempts[0].outcome) == ("dead", "timeout")


@GUIDE.row("`result_ttl`, `failure_ttl`", "`keep_result`, `HISTORY`; `DEAD`")
def test_times_of_results(queue: Any, make_redis_store: Callable[..., Store], clock: Clock) -> None:
    done, failed = queue.enqueue(note, result_ttl=60), queue.enqueue(fails, failure_ttl=70)
    work(queue)
    assert [most - 10 < queue.connection.ttl(job.key) <= most for job, most in ((done, 60), (failed, 70))] == [True] * 2

    @ours(max_attempts=1)
    def breaks() -> None:
        raise ValueError

    with override_settings(DJANGO_JOBS={"STORE": "memory", "HISTORY": {"ttl": 100}, "DEAD": {"ttl": 200}}):
        options = store_options(get_settings())
    store = make_redis_store(history_ttl=options.history_ttl, dead_ttl=options.dead_ttl)
    use_store(store)
    kept = noting(ran, name="moving.kept", keep_result=150)
    handles = [noting(ran).enqueue(1), kept.enqueue(1), breaks.enqueue()]
    run_on(store, clock=clock, close_connections=False)
    left = []
    for seconds in (0, 101, 50, 50):
        clock.advance(seconds * 1000)
        store.prune("default")
        left.append([store.get("default", handle.id) is not None for handle in handles])
    assert left == [[True, True, True], [False, True, True], [False, False, True], [False, False, False]]


@GUIDE.row("`job_id=`", "`using(job_id=…)`; the same id twice makes one job")
def test_ids(queue: Any, jobs: Jobs, seen: list[Any]) -> None:
    assert queue.enqueue(note, 1, job_id="mine").id == queue.enqueue(note, 2, job_id="mine").id == "mine"
    work(queue)

    noted = noting(seen)
    assert noted.using(job_id="mine").enqueue(1).id == noted.using(job_id="mine").enqueue(2).id == "mine"
    jobs.run_all()
    assert (ran, seen) == ([(2,), (2,)], [1])


@GUIDE.row(
    "`get_current_job().meta`, `save_meta()`",
    "`takes_context=True`, `ctx.checkin(…)`: there while the job runs; `meta` of RQ is there afterwards, too",
)
def test_progress(queue: Any, jobs: Jobs, seen: list[Any]) -> None:
    job = queue.enqueue(reports)
    work(queue)
    assert job.get_meta() == {"message": "half"}

    @ours(takes_context=True, max_attempts=1)
    def reports_here(ctx: JobContext, fail: bool) -> None:
        ctx.checkin("half", 0.5)
        said = get_job(ctx.job.id).checkin
        seen.append(said and (said["message"], said["progress"]))
        if fail:
            raise ValueError

    handles = [reports_here.enqueue(False), reports_here.enqueue(True)]
    jobs.run_all()
    assert seen == [("half", 0.5)] * 2
    assert [(handle.refresh().state, handle.checkin) for handle in handles] == [("succeeded", None), ("dead", None)]


@GUIDE.row("failed job registry", "state `dead`, in the admin and with `manage.py jobs retry`")
def test_failed_jobs(queue: Any, jobs: Jobs, admin_client: Client) -> None:
    job = queue.enqueue(fails)
    work(queue)
    assert queue.failed_job_registry.get_job_ids() == [job.id]
    queue.failed_job_registry.requeue(job)
    work(queue)
    assert len(ran) == 2

    @ours(max_attempts=1)
    def breaks() -> None:
        raise ValueError("the disk is full")

    handle = breaks.enqueue()
    jobs.run_all()
    assert handle.refresh().state == "dead"
    assert "the disk is full" in admin_client.get(f"/admin/django_jobs/dashboard/job/default/{handle.id}/").text
    call_command("jobs", "retry", handle.id, stdout=StringIO())
    assert handle.refresh().state == "queued"


@GUIDE.row("`rqscheduler`, `rqcron`", '`@job(cron="…")`, inside `runworkers`')
@pytest.mark.django_db
def test_cron(queue: Any, site: WorkerSite) -> None:
    cron = CronScheduler(queue.connection).register(note, "default", cron="0 3 * * *")

    @ours(cron="0 3 * * *")
    def nightly() -> None: ...

    assert next_run("moving.nightly").replace(tzinfo=None) == cron.next_enqueue_time.replace(tzinfo=None)
    site.jobs_settings["SCHEDULES"] = {"tick": {"job": "add", "cron": "* * * * * *", "args": [1, 2]}}
    site.pool(periodic=True)
    wait_until(lambda: site.counts()["succeeded"], "a worker has started a periodic job")


@GUIDE.row("`rqworker high default low`", '`QUEUES` with `PRIORITY`; `QUEUE_ORDER = "strict"` for that order')
def test_order_of_queues(queue: Any, site: WorkerSite) -> None:
    names = ["high", "default", "low"]
    for name in reversed(names):
        for _ in range(3):
            rq.Queue(name, connection=queue.connection).enqueue(note, name)
    work(queue, *names)
    assert [values[0] for values in ran] == [name for name in names for _ in range(3)]

    queues = {"high": {"PRIORITY": 3}, "default": {"PRIORITY": 2}, "low": {"PRIORITY": 1}}
    site.jobs_settings.update(QUEUES=queues, QUEUE_ORDER="strict")
    ids = {name: [site.put("work", queue=name) for _ in range(3)] for name in reversed(names)}
    site.pool("--burst", threads=1).process.wait(60)
    started = [event.id for event in site.ledger.read() if event.kind == "start"]
    assert started == [id for name in names for id in ids[name]]


@GUIDE.row("any importable function, pickle", "registered functions only, JSON only")
def test_functions_and_arguments(queue: Any, jobs: Jobs) -> None:
    queue.enqueue("tests.integration.moving.test_rq.note", Anything())
    work(queue)
    assert type(ran[0][0]) is Anything

    with pytest.raises(UnknownJob):
        django_jobs.enqueue("tests.integration.moving.test_rq.note", 1)
    with pytest.raises(PayloadError):
        noting(ran).enqueue(Anything())
