"""What docs/howto/from-dramatiq.md says of Dramatiq and of django_jobs is true of both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, modify_settings, override_settings

from django_jobs import Fail, Retry, Snooze
from django_jobs.core import discovery, registry
from django_jobs.testing import Jobs
from tests.integration.moving.rows import Guide, about, double, next_run, noting, ours, parsed, runs, workflows_here
from tests.support.backends.missing import libraries
from tests.support.waiting import wait_until

dramatiq, _ = libraries("dramatiq", "django_dramatiq")

from dramatiq import middleware, rate_limits, results  # noqa: E402
from dramatiq.brokers.stub import StubBroker  # noqa: E402
from dramatiq.rate_limits.backends import StubBackend as Limits  # noqa: E402
from dramatiq.results.backends import StubBackend as Kept  # noqa: E402

GUIDE = Guide("from-dramatiq.md")
DASHBOARD = "/admin/django_jobs/dashboard/"
#: What `around` writes down.
around_said: list[str] = []


def around(get_next: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A middleware of django_jobs."""

    def layer(job: Any) -> Any:
        around_said.append(f"before {job.name}")
        value = get_next(job)
        around_said.append(f"after {job.name}")
        return value

    return layer


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Any:
    broker = StubBroker([middleware.AgeLimit(), middleware.Callbacks(), middleware.Pipelines(), middleware.Retries()])
    broker.add_middleware(results.Results(backend=Kept()))
    broker.add_middleware(middleware.GroupCallbacks(Limits()))
    monkeypatch.setattr("dramatiq.broker.global_broker", broker)
    return broker


def work(broker: Any, queue: str = "default", begun: Callable[[Any], None] = lambda worker: None) -> None:
    """Run what waits, also what is for later, in a worker with one thread."""
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=10)
    begun(worker)
    worker.start()
    try:
        broker.join(queue, fail_fast=False, timeout=60_000)
    finally:
        worker.stop()


def delayed(broker: Any) -> list[Any]:
    """The messages for later, taken away."""
    queue, found = broker.queues["default.DQ"], []
    while queue.qsize():
        found.append(dramatiq.Message.decode(queue.get()))
        queue.task_done()
    return found


@pytest.fixture(scope="module")
def on_django(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a project with django_dramatiq does, in a process of its own."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "tasks.py").write_text("import dramatiq\n\n\n@dramatiq.actor\ndef send(number):\n    pass\n")
    command = [sys.executable, "-c", ON_DJANGO, str(folder)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


ON_DJANGO = """
import json, sys
import django
from django.conf import settings

middleware = ["dramatiq.middleware.TimeLimit", "django_dramatiq.middleware.AdminMiddleware",
              "django_dramatiq.middleware.DbConnectionsMiddleware"]
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_dramatiq", "shop"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1] + "/db.sqlite3"}},
    DRAMATIQ_BROKER={"BROKER": "dramatiq.brokers.stub.StubBroker", "OPTIONS": {}, "MIDDLEWARE": middleware},
    USE_TZ=True,
)
django.setup()

import dramatiq
from django.core.management import call_command, load_command_class
from django_dramatiq.models import Task
from dramatiq.middleware import TimeLimit

seen = {"default": TimeLimit().time_limit}
call_command("migrate", verbosity=0)
command = load_command_class("django_dramatiq", "rundramatiq")
seen["modules"] = command.discover_tasks_modules()
given = command.create_parser("manage.py", "x").parse_args(["--processes", "4", "--threads", "8"])
seen["size"] = [given.processes, given.threads]

from shop.tasks import send


@dramatiq.actor(time_limit=50)
def endless():
    try:
        while True:
            pass
    except BaseException as error:
        seen["interrupted"] = type(error).__name__


broker = dramatiq.get_broker()
send.send(1)
seen["tasks"] = [[task.actor_name, task.status] for task in Task.tasks.all()]
endless.send()
broker.emit_after("process_boot")
worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=10)
worker.start()
broker.join("default")
worker.stop()
seen["tasks"] += [[task.actor_name, task.status] for task in Task.tasks.filter(actor_name="send")]
print(json.dumps(seen))
"""


@GUIDE.row("`@dramatiq.actor` in `tasks.py`", '`@job` in `jobs.py`, or `MODULES = ["jobs", "tasks"]`')
@pytest.mark.parametrize(("given", "found"), [({}, {"jobs"}), ({"MODULES": ["jobs", "tasks"]}, {"jobs", "tasks"})])
def test_modules(
    on_django: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    found: set[str],
) -> None:
    assert "shop.tasks" in on_django["modules"]

    app = f"moving_shop_{len(found)}"
    (tmp_path / app).mkdir()
    (tmp_path / app / "__init__.py").touch()
    for name in ("jobs", "tasks"):
        code = f"from django_jobs import job\n\n\n@job(name='moving.{name}')\ndef send(): ...\n"
        (tmp_path / app / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with (
        override_settings(DJANGO_JOBS={"STORE": "memory", **given}, TASKS={}),
        modify_settings(INSTALLED_APPS={"append": app}),
    ):
        discovery.discover()
    assert {name for name in registry.names() if name.startswith("moving.")} == {f"moving.{name}" for name in found}


@GUIDE.row("`actor.send(1)`", "`actor.enqueue(1)`")
def test_send(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    dramatiq.actor(seen.append, actor_name="note").send(1)
    noting(seen).enqueue(1)
    assert seen == []
    work(broker)
    jobs.run_all()
    assert seen == [1, 1]


@GUIDE.row("`actor.send_with_options(args=(1,), delay=60_000)` (ms)", "`actor.enqueue_in(60, 1)` (seconds)")
def test_later(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    message = dramatiq.actor(seen.append, actor_name="note").send_with_options(args=(1,), delay=60_000)
    assert [each.options["eta"] for each in delayed(broker)] == [message.options["eta"]]
    assert 59_000 < message.options["eta"] - message.message_timestamp < 61_000

    noting(seen).enqueue_in(60, 1)
    assert [about(job.at, 60) for job in jobs.enqueued()] == [True]
    jobs.run_all()
    assert seen == []


@GUIDE.row(
    "`max_retries=20`, `min_backoff`, `max_backoff` (ms)",
    "`max_attempts=21`, `backoff` (seconds); by default 10 attempts",
)
def test_retries(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    def fails() -> None:
        seen.append("ran")
        raise ValueError("no")

    class Delays(dramatiq.Middleware):
        def after_enqueue(self, broker: Any, message: Any, delay: int | None) -> None:
            if delay is not None:
                seen.append(delay)

    broker.add_middleware(Delays())
    dramatiq.actor(min_backoff=1, max_backoff=4)(fails).send()
    work(broker)
    assert seen.count("ran") == 21
    delays = [each for each in seen if each != "ran"]
    assert (len(delays), max(delays) <= 4) == (20, True)
    seen.clear()
    handle = ours(max_attempts=21, backoff=[5])(fails).enqueue()
    assert (runs(jobs, seen), handle.refresh().state) == ([5] * 20, "dead")
    seen.clear()
    ours(name="moving.default")(fails).enqueue()
    runs(jobs, seen)
    assert len(seen) == 10


@GUIDE.row("`throws=(ValueError,)`", "`retry_on` without it, or `discard_on=(ValueError,)`")
@pytest.mark.parametrize(
    ("options", "state"), [({"retry_on": (KeyError,)}, "dead"), ({"discard_on": (ValueError,)}, "cancelled")]
)
def test_errors_that_end_it(broker: Any, jobs: Jobs, seen: list[Any], options: dict[str, Any], state: str) -> None:
    def fails() -> None:
        seen.append("ran")
        raise ValueError("no")

    dramatiq.actor(throws=(ValueError,))(fails).send()
    work(broker)
    assert (seen, len(broker.dead_letters)) == (["ran"], 1)
    handle = ours(**options)(fails).enqueue()
    jobs.run_all()
    assert (len(seen), handle.refresh().state) == (2, state)


@GUIDE.row("`retry_when=…`", "raise `Retry` or `Fail` in the job")
def test_retry_when(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    @dramatiq.actor(retry_when=lambda retries, error: retries < 2, min_backoff=1, max_backoff=1)
    def fails() -> None:
        seen.append("ran")
        raise ValueError("no")

    @ours()
    def fails_here() -> None:
        seen.append("ran")
        raise Retry(in_=5) if len(seen) < 3 else Fail("no")

    fails.send()
    work(broker)
    assert len(seen) == 3
    seen.clear()
    handle = fails_here.enqueue()
    assert (runs(jobs, seen), handle.refresh().state) == ([5, 5], "dead")


@GUIDE.row(
    "`time_limit` (ms; 10 minutes by default), an exception in the thread",
    "`timeout` (seconds; none by default), the process is ended; `soft_timeout` asks the job to stop",
)
def test_time_limits(
    on_django: dict[str, Any], timeout_ends_the_process: Callable[[], None], jobs: Jobs, seen: list[Any]
) -> None:
    assert on_django["default"] == 600_000
    assert on_django["interrupted"] == "TimeLimitExceeded"

    @ours(takes_context=True, soft_timeout=0.05)
    def stops(ctx: Any) -> None:
        while not ctx.should_stop:
            pass
        seen.append(ctx.stop_reason)

    assert noting(seen).options.timeout is None
    stops.enqueue()
    jobs.run_all()
    assert seen == ["timeout"]
    timeout_ends_the_process()


@GUIDE.row(
    "`max_age` (ms), counted from `send`, also if there is a delay",
    "`expires_in` (seconds), counted from when the job could first run",
)
def test_expiry(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    actor = dramatiq.actor(seen.append, actor_name="note", max_age=300_000)
    for age in (299_000, 301_000):
        message = actor.message(age)
        broker.enqueue(message.copy(message_timestamp=message.message_timestamp - age), delay=1)
    work(broker)
    assert seen == [299_000]
    seen.clear()
    note = noting(seen, expires_in=300)
    for age, delay in ((290, 0), (301, 0), (690, 400), (701, 400)):
        note.enqueue_in(delay, age)
        jobs.travel(age)
        jobs.run_all()
    assert seen == [290, 690]


@GUIDE.row("`priority=0` (lower first)", "`priority=0` (**higher** first)")
def test_priorities(broker: Any, jobs: Jobs, seen: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq.worker.QUEUE_PREFETCH", 9)
    workers: list[Any] = []

    @dramatiq.actor
    def holds() -> None:
        wait_until(lambda: workers[0].work_queue.qsize() == 2, "the worker has fetched both messages")

    actors = [dramatiq.actor(seen.append, actor_name=f"p{number}", priority=number) for number in (10, 0)]
    holds.send()
    for actor in actors:
        actor.send(actor.priority)
    work(broker, begun=workers.append)
    assert seen == [0, 10]
    seen.clear()
    note = noting(seen)
    for number in (0, 10):
        note.using(priority=number).enqueue(number)
    jobs.run_all()
    assert seen == [10, 0]


@GUIDE.row('`queue_name="mail"`', '`queue="mail"`')
def test_queues(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    message = dramatiq.actor(seen.append, actor_name="note", queue_name="mail").send(1)
    work(broker, "mail")
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": {"default": {}, "mail": {}}}):
        handle = noting(seen, queue="mail").enqueue(1)
        jobs.run_all()
    assert message.queue_name == handle.queue == "mail"
    assert seen == [1, 1]


@GUIDE.row("`Middleware.before_process_message`, `after_process_message`", "a [middleware](middleware.md)")
def test_middleware(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    class Around(dramatiq.Middleware):
        def before_process_message(self, broker: Any, message: Any) -> None:
            seen.append("before")

        def after_process_message(
            self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
        ) -> None:
            seen.append("after")

    broker.add_middleware(Around())
    dramatiq.actor(seen.append, actor_name="note").send("ran")
    work(broker)
    assert seen == ["before", "ran", "after"]
    around_said.clear()
    with override_settings(DJANGO_JOBS={"STORE": "memory", "MIDDLEWARE": [f"{__name__}.around"]}):
        noting(around_said).enqueue("ran")
        jobs.run_all()
    assert around_said == ["before moving.note", "ran", "after moving.note"]


@GUIDE.row("`ConcurrentRateLimiter`", "`max_concurrency`, `concurrency_key`")
def test_concurrency(jobs: Jobs, seen: list[Any]) -> None:
    backend = Limits()
    with rate_limits.ConcurrentRateLimiter(backend, "a", limit=1).acquire():
        for key, free in (("a", False), ("b", True)):
            with rate_limits.ConcurrentRateLimiter(backend, key, limit=1).acquire(raise_on_failure=False) as acquired:
                assert acquired == free

    @ours(max_concurrency=1, concurrency_key="key")
    def limited(key: str, first: bool = False) -> None:
        seen.append(key)
        if first:
            jobs.run_all()
            seen.append([job.state for job in jobs.enqueued()])

    limited.enqueue("a", first=True)
    limited.enqueue("a")
    limited.enqueue("b")
    jobs.run_all()
    assert seen == ["a", "b", ["blocked"], "a"]


@GUIDE.row(
    "`WindowRateLimiter`, `BucketRateLimiter`",
    "none: keep that limiter in the job, and raise `Snooze(in_=…)` when it refuses",
)
@pytest.mark.parametrize(
    "make",
    [
        lambda backend: rate_limits.WindowRateLimiter(backend, "key", limit=1, window=3600),
        lambda backend: rate_limits.BucketRateLimiter(backend, "key", limit=1, bucket=10**12),
    ],
)
def test_rates(jobs: Jobs, seen: list[Any], make: Callable[[Any], Any]) -> None:
    backend = Limits()
    limiter = make(backend)

    @ours(max_attempts=1)
    def limited() -> None:
        with limiter.acquire(raise_on_failure=False) as acquired:
            seen.append(acquired)
            if not acquired:
                raise Snooze(in_=60)

    handles = [limited.enqueue(), limited.enqueue()]
    jobs.run_all()
    assert (seen, [handle.refresh().state for handle in handles]) == ([True, False], ["succeeded", "scheduled"])
    backend.db.clear()  # the time is over
    jobs.run_due()
    assert (seen, handles[1].refresh().state) == ([True, False, True], "succeeded")


@GUIDE.row("`Results`, `message.get_result(block=True)`", "`handle.wait(timeout=10)`; no middleware is needed")
def test_results(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    message = dramatiq.actor(lambda: 7, actor_name="seven", store_results=True).send()
    work(broker)
    handle = noting(seen).enqueue(7)
    jobs.run_all()
    assert message.get_result(block=True) == handle.wait(timeout=10) == 7


@GUIDE.row(
    "`pipeline([...])`, `group([...])` with callbacks",
    "`chain(…)`, `group(…).then(…)`: see [workflows](workflows.md)",
)
def test_workflows(broker: Any, jobs: Jobs, seen: list[Any]) -> None:
    step, end = dramatiq.actor(double), dramatiq.actor(seen.append, actor_name="end")
    dramatiq.pipeline([step.message(1), end.message()]).run()
    numbers = dramatiq.group([step.message(1), step.message(2)])
    numbers.add_completion_callback(end.message("done"))
    numbers.run()
    work(broker)
    assert seen == [2, "done"]
    assert workflows_here(jobs, seen) == [2, [2, 4]]


@GUIDE.row("`AdminMiddleware` of django_dramatiq", "`/admin/django_jobs/`")
def test_admin(on_django: dict[str, Any], jobs: Jobs, seen: list[Any], admin_client: Client) -> None:
    assert on_django["tasks"] == [["send", "enqueued"], ["send", "done"]]

    handle = noting(seen).enqueue(1)
    for state in ("queued", "succeeded"):
        assert admin_client.get("/admin/django_jobs/", follow=True).status_code == 200
        assert "moving.note" in admin_client.get(f"{DASHBOARD}job/default/{handle.id}/").text
        assert handle.refresh().state == state
        jobs.run_all()


@GUIDE.row("periodiq, APScheduler", '`@job(cron="…")`')
@pytest.mark.django_db
def test_cron() -> None:
    @ours(cron="30 3 * * *")
    def nightly() -> None: ...

    due = next_run("moving.nightly")
    assert (due.hour, due.minute) == (3, 30)


@GUIDE.row("`rundramatiq --processes 4 --threads 8`", "`runworkers --processes 4 --threads 8`")
def test_command_lines(on_django: dict[str, Any]) -> None:
    here = parsed("django_jobs", "runworkers", "--processes", "4", "--threads", "8")
    assert [here.processes, here.threads] == on_django["size"] == [4, 8]
