"""What the store refuses for long, or a database that stays away, stops only what needs it, and is said once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from django_jobs import Batch, Retry, chain, job
from django_jobs.browse.match import Match
from django_jobs.conf import QueueSettings
from django_jobs.core.values import Lane, NewJob, State
from django_jobs.enqueueing import commits
from django_jobs.exceptions import StoreCorrupt, StoreError
from django_jobs.execution.executor import Executor
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.models import ArchivedJob
from django_jobs.operations import bulk
from django_jobs.outbox.models import OutboxEntry
from django_jobs.runtime.complaints import Complaints
from django_jobs.schedules.scheduler import Periodic
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store, adding
from django_jobs.stores.redis.connection.keys import QUEUE_KEYS
from django_jobs.worker.child.fetcher import Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.child.settler import Settler
from django_jobs.worker.maintenance.agenda import workflows
from django_jobs.worker.maintenance.archiver import Archiver
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from django_jobs.workflows import end_calls
from tests.contract.acts import LEASE, done
from tests.support.backends.redis_process import RedisServer
from tests.survival.conftest import Clock

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.redis]

BOTH = ["a", "z"]
ONE_RUN = {"cron": "* * * * *", "job": "lasting.nothing"}


@job(name="lasting.nothing", max_attempts=1)
def nothing() -> None:
    pass


@job(name="lasting.moves")
def moves() -> None:
    raise Retry("elsewhere", queue="z")


@job(name="lasting.told")
def told(end: dict[str, Any]) -> None:
    pass


@job(name="lasting.fails", max_attempts=1)
def fails() -> None:
    raise ValueError


@pytest.fixture
def site(law_store: Store, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store in use, with two queues; nobody repairs them.  Nothing was said before."""
    for module, said in ((end_calls, "later"), (adding, "_closed"), (commits, "_kept")):
        monkeypatch.setattr(module, said, Complaints(60.0))
    settings.DJANGO_JOBS = {
        "STORE": "memory",
        "ARCHIVE": {},
        "OUTBOX": True,
        "QUEUES": {"default": {}, "a": {}, "z": {}},
    }
    use_store(law_store)
    yield law_store
    use_store(None)


def breaks(store: Store, key: str, queue: str = "a") -> None:
    name = store.keys.of(queue)[key]
    store.transport.command("DEL", name)
    store.transport.command("SET" if QUEUE_KEYS[key] == "list" else "RPUSH", name, "junk")


def attempt(store: Store, queue: str, most: int = 100) -> None:
    """Run jobs that wait in the queue."""
    claims = store.claim(queue, "w", most, lease=LEASE).claims
    Settler(store).settle_now([Executor(close_connections=False).attempt(each, store) for each in claims])


@contextmanager
def without(server: RedisServer, *commands: str) -> Iterator[None]:
    """The user of the workers has lost permissions."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", *(f"-{each}" for each in commands))
        try:
            yield
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")


# -- one damaged queue, of which no worker takes care, and the others -------------------------


@pytest.mark.parametrize("key", ["archive", "archiver", "answers"])
def test_the_others_are_archived(site: Store, make_job: Callable[..., NewJob], key: str) -> None:
    for queue in BOTH:
        site.enqueue(queue, [make_job(f"of-{queue}")])
        site.complete(queue, [done(each) for each in site.claim(queue, "w", 1, lease=LEASE).claims])
    breaks(site, key)
    archiver = Archiver(site, lambda: BOTH)
    for _ in range(2):
        with suppress(StoreError):
            archiver.tick()
    assert "of-z" in set(ArchivedJob.objects.values_list("job_id", flat=True))


def test_remote_attempts_of_the_others_end(site: Store, make_job: Callable[..., NewJob], virtual: Clock) -> None:
    for queue in BOTH:
        site.enqueue(queue, [make_job(f"of-{queue}")])
        site.claim(queue, "remote", 1, lease=LEASE, lease_each=True)
    breaks(site, "leases")
    virtual.now += LEASE + 1
    with pytest.raises(StoreCorrupt):
        RemoteWatch(site, lambda: BOTH).tick()
    assert site.get("z", "of-z").state is not State.RUNNING  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["answers", "end_calls"])
def test_workflows_of_the_others_go_on(site: Store, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.execution.settle.advance", lambda *_, **__: None)  # the process died there
        batches = {queue: Batch(queue) for queue in BOTH}
        for queue, batch in batches.items():
            with batch:
                nothing.using(queue=queue, on_commit=False).enqueue()
            attempt(site, queue)
    breaks(site, key)
    with pytest.raises(StoreCorrupt):
        workflows(site, BOTH)
    assert batches["z"].handle.state == "succeeded"


def test_a_queue_that_a_workflow_may_not_use_keeps_no_other_from_being_checked(
    site: Store, quiet_server: RedisServer, virtual: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.workflows.engine.start_first", lambda *_: None)  # the process died there
        for queue in BOTH:
            step = nothing.using(queue=queue)
            chain(step.s(), step.s()).enqueue(on_commit=False)
            virtual.now += 1
    virtual.now += 60_000
    with quiet_server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "resetkeys", "~{jobs}:*", "~{jobs:[^a]*")
        try:
            with suppress(StoreError):
                workflows(site, ["z"])
        finally:
            client.execute_command("ACL", "SETUSER", "default", "~*")
    assert len(site.claim("z", "w", 9, lease=LEASE).claims) == 1


def test_bulk_operations_in_the_others_go_on(site: Store, virtual: Clock) -> None:
    operations = []
    for queue in BOTH:
        fails.using(queue=queue, on_commit=False).enqueue()
        attempt(site, queue)
        virtual.now += 1
        operations.append(bulk.start("delete", State.DEAD, Match(queue=queue)))
    breaks(site, "dead")
    for _ in range(3):
        with suppress(StoreError):
            bulk.tick()
    assert [found.finished > 0 for each in operations if (found := bulk.get(each.id))] == [False, True]


def test_schedules_for_the_others_run(site: Store, settings: Any, virtual: Clock) -> None:
    each = {queue: {**ONE_RUN, "queue": queue} for queue in BOTH}
    use_store(None)
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "SCHEDULES": each}
    use_store(site)
    periodic = Periodic()
    periodic.tick()
    breaks(site, "jobs")
    virtual.now += 60_000
    with suppress(StoreError):
        periodic.tick()
    assert len(site.claim("z", "w", 9, lease=LEASE).claims) == 1


# -- said once ------------------------------------------------------------------------------------


def test_a_task_that_is_refused_for_long_holds_up_no_other_and_is_said_once(
    site: Store,
    quiet_server: RedisServer,
    make_job: Callable[..., NewJob],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [monotonic()]
    monkeypatch.setattr("django_jobs.worker.maintenance.tasks.monotonic", lambda: now[0])
    for queue in BOTH:
        site.enqueue(queue, [make_job(f"of-{queue}")])
    tasks, looks = MaintenanceTasks(site, BOTH, 30_000), list[float]()
    monkeypatch.setattr(site, "lapsed", lambda queues: looks.append(now[0]) or [])
    end = now[0] + 300
    with without(quiet_server, "hscan", "zscan"):  # only the check of a queue uses them
        while tasks.due < end:
            now[0] = max(now[0], tasks.due)
            tasks.step(now[0])
    assert len([each for each in caplog.messages if "Maintenance" in each]) <= 2, caplog.messages
    assert max(after - before for before, after in pairwise(looks)) < 5.1
    tasks.step(now[0])


def test_a_damaged_workflow_is_said_once(site: Store, virtual: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with Batch("damaged") as batch:
        nothing.using(on_commit=False).enqueue()
    name = site.keys.workflow(batch.handle.id)
    site.transport.command("DEL", name)
    site.transport.command("SET", name, "junk")
    for _ in range(5):
        virtual.now += 60_000
        workflows(site, BOTH)
    assert caplog.text.count("cannot be checked") == 1


def test_what_cannot_follow_from_ends_is_said_once(
    site: Store, quiet_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Batch("waits"):
        for _ in range(5):
            nothing.using(queue="a", on_commit=False).enqueue()
    with without(quiet_server, "ltrim"):  # only what reads the notes of ends uses it
        for _ in range(5):
            attempt(site, "a", most=1)
    assert caplog.text.count("is done a little later") == 1


def test_jobs_that_cannot_go_to_another_queue_are_said_once(site: Store, caplog: pytest.LogCaptureFixture) -> None:
    moves.using(queue="a", on_commit=False).enqueue()
    breaks(site, "jobs", queue="z")
    attempt(site, "a")
    for _ in range(5):
        with suppress(StoreError):
            end_calls.follow(site, "a")
    assert caplog.text.count("Jobs cannot go from queue 'a' to 'z' now") == 1


def test_jobs_that_stay_in_the_outbox_are_said_once(site: Store, caplog: pytest.LogCaptureFixture) -> None:
    breaks(site, "jobs")
    for _ in range(5):
        with transaction.atomic():
            nothing.using(queue="a").enqueue()
    assert OutboxEntry.objects.count() == 5
    assert caplog.text.count("from the outbox later") == 1


def test_a_database_that_middleware_needs_is_said_once(
    site: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        nothing.using(queue="a", on_commit=False, on_end="lasting.told").enqueue()

    def away(requests: Any, *_: Any) -> Any:
        return [DatabaseError("nobody listens") for _ in requests]

    monkeypatch.setattr("django_jobs.workflows.end_calls.submit_separately", away)
    attempt(site, "a")
    for _ in range(5):
        workflows(site, BOTH)
    assert caplog.text.count("is enqueued later") == 1


def test_the_end_of_a_bulk_operation_that_cannot_be_logged_is_said_once(
    site: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Any) -> None:
        raise DatabaseError("nobody listens")

    monkeypatch.setattr(bulk, "ended", {away})
    operation = bulk.start("delete", State.DEAD, Match(queue="a"))
    bulk.follow(operation.id)
    for _ in range(5):
        bulk.tick()
    assert caplog.text.count("cannot be logged now") == 1


def test_a_worker_that_may_not_wait_looks_for_work_and_says_so_once(
    site: Store, quiet_server: RedisServer, make_job: Callable[..., NewJob], caplog: pytest.LogCaptureFixture
) -> None:
    fetcher = Fetcher(
        site, "w", [QueueSettings(queue) for queue in BOTH],
        lane=Lane.SHARED, lease=LEASE, strict=False, gate=Gate(), clock=StoreClock(), size=lambda queue: 1,
    )  # fmt: skip
    ran = []
    with without(quiet_server, "blpop"):
        for n in range(3):
            site.enqueue("z", [make_job(f"job-{n}")])
            for _ in range(6):
                if len(ran) <= n and (fetched := fetcher.fetch()):
                    ran += [each.id for each in fetched[1].claims]
    assert ran == ["job-0", "job-1", "job-2"]
    assert caplog.text.count("Cannot wait for work") == 1
