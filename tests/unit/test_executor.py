"""One claim to its outcome on the memory store, with middleware round it: no processes, no threads."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_jobs import signals
from django_jobs.context import JobContext, RunningJob, current_job
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import Discard, Fail, Retry, Snooze
from django_jobs.middleware import load, wrap
from django_jobs.registry import register, unregister
from django_jobs.stores.sqlite import SqliteStore
from django_jobs.values import Claim, NewJob, State
from django_jobs.worker.executor import Executor
from tests.conftest import Clock


class Bench:
    """Enqueues, claims and runs one job at a time."""

    def __init__(self, store: SqliteStore, clock: Clock, make_job: Callable[..., NewJob]) -> None:
        self.store, self.clock, self.make_job = store, clock, make_job
        self.names: list[str] = []

    def define(self, func: Callable[..., Any], **options: Any) -> None:
        definition = JobDefinition(func, name=f"bench.{func.__name__}", **options)
        register(definition)
        self.names.append(definition.name)

    def put(self, name: str, *args: Any, record: bytes | None = None, **options: Any) -> str:
        new = self.make_job(name=name, args=json.dumps([args, {}]).encode(), **options)
        self.store.enqueue("default", [new if record is None else new._replace(record=record)])
        return new.id

    def claim(self) -> Claim:
        (claim,) = self.store.claim("default", "w", 1, lease=30_000).claims
        return claim

    def run(self, func: Callable[..., Any] | None, *args: Any, middleware: Any = (), **options: Any) -> Any:
        name = options.pop("name", None)
        if func is not None:
            self.define(func, **options)
            name = f"bench.{func.__name__}"
        job_id = self.put(name, *args)
        Executor(middleware=middleware, clock=self.clock, close_connections=False).run(self.claim(), self.store)
        return self.store.get("default", job_id)


@pytest.fixture
def bench(memory_store: SqliteStore, clock: Clock, make_job: Callable[..., NewJob]) -> Iterator[Bench]:
    bench = Bench(memory_store, clock, make_job)
    yield bench
    for name in bench.names:
        unregister(name)


@pytest.mark.accepts("G13", "G18", "G52")
def test_a_job_runs_with_its_arguments_and_its_result_is_kept(bench: Bench) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    info = bench.run(add, 2, 3)
    assert (info.state, info.result) == (State.SUCCEEDED, b"5")


@pytest.mark.accepts("G50", "G53", "R15", "P16")
def test_a_job_that_raises_waits_for_its_retry_with_the_reason_in_its_log(bench: Bench) -> None:
    def boom() -> None:
        raise ValueError("no paper")

    info = bench.run(boom, backoff=[60])
    assert (info.state, info.failures) == (State.RETRY, 1)
    (attempt,) = info.attempts
    assert (attempt.outcome, attempt.error_type, attempt.error) == ("failed", "builtins.ValueError", "no paper")
    assert "in boom" in attempt.traceback


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), StopIteration(), GeneratorExit()])
def test_no_exception_of_a_job_is_the_end_of_the_worker(bench: Bench, error: BaseException) -> None:
    def leave() -> None:
        raise error

    async def aleave() -> None:
        raise error

    assert bench.run(leave).state is State.RETRY
    assert bench.run(aleave).state is State.RETRY


@pytest.mark.parametrize(
    ("signal", "state", "failures"),
    [
        (Retry(in_=5), State.RETRY, 1),
        (Snooze(in_=5), State.SCHEDULED, 0),
        (Discard("old"), State.CANCELLED, 0),
        (Fail("no"), State.DEAD, 1),
    ],
)
def test_function_and_middleware_may_decide_what_happens_next(
    bench: Bench, signal: Exception, state: State, failures: int
) -> None:
    def decide() -> None:
        raise signal

    def layer(get_next: Any) -> Any:
        def refuse(job: RunningJob) -> None:
            raise signal

        return refuse

    def fine() -> None:
        raise AssertionError("the middleware lets nothing through")

    for info in (bench.run(decide), bench.run(fine, middleware=[layer])):
        assert info.state is state
        if state is not State.CANCELLED:
            assert info.failures == failures


def test_a_result_that_cannot_be_stored_fails_the_job(bench: Bench) -> None:
    def opaque() -> object:
        return object()

    def huge() -> str:
        return "x" * 300_000

    for func in (opaque, huge):
        info = bench.run(func)
        assert info.state is State.RETRY
        assert "PayloadError" in info.attempts[0].error_type


@pytest.mark.accepts("G21", "G82")
def test_arguments_that_no_longer_fit_the_function_say_so(bench: Bench) -> None:
    def changed(order_id: int, *, currency: str) -> None:
        raise AssertionError

    info = bench.run(changed, 1)
    assert "cannot be called like this" in info.attempts[0].error
    assert info.state is State.RETRY


def test_a_type_error_inside_the_job_keeps_its_own_words(bench: Bench) -> None:
    def wrong() -> None:
        len(5)  # type: ignore[arg-type]

    assert "has no len()" in bench.run(wrong).attempts[0].error


@pytest.mark.accepts("G77")
def test_a_name_nobody_knows_is_parked_for_a_day_and_then_dead(bench: Bench) -> None:
    info = bench.run(None, name="deploy.me")
    assert (info.state, info.failures, info.parked_at) == (State.SCHEDULED, 0, bench.clock.now)

    bench.clock.advance(25 * 3600 * 1000)
    Executor(middleware=(), clock=bench.clock).run(bench.claim(), bench.store)
    info = bench.store.get("default", info.id)
    assert info is not None
    assert (info.state, info.attempts[-1].outcome) == (State.DEAD, "unknown_job")


def test_the_log_says_what_helps_a_name_nobody_knows(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.run(None, name="deploy.me")
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "No job is named 'deploy.me'." in line
    assert "old name in aliases" in line
    assert "restart workers that run older code" in line


def test_a_parked_job_runs_when_a_worker_knows_its_name(bench: Bench) -> None:
    def late() -> str:
        return "at last"

    job_id = bench.run(None, name="bench.late").id
    bench.define(late)
    bench.clock.advance(61_000)
    Executor(middleware=(), clock=bench.clock).run(bench.claim(), bench.store)

    info = bench.store.get("default", job_id)
    assert info is not None
    assert (info.state, info.result) == (State.SUCCEEDED, b'"at last"')


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"garbage",
        b"\xff\xfe\x00",
        b"-\nbench.x\n{]\n\n0\n\n[[],{}]",
        b"-\nbench.x\n\n\n0\n\n{}",
        b"-\nbench.x\n\n\n0\n\n[",
    ],
)
def test_what_cannot_be_read_is_dead_with_its_bytes_kept(bench: Bench, record: bytes) -> None:
    def x() -> None:
        raise AssertionError

    bench.define(x)
    job_id = bench.put("bench.x", record=record)
    Executor(middleware=(), clock=bench.clock).run(bench.claim(), bench.store)

    info = bench.store.get("default", job_id)
    assert info is not None
    assert (info.state, info.record, info.attempts[0].outcome) == (State.DEAD, record, "corrupt")


# -- the context -------------------------------------------------------------------


@pytest.mark.accepts("G17", "G24", "G05", "G16")
def test_middleware_run_in_order_and_leave_things_for_each_other_and_the_function(bench: Bench) -> None:
    seen: list[Any] = []

    def named(name: str) -> Any:
        def factory(get_next: Any) -> Any:
            def layer(job: RunningJob) -> Any:
                seen.append(f"{name} in {job.name} {job.attempt}/{job.max_attempts}")
                job.context.trail = [*getattr(job.context, "trail", []), name]
                try:
                    return get_next(job)
                finally:
                    seen.append(f"{name} out")

            return layer

        return factory

    def inner(ctx: JobContext, x: int) -> int:
        seen.append((ctx.context.trail, ctx.attempt, current_job() is ctx.job, ctx.token > 0, ctx.should_stop))
        return x

    info = bench.run(inner, 4, middleware=[named("a"), named("b")], takes_context=True, max_attempts=3)

    assert info.result == b"4"
    assert seen == [
        "a in bench.inner 1/10",
        "b in bench.inner 1/10",
        (["a", "b"], 1, True, True, False),
        "b out",
        "a out",
    ]
    assert current_job() is None


def test_a_middleware_may_answer_for_the_job(bench: Bench) -> None:
    def cached(get_next: Any) -> Any:
        return lambda job: "from the cache"

    def never() -> None:
        raise AssertionError

    assert bench.run(never, middleware=[cached]).result == b'"from the cache"'


def test_a_check_in_is_stored_while_the_job_runs(bench: Bench) -> None:
    seen: list[Any] = []

    def export(ctx: JobContext) -> None:
        ctx.checkin("half", 0.5)
        info = bench.store.get("default", ctx.job.id)
        assert info is not None
        seen.append(info.checkin)

    bench.run(export, takes_context=True)
    assert (seen[0]["message"], seen[0]["progress"]) == ("half", 0.5)


# -- async ---------------------------------------------------------------------------


def test_an_async_job_runs_and_knows_itself_everywhere(bench: Bench) -> None:
    def deep() -> str:
        job = current_job()
        assert job is not None
        return job.name

    async def fetch() -> list[str]:
        await asyncio.sleep(0)
        return [deep(), await sync_to_async(deep)(), *await asyncio.gather(*[asyncio.to_thread(deep)] * 1)]

    assert json.loads(bench.run(fetch).result) == ["bench.fetch"] * 3


def test_sync_middleware_wrap_an_async_job_from_its_start_to_its_end(bench: Bench) -> None:
    seen: list[str] = []

    def layer(get_next: Any) -> Any:
        def run(job: RunningJob) -> Any:
            seen.append("before")
            result = get_next(job)
            seen.append(f"after {result}")
            return result

        return run

    async def work() -> int:
        await asyncio.sleep(0)
        seen.append("work")
        return 1

    assert bench.run(work, middleware=[layer]).state is State.SUCCEEDED
    assert seen == ["before", "work", "after 1"]


def test_middleware_for_both_kinds_run_on_the_loop(bench: Bench) -> None:
    threads: list[str] = []

    def both(get_next: Any) -> Any:
        async def run(job: RunningJob) -> Any:
            threads.append(threading.current_thread().name)
            return await get_next(job)

        return run

    both.async_capable = both.sync_capable = True  # type: ignore[attr-defined]

    async def where() -> bool:
        return threading.current_thread().name == threads[0]

    assert bench.run(where, middleware=[both]).result == b"true"


def test_a_claim_may_be_run_inside_a_running_loop(bench: Bench) -> None:
    async def inside() -> str:
        await asyncio.sleep(0)
        return "fine"

    async def outer() -> Any:
        return bench.run(inside).result

    bench.store.close()
    assert asyncio.run(outer()) == b'"fine"'


# -- loading middleware -----------------------------------------------------------------


def only_async(get_next: Any) -> Any:
    return get_next


only_async.sync_capable = False  # type: ignore[attr-defined]
not_callable = 5


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tests.unit.nowhere.layer", "cannot be imported"),
        ("tests.unit.test_executor.not_callable", "is not callable"),
        ("tests.unit.test_executor.only_async", "async jobs only"),
    ],
)
def test_a_middleware_that_cannot_be_used_is_named(path: str, words: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=words) as caught:
        load([path])
    assert path in str(caught.value)


def test_a_middleware_that_returns_nothing_to_call_is_named() -> None:
    def forgetful(get_next: Any) -> Any:
        return None

    with pytest.raises(ImproperlyConfigured, match="forgetful"):
        wrap(lambda job: None, [forgetful])


def test_the_setting_says_which_middleware_there_are() -> None:
    given = {"STORE": "memory", "MIDDLEWARE": ["tests.unit.test_executor.only_async"]}
    with override_settings(DJANGO_JOBS=given), pytest.raises(ImproperlyConfigured):
        Executor()


# -- what the world is told ----------------------------------------------------------------


@pytest.fixture
def heard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    heard: list[tuple[str, dict[str, Any]]] = []
    names = [name for name in vars(signals) if name.startswith("job_")]

    def listener(told: str) -> Callable[..., None]:
        return lambda **given: heard.append((told, given))

    receivers = {name: listener(name) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver, weak=False)
    yield heard
    for name, receiver in receivers.items():
        getattr(signals, name).disconnect(receiver)


def test_signals_tell_the_story_of_a_job(bench: Bench, heard: list[tuple[str, dict[str, Any]]]) -> None:
    def fine() -> None:
        assert current_job() is not None

    def bad() -> None:
        raise ValueError

    def worst() -> None:
        raise Fail("x")

    def gone() -> None:
        raise Discard("x")

    for func in (fine, bad, worst, gone):
        bench.run(func)

    assert [name for name, _ in heard] == [
        "job_started",
        "job_succeeded",
        "job_started",
        "job_failed",
        "job_retried",
        "job_started",
        "job_failed",
        "job_dead",
        "job_started",
        "job_cancelled",
    ]
    for _, given in heard:
        assert given["sender"].name == given["name"] == given["job"].name
        assert given["queue"] == "default"
        assert given["attempt"] == 1


def test_a_receiver_that_fails_harms_nobody(bench: Bench) -> None:
    def receiver(**given: Any) -> None:
        raise RuntimeError

    def fine() -> None:
        return None

    signals.job_started.connect(receiver)
    signals.job_succeeded.connect(receiver)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging.getLogger("django.dispatch"), "disabled", True)
            assert bench.run(fine).state is State.SUCCEEDED
    finally:
        signals.job_started.disconnect(receiver)
        signals.job_succeeded.disconnect(receiver)


def test_each_end_is_one_line_without_the_arguments(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def pay(card: str) -> None:
        return None

    with caplog.at_level(logging.INFO, "django_jobs.worker"):
        info = bench.run(pay, "4111-1111")

    (record,) = caplog.records
    line = f"bench.pay {info.id} on default: succeeded, attempt 1, waited 0 ms, ran [0-9]+ ms"
    assert re.fullmatch(line, record.getMessage())
    assert record.job_id == info.id
    assert "4111" not in caplog.text


def test_an_end_after_the_claim_was_lost_changes_nothing_and_is_said_loudly(
    bench: Bench, caplog: pytest.LogCaptureFixture, heard: list[tuple[str, dict[str, Any]]]
) -> None:
    def slow() -> None:
        return None

    bench.define(slow)
    job_id = bench.put("bench.slow")
    claim = bench.claim()
    bench.clock.advance(31_000)
    bench.store.recover("default")

    Executor(middleware=(), clock=bench.clock).run(claim, bench.store)

    info = bench.store.get("default", job_id)
    assert info is not None
    assert info.state is State.QUEUED
    assert "claim was lost" in caplog.text
    assert [name for name, _ in heard] == ["job_started"]


def test_a_job_that_was_asked_to_stop_is_told_as_cancelled(memory_store, make_job):
    """The store decides between retry and cancelled; signals and the caller hear what it did."""
    from django_jobs import registry, signals
    from django_jobs.definition import JobDefinition
    from django_jobs.outcome import Cancelled
    from django_jobs.worker.executor import Executor

    heard = []

    def hear(signal, name):
        def receiver(**kwargs):
            heard.append(name)

        signal.connect(receiver, weak=False, dispatch_uid=name)
        return receiver

    registry.register(JobDefinition(_fails, name="tests.asked_to_stop"))
    hear(signals.job_cancelled, "cancelled")
    hear(signals.job_retried, "retried")
    try:
        memory_store.enqueue("default", [make_job("a", name="tests.asked_to_stop")])
        (claim,) = memory_store.claim("default", "w", 1, lease=30_000).claims
        memory_store.cancel("default", ["a"])
        attempted = Executor(middleware=(), close_connections=False).run(claim, memory_store)
    finally:
        signals.job_cancelled.disconnect(dispatch_uid="cancelled")
        signals.job_retried.disconnect(dispatch_uid="retried")
        registry.unregister("tests.asked_to_stop")
    assert isinstance(attempted.outcome, Cancelled)
    assert heard == ["cancelled"]


def _fails():
    raise ValueError("no")
