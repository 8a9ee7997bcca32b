"""The names of Celery do on django_jobs what Celery's documents say, or say what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import override_settings

from django_jobs import enqueue, get_job, operations, schedules
from django_jobs.compat import celery
from django_jobs.compat.celery import (
    AsyncResult,
    Celery,
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    Task,
    Unsupported,
    chain,
    chord,
    crontab,
    current_task,
    exceptions,
    group,
    schedule,
    send_task,
    shared_task,
    signals,
)
from django_jobs.compat.celery.app import OPTIONS
from django_jobs.compat.celery.calls import KNOWN
from django_jobs.compat.celery.conf import conf
from django_jobs.compat.celery.exceptions import TaskRevokedError
from django_jobs.compat.celery.missing import CALL_OPTIONS, EXCEPTIONS, NAMES, SIGNALS, TASK_OPTIONS
from django_jobs.compat.celery.schedules import entries
from django_jobs.core import registry
from django_jobs.exceptions import InvalidArguments, InvalidJob, JobNotFound, StoreUnavailable, UnknownQueue
from django_jobs.operations import error_inbox, relay
from django_jobs.schedules.entry import ScheduleEntry, check_entry
from django_jobs.stores import get_store
from django_jobs.testing import Jobs

QUEUES = {"STORE": "memory", "QUEUES": {"default": {}, "mail": {}, "slow": {}}}
#: What a time is rounded by, at most.
MOMENT = timedelta(milliseconds=1)


@shared_task(name="layer.mailed", queue="mail", priority=5, expires=60)
def mailed() -> None:
    """Has options of its own."""


class Watched(Task):
    """Writes down which hooks were called."""

    seen: list[str] = []

    def before_start(self, *_: Any) -> None:
        self.seen.append("before_start")

    def on_success(self, *_: Any) -> None:
        self.seen.append("on_success")

    def on_failure(self, *_: Any) -> None:
        self.seen.append("on_failure")

    def on_retry(self, *_: Any) -> None:
        self.seen.append("on_retry")

    def after_return(self, status: str, *_: Any) -> None:
        self.seen.append(f"after_return {status}")


@shared_task(name="layer.add")
def add(a: Any, b: Any) -> Any:
    return a + b


@shared_task(name="layer.total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@shared_task(name="layer.fail")
def fail(*_: Any) -> None:
    raise ValueError("no")


@shared_task(bind=True, name="layer.seen", base=Watched, max_retries=1)
def seen(self: Any, error: str | None = None) -> dict[str, Any]:
    if error:
        raise self.retry(exc=KeyError(error), countdown=5)
    assert current_task.name == self.name
    return {name: self.request.get(name) for name in ("id", "retries", "headers", "delivery_info", "called_directly")}


@shared_task(bind=True, name="layer.again", max_retries=2)
def again(self: Any) -> None:
    self.retry()


@shared_task(name="layer.auto", autoretry_for=(ValueError,), retry_backoff=10, retry_jitter=False, max_retries=None)
def auto(kind: str) -> None:
    raise {"ValueError": ValueError, "KeyError": KeyError}[kind]("x")


@shared_task(bind=True, name="layer.calls", max_retries=2)
def calls(self: Any) -> None:
    try:
        raise ConnectionError("bank")
    except ConnectionError as error:
        raise self.retry(exc=error, countdown=5) from error


@shared_task(bind=True, name="layer.makes", max_retries=2)
def makes(self: Any) -> None:
    self.retry(exc=ConnectionError("bank"), countdown=5)


@shared_task(name="layer.auto_calls", autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 2})
def auto_calls() -> None:
    raise ConnectionError("bank")


@shared_task(bind=True, name="layer.stops")
def stops(self: Any, how: str) -> None:
    raise {"ignore": Ignore(), "reject": Reject("no"), "requeue": Reject("later", requeue=True)}[how]


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    before = dict(conf._set)
    conf._set.clear()
    with override_settings(DJANGO_JOBS=QUEUES):
        yield
    conf._set.clear()
    conf._set.update(before)


def run(jobs: Jobs, turns: int = 6) -> None:
    for _ in range(turns):
        jobs.run_due()


# -- calls ----------------------------------------------------------------------------------


def test_delay_enqueues_and_the_result_is_read_by_id(jobs: Jobs) -> None:
    result = add.delay(1, b=2)
    assert (result.state, result.ready(), AsyncResult("none").state) == ("PENDING", False, "PENDING")
    jobs.run_all()
    assert AsyncResult(result.id, app=Celery("any"), task_name="any").get(timeout=1) == 3
    assert (result.status, result.successful(), result.name) == ("SUCCESS", True, "layer.add")
    assert add(1, 2) == 3


def test_a_task_that_is_not_known_is_waited_for_as_long_as_the_caller_says(jobs: Jobs) -> None:
    with pytest.raises(JobNotFound, match="With a timeout"):
        AsyncResult("none").get()
    with pytest.raises(celery.exceptions.TimeoutError, match="No task with this id is known"):
        AsyncResult("none").get(timeout=0.01)
    result = add.delay(1, b=2)
    with pytest.raises(celery.exceptions.TimeoutError, match=r"after 0.01 s\.$"):
        AsyncResult(result.id).get(timeout=0.01)


def test_every_option_of_a_call_reaches_the_job(jobs: Jobs) -> None:
    eta = datetime(2040, 1, 1, tzinfo=UTC)
    result = add.apply_async((1, 2), eta=eta, queue="mail", priority=3, task_id="mine", expires=eta + timedelta(1))
    job = jobs.assert_enqueued("layer.add", (1, 2), queue="mail", at=eta)
    assert result.id == job.id == "mine"
    later = add.apply_async((1, 2), countdown=60)
    jobs.assert_enqueued("layer.add", at=datetime.now(UTC) + timedelta(seconds=60))
    assert later.state == "PENDING"


def test_a_task_that_has_expired_is_revoked(jobs: Jobs) -> None:
    result = add.apply_async((1, 2), expires=10)
    jobs.travel(20)
    jobs.run_all()
    assert result.state == "REVOKED"
    with pytest.raises(exceptions.TaskRevokedError):
        result.get(timeout=1)


@pytest.mark.parametrize(("broker", "first"), [("redis://x", "low"), ("", "low"), ("amqp://x", "high")])
def test_priorities_have_the_direction_of_the_broker(jobs: Jobs, broker: str, first: str) -> None:
    ran: list[str] = []
    signals.task_prerun.connect(lambda **given: ran.append(given["task_id"]), dispatch_uid="ran")
    with override_settings(CELERY_BROKER_URL=broker):
        add.apply_async((1, 2), priority=9, task_id="high")
        add.apply_async((1, 2), priority=0, task_id="low")
    jobs.run_all()
    signals.task_prerun.disconnect(dispatch_uid="ran")
    assert ran[0] == first


def test_headers_travel_and_before_task_publish_may_add_some(jobs: Jobs) -> None:
    def stamp(sender: str, headers: dict[str, Any], **_: Any) -> None:
        headers["tenant"] = f"{sender} {headers['id']}"

    signals.before_task_publish.connect(stamp)
    result = seen.apply_async(headers={"a": 1})
    signals.before_task_publish.disconnect(stamp)
    jobs.run_all()
    assert result.get(timeout=1)["headers"] == {"a": 1, "tenant": f"layer.seen {result.id}"}


@pytest.mark.django_db(transaction=True)
def test_a_task_that_is_still_in_the_outbox_can_be_revoked_by_its_id(jobs: Jobs, monkeypatch: Any) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("Nobody listens.")

    monkeypatch.setattr(relay, "SPARE", 0.0)
    with override_settings(DJANGO_JOBS={**QUEUES, "OUTBOX": True}):
        with monkeypatch.context() as patch:
            patch.setattr(type(get_store()), "enqueue", refuse)
            with transaction.atomic():
                stays, goes = add.delay(1, 2), add.delay(3, 4)
        revoked = AsyncResult(goes.id)
        revoked.revoke()
        assert relay.relay() == 1
        run(jobs)
    assert (stays.state, revoked.state, AsyncResult(goes.id).state) == ("SUCCESS", "REVOKED", "PENDING")


@pytest.mark.django_db(transaction=True)
def test_a_call_in_a_transaction_waits_for_its_commit(jobs: Jobs) -> None:
    with transaction.atomic():
        add.delay(1, 2)
        assert add.delay_on_commit(3, 4) is None
        assert jobs.store.stats(["default"])[0].counts["queued"] == 0
    assert len(jobs.enqueued(name="layer.add")) == 2


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"countdown": 1, "eta": datetime.now(UTC)}, InvalidArguments, "exclude each other"),
        ({"routing_key": "x"}, Unsupported, "Use queue"),
        ({"wrong": 1}, TypeError, "no option 'wrong'"),
        ({"serializer": "pickle"}, Unsupported, "jobs are JSON"),
        ({"queue": "nobodys"}, UnknownQueue, "nobodys"),
        ({"priority": -1}, InvalidArguments, "priority"),
        ({"link": object()}, Unsupported, "another application"),
        ({"link": add.s(1), "task_id": "x"}, Unsupported, "do not go together"),
        ({"time_limit": 1, "soft_time_limit": 2}, ValueError, "less than or equal"),
    ],
)
def test_an_option_that_cannot_be_kept_is_refused(jobs: Jobs, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        add.apply_async((1, 2), **options)


def test_a_route_may_name_a_queue_that_a_pattern_covers(jobs: Jobs) -> None:
    settings = {**QUEUES, "QUEUES": {"default": {}, "tenant-*": {}}}
    with override_settings(DJANGO_JOBS=settings, CELERY_TASK_ROUTES={"layer.*": "tenant-7"}):
        result = add.delay(1, 2)
        assert [job.queue for job in jobs.enqueued()] == ["tenant-7"]
        jobs.run_all()
        assert result.get(timeout=1) == 3
    with override_settings(CELERY_TASK_ROUTES={"layer.*": "tenant-7"}), pytest.raises(UnknownQueue, match="tenant-7"):
        add.delay(1, 2)


def test_send_task_knows_the_tasks_of_this_project(jobs: Jobs) -> None:
    send_task("layer.add", (1, 2), queue="mail")
    jobs.assert_enqueued("layer.add", queue="mail")
    with pytest.raises(exceptions.NotRegistered, match="layer"):
        send_task("layer.ad")


def test_routes_choose_the_queue_unless_the_call_does(jobs: Jobs) -> None:
    routes = [{"layer.total": "slow"}, {"layer.*": {"queue": "mail"}}]
    with override_settings(CELERY_TASK_ROUTES=routes, CELERY_TASK_DEFAULT_QUEUE="slow"):
        total.delay([])
        add.delay(1, 2)
        add.apply_async((1, 2), queue="default")
    assert [job.queue for job in jobs.enqueued()] == ["default", "mail", "slow"]


# -- inside a task ------------------------------------------------------------------------------


def test_a_task_fails_once_unless_it_asks_for_more(jobs: Jobs) -> None:
    result = fail.delay()
    run(jobs)
    assert (result.state, len(result._seen().attempts)) == ("FAILURE", 1)
    with pytest.raises(ValueError, match="no"):
        result.get(timeout=1)
    assert isinstance(result.get(timeout=1, propagate=False), ValueError)
    assert "ValueError: no" in result.traceback


def test_retry_without_an_error_ends_with_max_retries_exceeded(jobs: Jobs) -> None:
    result, before = again.delay(), datetime.now(UTC)
    jobs.run_all()
    (waiting,) = jobs.enqueued()
    assert waiting.at is not None
    assert before - MOMENT <= waiting.at - timedelta(seconds=180) <= datetime.now(UTC) + MOMENT
    run(jobs)
    assert isinstance(result.result, MaxRetriesExceededError)
    assert len(result._seen().attempts) == 3


@pytest.mark.parametrize("task", ["layer.calls", "layer.makes", "layer.auto_calls"])
def test_a_failure_that_is_retried_is_one_error_and_is_searched_for_by_its_class(jobs: Jobs, task: str) -> None:
    result = send_task(task)
    jobs.run_all()
    assert isinstance(result.result, ConnectionError)
    assert len(operations.jobs("state:retry error:ConnectionError").jobs) == 1
    run(jobs)
    assert result.state == "FAILURE"
    (error,) = error_inbox.inbox().errors
    assert (error.type, error.seen.number) == ("ConnectionError", 3)
    assert "test_layer.py" in error.frame


def test_retry_called_outside_of_a_worker_raises_the_error(jobs: Jobs) -> None:
    with pytest.raises(KeyError):
        seen("x")
    with pytest.raises(Retry):
        again()


def test_autoretry_backs_off_for_ever_if_max_retries_is_none(jobs: Jobs) -> None:
    result, other = auto.delay("ValueError"), auto.delay("KeyError")
    began = jobs.now_ms()
    run(jobs, 12)
    assert (result.state, other.state) == ("RETRY", "FAILURE")
    pauses = [10 * 2**n for n in range(6)] + [600] * 5
    assert abs(jobs.now_ms() - began - 1000 * sum(pauses)) < 5000


@pytest.mark.parametrize(("how", "state"), [("ignore", "REVOKED"), ("reject", "FAILURE")])
def test_ignore_and_reject_end_a_task(jobs: Jobs, how: str, state: str) -> None:
    result = stops.delay(how)
    jobs.run_all()
    assert result.state == state


def test_the_request_says_what_the_worker_knows(jobs: Jobs) -> None:
    result = seen.apply_async(task_id="r", queue="mail", priority=4)
    jobs.run_all()
    said = result.get(timeout=1)
    assert (said["id"], said["retries"], said["called_directly"]) == ("r", 0, False)
    assert (said["delivery_info"]["routing_key"], said["delivery_info"]["priority"]) == ("mail", 4)
    with pytest.raises(AttributeError, match=re.escape("Use current_job().workflow")):
        _ = seen.request.root_id


@shared_task(bind=True, name="layer.shrinks", max_retries=5)
def shrinks(self: Any, numbers: list[int], by: int = 1) -> list[int]:
    if len(numbers) > 2:
        self.retry(args=[numbers[:-by]], kwargs={"by": 2}, countdown=0)
    return numbers


def test_a_retry_may_have_other_arguments(jobs: Jobs) -> None:
    result = shrinks.delay([1, 2, 3, 4, 5, 6])
    run(jobs)
    assert result.get(timeout=1) == [1]
    assert shrinks.apply(([1, 2, 3, 4, 5, 6],)).result == [1]


@shared_task(bind=True, name="layer.moves", max_retries=2)
def moves(self: Any) -> str:
    if self.request.delivery_info["routing_key"] != "slow":
        self.retry(queue="slow", countdown=0)
    return "slow"


def test_a_retry_may_be_in_another_queue(jobs: Jobs) -> None:
    result = moves.apply_async(queue="mail")
    run(jobs)
    assert result.get(timeout=1) == "slow"
    assert get_job(result.id).queue == "slow"


@pytest.mark.parametrize("options", [{"priority": 3}, {"throw": False}])
def test_a_retry_with_other_options_says_what_to_write(options: Any) -> None:
    @shared_task(bind=True, name="layer.changes")
    def changes(self: Any) -> None:
        self.retry(**options)

    try:
        assert isinstance(changes.apply().result, Unsupported)
    finally:
        registry.unregister("layer.changes")


class Calling(Task):
    """Has a `__call__` and an `apply_async` of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        user = kwargs.pop("user", None)
        return {"user": user, **super().__call__(*args, **kwargs)}

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        return super().apply_async(args, {**(kwargs or {}), "user": "ann"}, **options)


@shared_task(bind=True, name="layer.called", base=Calling, autoretry_for=(KeyError,))
def called(self: Any, **_: Any) -> dict[str, Any]:
    return {"id": self.request.id, "direct": self.request.called_directly}


@pytest.mark.parametrize("call", [called.delay, lambda: called.s().apply_async(), lambda: called.s().delay()])
def test_a_class_of_tasks_may_replace_call_and_apply_async(jobs: Jobs, call: Any) -> None:
    result = call()
    jobs.run_all()
    assert result.get(timeout=1) == {"user": "ann", "id": result.id, "direct": False}
    assert called(user="bob") == {"user": "bob", "id": None, "direct": True}


def test_signals_are_sent_round_a_task(jobs: Jobs) -> None:
    heard: list[str] = []
    names = ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry", "after_task_publish")
    for name in names:
        getattr(signals, name).connect(lambda name=name, **_: heard.append(name), dispatch_uid="heard")
    add.delay(1, 2)
    fail.delay()
    jobs.run_all()
    for name in names:
        getattr(signals, name).disconnect(dispatch_uid="heard")
    assert heard == [
        "after_task_publish", "after_task_publish", "task_prerun", "task_success", "task_postrun", "task_prerun",
        "task_failure", "task_postrun",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("raised", "state"),
    [(Ignore(), "IGNORED"), (Reject("no"), "REJECTED"), (SystemExit(3), None), (KeyError(), "FAILURE")],
)
def test_the_end_of_a_task_that_has_not_returned_is_never_told_as_a_success(
    jobs: Jobs, raised: BaseException, state: str | None
) -> None:
    heard: list[Any] = []

    class Told(Task):
        def after_return(self, status: str, *_: Any) -> None:
            heard.append(status)

    @shared_task(name="layer.raises", base=Told)
    def raises() -> None:
        raise raised

    signals.task_postrun.connect(lambda **given: heard.append(given["state"]), dispatch_uid="heard")
    raises.delay()
    jobs.run_all()
    signals.task_postrun.disconnect(dispatch_uid="heard")
    registry.unregister("layer.raises")
    assert heard == [*(["FAILURE"] if state == "FAILURE" else []), state]


def test_before_task_publish_names_the_queue_of_the_call(jobs: Jobs) -> None:
    heard: list[str] = []
    signals.before_task_publish.connect(lambda routing_key, **_: heard.append(routing_key), dispatch_uid="heard")
    add.delay(1, 2)
    add.apply_async((1, 2), queue="slow")
    mailed.delay()
    signals.before_task_publish.disconnect(dispatch_uid="heard")
    assert heard == ["default", "slow", "mail"]


def test_a_task_has_the_name_of_its_function_and_the_function_itself() -> None:
    assert (add.__name__, add.__wrapped__(1, 2), seen.__name__) == ("add", 3, "seen")  # type: ignore[attr-defined]


def test_a_time_that_was_given_as_text_is_what_the_request_shows(jobs: Jobs) -> None:
    @shared_task(bind=True, name="layer.times")
    def times(self: Any) -> Any:
        return self.request.eta, self.request.expires

    result = times.apply_async(eta="2020-01-01T00:00:00+00:00", expires="2999-01-01T00:00:00+00:00")
    jobs.run_all()
    registry.unregister("layer.times")
    assert result.get(timeout=1) == ("2020-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00")


def test_a_task_must_not_wait_for_another(jobs: Jobs) -> None:
    @shared_task(name="layer.waits")
    def waits() -> None:
        add.delay(1, 2).get()

    try:
        result = waits.delay()
        jobs.run_all()
        assert isinstance(result.result, RuntimeError)
    finally:
        registry.unregister("layer.waits")


# -- canvas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    ("made", "result"),
    [
        (lambda: add.s(1, 2) | add.s(3) | add.si(5, 5), 10),
        (lambda: chain([add.s(1, 2), add.s(3)]), 6),
        (lambda: group(add.s(n, n) for n in range(3)), [0, 2, 4]),
        (lambda: group(add.s(1, 1), add.s(2, 2)) | total.s(), 6),
        (lambda: chord([add.s(1, 1), add.s(2, 2) | add.s(1)], total.s()), 7),
        (lambda: add.s(1, 1) | group(add.s(1), add.s(2)) | total.s(), 7),
        (lambda: add.starmap([(1, 2), (3, 4)]), [3, 7]),
        (lambda: total.map([[1, 2], [3]]), [3, 3]),
        (lambda: add.chunks([(1, 2), (3, 4), (5, 6)], 2), [[3, 7], [11]]),
        (lambda: add.signature((2,)).clone((1,)), 3),
    ],
)
def test_a_canvas_gives_what_it_gives_in_celery(jobs: Jobs, made: Any, result: Any, eager: bool) -> None:
    with override_settings(CELERY_TASK_ALWAYS_EAGER=eager):
        enqueued = made().apply_async()
    run(jobs)
    assert enqueued.get(timeout=1) == result


def test_a_group_is_revoked_and_counted(jobs: Jobs) -> None:
    result = group(add.s(1, 2), add.s(2, 3))()
    result.revoke()
    assert (result.ready(), result.completed_count(), len(result)) == (True, 0, 2)


@pytest.mark.parametrize("made", [lambda: add.s(1, 2) | add.s(3), lambda: chord([add.s(1, 2)], total.s())])
def test_a_task_whose_turn_has_not_come_can_be_revoked(jobs: Jobs, made: Any) -> None:
    last = made().apply_async()
    AsyncResult(last.id).revoke()
    run(jobs)
    before = last.parent if isinstance(last.parent, AsyncResult) else last.parent[0]
    assert (before.get(timeout=1), last.state, AsyncResult(last.id).ready()) == (3, "REVOKED", True)
    assert isinstance(last.result, TaskRevokedError)
    with pytest.raises(TaskRevokedError, match=last.id):
        last.get(timeout=1)


def test_an_id_of_ones_own_inside_a_canvas_is_refused_with_what_to_write(jobs: Jobs) -> None:
    with pytest.raises(Unsupported, match="Leave it out"):
        chain(add.s(1, 2).set(task_id="x"), add.s(1)).apply_async()


# -- eager --------------------------------------------------------------------------------------------


def test_always_eager_runs_at_once_inside_a_transaction_too(db: None) -> None:
    with override_settings(CELERY_TASK_ALWAYS_EAGER=True), transaction.atomic():
        assert add.delay(1, 2).get() == 3
        assert again.delay().state == "FAILURE"
        assert fail.apply_async(link_error=total.si([1])).state == "FAILURE"
        with override_settings(CELERY_TASK_EAGER_PROPAGATES=True), pytest.raises(ValueError, match="no"):
            fail.delay()


def test_apply_runs_here_and_throws_on_demand() -> None:
    assert add.apply((1, 2)).result == 3
    assert add.s(1, 2).apply().get() == 3
    with pytest.raises(ValueError, match="no"):
        fail.apply(throw=True)


# -- definitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate_limit": "10/m"}, "max_concurrency"),
        ({"serializer": "pickle"}, "jobs are JSON"),
        ({"color": "red"}, "base="),
        ({"routing_key": "x"}, "Use queue"),
    ],
)
def test_an_option_of_a_task_that_is_not_kept_is_refused_at_import(options: Any, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        shared_task(name="layer.refused", **options)(lambda: None)
    assert not registry.knows("layer.refused")


def test_a_name_that_is_used_twice_is_refused() -> None:
    def other() -> None: ...

    with pytest.raises(InvalidJob, match=re.escape("layer.add")):
        shared_task(name="layer.add")(other)


def test_an_application_has_tasks_classes_and_periodic_tasks() -> None:
    app = Celery("shop", broker="redis://x")
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.autodiscover_tasks()

    class Report(app.Task):  # type: ignore[misc, name-defined]
        name = "layer.report"

        def run(self, day: int) -> int:
            return day

    try:
        report = app.register_task(Report())
        assert app.tasks["layer.report"] is report
        app.add_periodic_task(crontab(hour=7, minute=30), report.s(1), name="daily")
        assert entries()[0].cron == "30 7 * * *"
        with pytest.raises(Unsupported):
            app.config_from_object("shop.celeryconfig")
    finally:
        registry.unregister("layer.report")


def test_an_application_may_have_a_class_of_tasks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Celery, "every", [])
    app = Celery("shop", task_cls=f"{__name__}:Watched")

    @app.task(name="layer.of_class")
    def of_class() -> None: ...

    @shared_task(name="layer.shared_of_class")
    def shared_of_class() -> None: ...

    @app.task(name="layer.other_class", base=Calling)
    def other_class() -> None: ...

    try:
        assert isinstance(of_class, Watched)
        assert isinstance(shared_of_class, Watched)
        assert isinstance(other_class, Calling)
        assert app.Task is Watched
        app.Task = Calling
        assert issubclass(app.Task, Calling)
    finally:
        for name in ("layer.of_class", "layer.shared_of_class", "layer.other_class"):
            registry.unregister(name)
    with pytest.raises(Unsupported, match="loader"):
        Celery("other", loader="x")


@pytest.mark.parametrize(
    "setting", ["TASK_SERIALIZER", "ACCEPT_CONTENT", "TASK_ANNOTATIONS", "TASK_DEFAULT_RATE_LIMIT"]
)
def test_a_setting_that_is_not_kept_is_refused(setting: str) -> None:
    value = ["pickle"] if setting == "ACCEPT_CONTENT" else "pickle"
    with override_settings(**{f"CELERY_{setting}": value}), pytest.raises(ImproperlyConfigured):
        conf.check()


def test_the_schedule_of_beat_becomes_schedules(jobs: Jobs) -> None:
    written = {
        "a": {"task": "layer.add", "schedule": crontab(minute="*/15", day_of_week="mon-fri"), "args": (1, 2)},
        "b": {"task": "layer.add", "schedule": 30.0, "args": (1, 2), "options": {"queue": "mail", "time_limit": 9}},
        "c": {"task": "layer.add", "schedule": timedelta(hours=6), "args": (1, 2)},
    }
    with override_settings(CELERY_BEAT_SCHEDULE=written, CELERY_TIMEZONE="Europe/Paris"):
        made = {entry.label: entry for entry in entries()}
    assert {key: entry.cron for key, entry in made.items()} == {
        "a": "*/15 * * * mon-fri", "b": "@every 30s", "c": "@every 21600s",
    }  # fmt: skip
    assert made["a"].timezone == "Europe/Paris"
    called = registry.get(made["b"].job).task.delay(*made["b"].args)
    jobs.run_all()
    assert (called.state, AsyncResult(f"{called.id}.call").queue) == ("SUCCESS", "mail")


def test_a_crontab_takes_the_names_of_days_and_months_as_celery_does() -> None:
    when = crontab(minute=0, hour=3, day_of_week="sunday, Tues,thursday-saturday", month_of_year="january-march")
    assert when.cron == "0 3 * jan-mar sun,Tue,thu-sat"
    check_entry(ScheduleEntry(id="x", job="layer.mailed", cron=when.cron, args=[], kwargs={}))


def test_options_of_an_entry_of_beat_become_fields_of_the_schedule() -> None:
    options = {"queue": "mail", "priority": 3, "expires": timedelta(minutes=2)}
    written = {
        "a": {"task": "layer.add", "schedule": 30.0, "args": (1, 2), "options": options},
        "b": {"task": "layer.add", "schedule": 30.0, "args": (1, 2), "options": {"expires": 9.5}},
    }
    routes = {"layer.*": {"queue": "slow", "priority": 4}}
    with override_settings(CELERY_BEAT_SCHEDULE=written, CELERY_TASK_ROUTES=routes, DJANGO_JOBS=QUEUES):
        found = entries()
        for each in found:
            check_entry(each)
    made = [(each.job, each.queue, each.priority, each.expires_in) for each in found]
    assert made == [("layer.add", "mail", -3, 120), ("layer.add", "slow", -4, 9.5)]


def test_a_task_of_the_schedule_has_the_options_of_a_call() -> None:
    """Its decorator, the routes and the default queue count for it, too, whatever the entry has of its own."""
    written = {
        "plain": {"task": "layer.mailed", "schedule": 30.0},
        "own": {"task": "layer.mailed", "schedule": 30.0, "options": {"expires": 9}},
        "more": {"task": "layer.mailed", "schedule": 30.0, "options": {"headers": {"a": 1}}},
        "routed": {"task": "layer.total", "schedule": 30.0, "args": ([1, 2],)},
        "rest": {"task": "layer.add", "schedule": 30.0, "args": (1, 2)},
        "unknown": {"task": "layer.gone", "schedule": 30.0},
    }
    settings: dict[str, Any] = {"CELERY_TASK_ROUTES": {"layer.total": "slow"}, "CELERY_TASK_DEFAULT_QUEUE": "mail"}
    with override_settings(CELERY_BEAT_SCHEDULE=written, DJANGO_JOBS=QUEUES, **settings):
        made = {each.label: (each.queue, each.priority, each.expires_in) for each in entries()}
    assert made == {
        "plain": ("mail", -5, 60), "own": ("mail", -5, 9), "more": ("", None, None), "routed": ("slow", None, None),
        "rest": ("mail", None, None), "unknown": ("mail", None, None),
    }  # fmt: skip


def test_a_run_of_the_schedule_makes_its_call_however_long_its_name_is(jobs: Jobs) -> None:
    id = f"cron:celery:{'k' * 102}:1700000000000"
    assert len(id) == 128
    with override_settings(DJANGO_JOBS=QUEUES):
        call = registry.get("celery.beat").task.apply_async(("layer.mailed", [], {}, {"headers": {"a": 1}}), task_id=id)
        jobs.run_all()
        made = AsyncResult(f"{id}.call"[-128:])
        assert (call.state, made.state, made.queue) == ("SUCCESS", "SUCCESS", "mail")


def test_a_task_that_is_enqueued_as_a_job_has_the_queue_of_its_decorator(jobs: Jobs) -> None:
    with override_settings(DJANGO_JOBS=QUEUES):
        mailed.definition.enqueue()
        entry = ScheduleEntry("db:1", "layer.mailed", "@every 30s", source="database")
        schedules.run_now(entry)
        found = [(each.queue, each.priority) for each in jobs.enqueued()]
    assert found == [("mail", -5)] * 2


def test_a_task_that_is_enqueued_by_name_is_placed_and_expires_as_a_call_of_it(jobs: Jobs) -> None:
    def router(name: str, args: Any, kwargs: Any, options: Any, task: Any = None) -> Any:
        return "slow" if list(args) == [[7]] else None

    with override_settings(DJANGO_JOBS=QUEUES, CELERY_TASK_ROUTES=[router, {"layer.add": {"queue": "mail"}}]):
        entry = ScheduleEntry("db:1", "layer.total", "@every 30s", args=[[7]], source="database")
        by_name = [enqueue("layer.total", [7]), enqueue("layer.total", [8]), enqueue("layer.add", 1, 2)]
        assert [each.queue for each in by_name] == ["slow", "default", "mail"]
        assert (schedules.run_now(entry).queue, schedules.queue_of(entry)) == ("slow", "slow")
        job = total.definition
        assert (job.enqueue([7]).queue, job.using(queue="mail").enqueue([7]).queue) == ("slow", "mail")
        expiring = replace(entry, job="layer.mailed", args=())
        late = [enqueue("layer.mailed"), mailed.definition.enqueue(), schedules.run_now(expiring)]
        jobs.travel(61)
        jobs.run_all()
        assert [each.refresh().state for each in late] == ["expired"] * 3


@pytest.mark.parametrize(
    "when",
    [
        schedule(0.5),
        schedule(90.5),
        schedule(float("nan")),
        schedule(float("inf")),
        crontab(day_of_month=1, day_of_week=1),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(when: Any) -> None:
    with pytest.raises(Unsupported):
        _ = when.cron


def test_an_entry_of_beat_may_leave_its_arguments_out_and_not_its_task() -> None:
    plain = {"task": "layer.mailed", "schedule": 30.0, "args": None, "kwargs": None, "options": None}
    with override_settings(CELERY_BEAT_SCHEDULE={"plain": plain}):
        assert [(each.job, each.args, each.kwargs) for each in entries()] == [("layer.mailed", [], {})]
    for task in ({}, {"task": mailed}):
        bad = {"schedule": 30.0, **task}
        said = r"SCHEDULE\['bad'\]: task=.*: write the name of a task"
        with override_settings(CELERY_BEAT_SCHEDULE={"bad": bad}), pytest.raises(Unsupported, match=said):
            entries()


@pytest.mark.parametrize(("module", "names"), [(celery, NAMES), (exceptions, EXCEPTIONS), (signals, SIGNALS)])
def test_a_name_that_is_not_there_says_what_to_write(module: Any, names: Any) -> None:
    for name in names:
        with pytest.raises(ImportError, match=re.escape(names[name])):
            getattr(module, name)
    with pytest.raises(AttributeError):
        _ = module.nothing_of_celery


#: What Celery's pages "Calling Tasks", "Tasks", "Canvas", "Signals", "Periodic Tasks" and "Testing" import or name.
DOCUMENTED = (
    "AbortableTask DatabaseScheduler DjangoTask PersistentScheduler Service StampingVisitor TaskPool WorkController "
    "celery_worker_pool depends_on_current_app use_celery_app_trap "
    "AsyncResult Celery Context GroupResult Ignore MaxRetriesExceededError PeriodicTask Reject Request Retry Signature "
    "SoftTimeLimitExceeded Task celery_app celery_config celery_enable_logging celery_includes celery_parameters "
    "celery_session_app celery_session_worker celery_worker celery_worker_parameters chain chord chunks crontab "
    "current_app current_task get_logger get_task_logger group map maybe_signature schedule send_task shared_task "
    "signature solar starmap start_worker states uuid "
    # What celery.result, celery.schedules and celery.states export beside these.
    "EagerResult ResultBase ResultSet result_from_tuple ParseException crontab_parser maybe_schedule PENDING RECEIVED "
    "STARTED SUCCESS FAILURE REVOKED RETRY READY_STATES UNREADY_STATES EXCEPTION_STATES PROPAGATE_STATES"
)
DOCUMENTED_SIGNALS = (
    "after_setup_logger after_setup_task_logger after_task_publish beat_embedded_init beat_init before_task_publish "
    "celeryd_after_setup celeryd_init eventlet_pool_apply eventlet_pool_postshutdown eventlet_pool_preshutdown "
    "eventlet_pool_started heartbeat_sent import_modules setup_logging task_failure task_internal_error task_postrun "
    "task_prerun task_received task_rejected task_retry task_revoked task_sent task_success task_unknown "
    "user_preload_options worker_before_create_process worker_init worker_process_init worker_process_shutdown "
    "worker_ready worker_shutdown worker_shutting_down"
)
DOCUMENTED_ERRORS = (
    "ChordError Ignore IncompleteStream MaxRetriesExceededError Reject Retry SoftTimeLimitExceeded TaskRevokedError "
    "TimeoutError TimeLimitExceeded WorkerLostError "
    # What celery.exceptions exports beside these.
    "AlreadyRegistered AlwaysEagerIgnored BackendError BackendGetMetaError BackendStoreError CDeprecationWarning "
    "CPendingDeprecationWarning CeleryCommandException CeleryError CeleryWarning DuplicateNodenameWarning "
    "DuplicateTaskNameWarning FixupWarning ImproperlyConfigured InvalidTaskError NotConfigured NotRegistered "
    "OperationalError QueueNotFound SecurityError SecurityWarning TaskError TaskPredicate Terminated WorkerShutdown "
    "WorkerTerminate reraise"
)


@pytest.mark.parametrize(
    ("module", "names", "missing"),
    [
        (celery, DOCUMENTED, NAMES),
        (signals, DOCUMENTED_SIGNALS, SIGNALS),
        (exceptions, DOCUMENTED_ERRORS, EXCEPTIONS),
    ],
)
def test_every_name_of_celerys_pages_is_there_or_says_what_to_write(module: Any, names: str, missing: Any) -> None:
    assert set(names.split()) <= {*module.__all__, *missing}


#: Attributes that these pages name, of what each of these is.
DOCUMENTED_ATTRIBUTES = {
    "task": (
        "MaxRetriesExceededError OperationalError acks_late after_return apply apply_async autoretry_for "
        "before_start chunks compression default_retry_delay delay delay_on_commit dont_autoretry_for expires "
        "ignore_result map max_retries name on_failure on_retry on_success priority queue request retry "
        "retry_backoff retry_backoff_max retry_jitter retry_kwargs run s send_events serializer si signature "
        "soft_time_limit starmap store_errors_even_if_ignored throws time_limit track_started trail typing "
        "update_state Request Strategy add_to_chord backend replace request_stack subtask"
    ),
    "request": (
        "args called_directly delivery_info eta expires get headers hostname id ignore_result is_eager kwargs "
        "retries soft_time_limit task time_limit timelimit callbacks chain chord correlation_id errbacks "
        "group origin parent_id properties replaced_task_nesting reply_to root_id stamped_headers stamps utc"
    ),
    "signature": (
        "apply apply_async args clone delay immutable kwargs link link_error name on_error options set "
        "set_immutable task type freeze id replace stamp"
    ),
    "chain": "apply apply_async clone delay link link_error on_error tasks freeze stamp",
    "group": "apply apply_async clone delay link link_error on_error skew tasks freeze stamp",
    "chord": "apply apply_async body clone delay link link_error on_error tasks freeze stamp",
    "result": (
        "failed forget get id info name parent queue ready result revoke state status successful task_id "
        "traceback wait args backend children collect date_done get_leaf graph iterdeps kwargs retries then "
        "worker"
    ),
    "group result": (
        "completed_count failed forget get id join parent ready restore results revoke save successful "
        "waiting as_tuple children iter_native join_native"
    ),
    "app": (
        "AsyncResult Task add_periodic_task autodiscover_tasks conf config_from_object control finalize main "
        "on_after_configure on_after_finalize register_task send_task signature task tasks backend "
        "gen_task_name set_default steps user_options worker_main"
    ),
}
#: Options that these pages name, of the decorator and of a call.
DOCUMENTED_OPTIONS = {
    "decorator": (
        "acks_late autoretry_for base bind compression default_retry_delay dont_autoretry_for expires "
        "ignore_result max_retries name priority queue reject_on_worker_lost retry_backoff retry_backoff_max "
        "retry_jitter retry_kwargs serializer soft_time_limit store_errors_even_if_ignored throws time_limit "
        "track_started trail typing acks_on_failure_or_timeout backend pydantic pydantic_context "
        "pydantic_dump_kwargs pydantic_strict rate_limit"
    ),
    "call": (
        "args compression countdown eta expires headers ignore_result kwargs link link_error priority queue "
        "retry serializer soft_time_limit task_id time_limit add_to_parent connection delivery_mode exchange "
        "producer retry_policy routing_key shadow stamped_headers"
    ),
}


@pytest.mark.parametrize("kind", DOCUMENTED_ATTRIBUTES)
def test_every_attribute_of_celerys_pages_is_there_or_says_what_to_write(kind: str, jobs: Jobs) -> None:
    part = add.s(1, 2)
    thing: Any = {
        "task": add, "request": add.request, "signature": part, "chain": chain(part, part), "group": group(part),
        "chord": chord(part, part), "result": AsyncResult("x"), "group result": celery.GroupResult("x", []),
        "app": Celery("any"),
    }[kind]  # fmt: skip
    said: dict[str, str] = {}
    for name in DOCUMENTED_ATTRIBUTES[kind].split():
        try:
            getattr(thing, name)
        except (AttributeError, Unsupported) as error:
            said[name] = str(error)
    assert {name: text for name, text in said.items() if not re.search(r"[.:] [A-Za-z`(]", text)} == {}


def test_every_option_of_celerys_pages_is_there_or_says_what_to_write() -> None:
    decorator, call = (set(DOCUMENTED_OPTIONS[each].split()) for each in ("decorator", "call"))
    assert decorator <= OPTIONS | {"name", "bind", "base"} | TASK_OPTIONS.keys()
    assert call <= KNOWN | {"args", "kwargs"} | CALL_OPTIONS.keys()


def test_skew_gives_the_tasks_of_a_group_times_of_their_own(jobs: Jobs) -> None:
    before = datetime.now(UTC)
    group(add.s(n, n) for n in range(4)).skew(start=10, stop=30, step=10).apply_async()
    after = datetime.now(UTC)
    for waiting, delay in zip(jobs.enqueued(), (10, 20, 30, 30), strict=True):
        assert waiting.at is not None
        assert before - MOMENT <= waiting.at - timedelta(seconds=delay) <= after + MOMENT


def test_an_attribute_of_a_result_that_is_not_there_says_what_to_write() -> None:
    with pytest.raises(AttributeError, match="chord"):
        AsyncResult("x").collect()
    with pytest.raises(Unsupported, match="Batch"):
        _ = AsyncResult("x").children


def test_signals_stand_in_the_one_module_too() -> None:
    for name in signals.__all__:
        assert getattr(celery, name) is getattr(signals, name)


def test_every_name_that_is_offered_is_there() -> None:
    for module in (celery, exceptions, signals):
        for name in module.__all__:
            assert getattr(module, name) is not None
