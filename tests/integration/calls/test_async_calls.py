"""Calls from event loops: many share a call of the store, and each is answered as a call from sync code would be."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from math import inf
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.db import transaction
from django.test import override_settings
from django.utils.functional import SimpleLazyObject, lazystr

from django_jobs import Batch, BatchClosed, DuplicateJob, InvalidArguments, JobHandle, QueueFull, aenqueue, job
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.exceptions import StoreFull, StoreUnavailable
from django_jobs.signals import job_enqueued
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows.batch import OpenBatch
from tests.integration.enqueueing import stored
from tests.integration.sample_jobs import receipt, strict, unique
from tests.integration.workers import WorkerSite, site
from tests.support.pools import ROOT

__all__ = ["site"]

pytestmark = pytest.mark.redis

MANY = 50
SETTINGS: dict[str, Any] = {
    "QUEUES": {"default": {}, "mail": {}, "small": {"MAX_LENGTH": 2}, "narrow": {"MAX_LENGTH": 1, "ON_FULL": "block"}}
}


def noted(*_: Any) -> int:
    """Note the thread on which this is called."""
    _threads.append(threading.get_ident())
    return 1


@job(name="async_calls.keyed", max_concurrency=2, concurrency_key=noted)
def keyed(number: int) -> None:
    """Its limit may need the database where it is enqueued."""


@job(name="async_calls.where")
def where() -> None:
    """Note the thread on which it runs."""
    noted()


@pytest.fixture(autouse=True)
def store(redis_store: Store) -> Iterator[Store]:
    """In use as that of a running site is: made, and not by the test kit."""
    with override_settings(DJANGO_JOBS=SETTINGS):
        use_store(redis_store)
        receipt.enqueue(0)
        yield redis_store
        use_store(None)


@pytest.fixture
def with_settings(store: Store) -> Iterator[Callable[..., None]]:
    """Change DJANGO_JOBS, and go on with the same store."""
    undo: list[Any] = []

    def change(**settings: Any) -> None:
        undo.append(override_settings(DJANGO_JOBS=SETTINGS | settings))
        undo[-1].enable()
        use_store(store)

    yield change
    for each in reversed(undo):
        each.disable()


def queued(store: Store, queue: str = "default") -> int:
    """Without the job of the fixture."""
    return store.stats([queue])[0].counts["queued"] - (queue == "default")


def all_of(calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await them at the same time; an error is an answer."""

    async def together() -> list[Any]:
        return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(together())


def calls_of(store: Store) -> int:
    """How many scripts the server has run."""
    return sum(each["calls"] for name, each in store.transport.client.info("commandstats").items() if "eval" in name)


def closed_port() -> Store:
    """A store that is away."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = Store.from_setting(f"redis://127.0.0.1:{free.getsockname()[1]}")
    away._registered = {"default": inf}
    return away


class NotToBeCopied(Exception):
    """Made from other arguments than it keeps."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class TestManyAtOnce:
    def test_they_share_calls_of_the_store_and_each_has_its_handle(self, store: Store) -> None:
        asyncio.run(receipt.aenqueue(1))
        before = calls_of(store)
        store.transport.client.client_pause(200)  # until all wait
        handles = all_of([receipt.aenqueue(number) for number in range(MANY)])
        assert calls_of(store) - before < 5
        assert [stored(handle).args for handle in handles] == [b"[[%d],{}]" % number for number in range(MANY)]
        assert {handle.state for handle in handles} == {"queued"}

    def test_each_may_have_another_queue_and_another_time(self, store: Store) -> None:
        now, mail, later = all_of(
            [receipt.aenqueue(1), receipt.using(queue="mail").aenqueue(2), receipt.aenqueue_in(60, 3)]
        )
        assert (queued(store), queued(store, "mail"), later.state) == (1, 1, "scheduled")
        assert (now.queue, mail.queue) == ("default", "mail")

    def test_a_full_queue_refuses_those_for_which_it_has_no_room(self, store: Store) -> None:
        receipt.using(queue="small").enqueue(0)
        answers = all_of([receipt.using(queue="small").aenqueue(number) for number in range(4)])
        assert [type(each) for each in answers] == [JobHandle] + [QueueFull] * 3
        assert len({id(each) for each in answers}) == 4
        assert queued(store, "small") == 2

    def test_a_call_that_waits_for_room_holds_up_nobody(self, store: Store) -> None:
        async def calls() -> list[JobHandle]:
            first = await receipt.using(queue="narrow").aenqueue(1)
            waiting = asyncio.create_task(receipt.using(queue="narrow", block_timeout=240).aenqueue(2))
            other = await receipt.aenqueue(3)
            assert not waiting.done()
            await asyncio.to_thread(store.delete, "narrow", [first.id])
            return [other, await waiting]

        assert [handle.state for handle in asyncio.run(calls())] == ["queued", "queued"]

    def test_an_equal_job_is_refused_and_its_caller_told_which_one_waits(self, store: Store) -> None:
        holder, second, other = all_of([unique.aenqueue(1), unique.aenqueue(1), unique.aenqueue(2)])
        assert (second.state, second.id) == ("duplicate", holder.id)
        assert (holder.state, other.state) == ("queued", "queued")
        first, *refused = all_of([strict.aenqueue(1) for _ in range(3)])
        assert (first.state, [type(each) for each in refused]) == ("queued", [DuplicateJob] * 2)
        assert refused[0] is not refused[1]

    def test_one_id_is_one_job(self, store: Store) -> None:
        handles = all_of([receipt.using(job_id="mine").aenqueue(7) for _ in range(3)])
        assert {handle.id for handle in handles} == {"mine"}
        assert queued(store) == 1

    def test_a_wrong_call_is_an_error_of_that_caller_alone(self, store: Store) -> None:
        right, wrong = all_of([receipt.aenqueue(1), receipt.aenqueue(no="such parameter")])
        assert (right.state, type(wrong)) == ("queued", InvalidArguments)

    def test_loops_in_several_threads_are_answered_each(self, store: Store) -> None:
        answers: dict[int, list[Any]] = {}

        def loop(first: int) -> None:
            answers[first] = all_of([receipt.aenqueue(first + number) for number in range(MANY)])

        threads = [threading.Thread(target=loop, args=(MANY * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        for first, handles in answers.items():
            assert [stored(handle).args for handle in handles] == [b"[[%d],{}]" % (first + n) for n in range(MANY)]
        assert queued(store) == 4 * MANY


class TestErrors:
    def test_a_store_that_is_away_tells_each_caller_the_id_of_its_job(self, store: Store) -> None:
        use_store(closed_port())
        errors = all_of([receipt.aenqueue(number) for number in range(MANY)])
        assert {type(each) for each in errors} == {StoreUnavailable}
        assert len({id(each) for each in errors}) == len({each.job_id for each in errors}) == MANY
        assert all(each.__cause__ is not None for each in errors)

    def test_and_serves_again_when_it_is_back(self, store: Store) -> None:
        use_store(closed_port())
        assert isinstance(all_of([receipt.aenqueue(1)])[0], StoreUnavailable)
        use_store(store)
        assert asyncio.run(receipt.aenqueue(1)).state == "queued"

    @pytest.mark.parametrize("error", [StoreFull("no room"), MemoryError("no memory"), NotToBeCopied(1, 2)])
    def test_whatever_goes_wrong_is_told_and_others_are_served_later(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        with monkeypatch.context() as broken:
            broken.setattr(store, "enqueue", fail)
            answers = all_of([receipt.aenqueue(number) for number in range(3)])
        assert [type(each) for each in answers] == [type(error)] * 3
        if not isinstance(error, NotToBeCopied):
            assert len({id(each) for each in answers}) == 3
            frames = [[frame.name for frame in traceback.extract_tb(each.__traceback__)] for each in answers]
            assert [names.count("asubmit") for names in frames] == [1] * 3
        assert asyncio.run(receipt.aenqueue(1)).state == "queued"


class TestCallersThatLeave:
    def test_a_cancelled_call_leaves_nothing_behind_and_others_are_answered(self, store: Store) -> None:
        said: list[Any] = []

        async def calls() -> JobHandle:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
            use_store(closed_port())  # the answer that nobody reads is an error
            left = [asyncio.create_task(receipt.aenqueue(number)) for number in range(3)]
            await asyncio.sleep(0)
            for each in left:
                each.cancel()
            assert [type(each) for each in await asyncio.gather(*left, return_exceptions=True)] == [
                asyncio.CancelledError
            ] * 3
            with pytest.raises(StoreUnavailable):
                await receipt.aenqueue(3)  # is sent after them
            use_store(store)
            return await receipt.aenqueue(4)

        assert asyncio.run(calls()).state == "queued"
        gc.collect()
        assert said == []

    @pytest.mark.parametrize("end", ["run", "close"])
    def test_a_loop_that_ends_before_the_answer_holds_up_no_other(self, store: Store, end: str) -> None:
        store.transport.client.client_pause(200)

        async def leave() -> asyncio.Task[Any]:
            task = asyncio.create_task(receipt.aenqueue(1))
            await asyncio.sleep(0)
            return task

        if end == "run":
            assert asyncio.run(leave()).cancelled()
        else:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending!"
            task = loop.run_until_complete(leave())
            loop.close()
            del task
        gc.collect()
        assert asyncio.run(receipt.aenqueue(2)).state == "queued"


class TestSyncCodeHasASay:
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("run", [asyncio.run, lambda view: async_to_sync(_awaited)(view)], ids=["loop", "sync"])
    def test_a_transaction_of_the_thread_for_sync_code_is_waited_for(self, store: Store, run: Any) -> None:
        async def view() -> None:
            atomic = transaction.atomic()
            await sync_to_async(atomic.__enter__)()
            handle = await receipt.aenqueue(7)
            at_once = await receipt.using(on_commit=False).aenqueue(8)
            assert (handle.state, at_once.state, queued(store)) == ("deferred", "queued", 1)
            await sync_to_async(atomic.__exit__)(None, None, None)
            assert (handle.state, queued(store)) == ("queued", 2)

        run(view())

    @pytest.mark.django_db(transaction=True)
    def test_a_transaction_of_another_thread_is_not(self, store: Store) -> None:
        with transaction.atomic():
            User.objects.count()
            assert asyncio.run(receipt.aenqueue(7)).state == "queued"
        assert queued(store) == 1

    @pytest.mark.django_db(transaction=True)
    def test_with_an_outbox_for_all_jobs_a_call_needs_no_store(
        self, store: Store, with_settings: Callable[..., None]
    ) -> None:
        with_settings(OUTBOX="always")
        use_store(closed_port())
        assert async_to_sync(receipt.aenqueue)(7).state == "deferred"

    def test_receivers_and_middleware_run_on_the_thread_for_sync_code(
        self, store: Store, with_settings: Callable[..., None]
    ) -> None:
        def receiver(**_: Any) -> None:
            noted()

        async def calls() -> int:
            job_enqueued.connect(receiver)
            try:
                await receipt.aenqueue(7)
            finally:
                job_enqueued.disconnect(receiver)
            with_settings(ENQUEUE_MIDDLEWARE=[f"{__name__}.noting"])
            await receipt.aenqueue(7)
            return await sync_to_async(threading.get_ident)()

        _threads.clear()
        assert [asyncio.run(calls())] * 2 == _threads

    def test_functions_that_make_keys_and_find_types_run_there_too(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, empty_registry: None
    ) -> None:
        followed = job(name="async_calls.followed", on_end="async_calls.elsewhere")(where.func)

        def resolve(name: str) -> JobDefinition | None:
            noted()
            return receipt if name == "async_calls.elsewhere" else None

        async def calls() -> int:
            await keyed.aenqueue(7)
            await followed.aenqueue()
            await unique.using(on_dead="async_calls.elsewhere").aenqueue(7)
            await aenqueue("async_calls.elsewhere", 7)
            return await sync_to_async(threading.get_ident)()

        monkeypatch.setattr(registry, "_resolvers", [])
        registry.add_resolver(resolve, frozenset)
        _threads.clear()
        thread = asyncio.run(calls())
        assert set(_threads) == {thread}
        assert len(_threads) >= 4

    def test_eager_jobs_run_on_the_thread_for_sync_code(self, with_settings: Callable[..., None]) -> None:
        with_settings(EAGER=True)

        async def calls() -> int:
            assert (await where.aenqueue()).state == "succeeded"
            return await sync_to_async(threading.get_ident)()

        _threads.clear()
        assert [asyncio.run(calls())] == _threads

    def test_an_open_batch_has_the_job(self, store: Store) -> None:
        with Batch() as batch:
            asyncio.run(receipt.aenqueue(7))
        assert batch.handle.counts["live"] == 1

    def test_a_batch_that_is_closed_refuses_each_call_by_itself(self, store: Store) -> None:
        with Batch() as batch:
            receipt.enqueue(7)
        batch.handle.cancel()
        with OpenBatch(batch.id):
            errors = all_of([receipt.aenqueue(number) for number in range(3)])
        assert [type(each) for each in errors] == [BatchClosed] * 3
        assert len({id(each) for each in errors}) == 3

    @pytest.mark.django_db(transaction=True)
    def test_an_argument_may_need_the_database(self, store: Store) -> None:
        User.objects.create(username="ada")
        lazy = SimpleLazyObject(lambda: User.objects.get(username="ada"))
        handle = async_to_sync(receipt.aenqueue)(lazy)  # type: ignore[arg-type]
        assert b'"$model"' in stored(handle).args

    def test_context_variables_are_those_of_the_caller(self, store: Store) -> None:
        tenant: ContextVar[str] = ContextVar("tenant")

        async def call(name: str) -> JobHandle:
            tenant.set(name)
            return await receipt.aenqueue(lazystr(_Named(tenant)))  # type: ignore[arg-type]

        handles = all_of([call("a"), call("b")])
        assert [stored(handle).args for handle in handles] == [b'[["a"],{}]', b'[["b"],{}]']

    def test_a_name_that_is_data_is_found(self, store: Store) -> None:
        assert asyncio.run(aenqueue("sample.receipt", 7)).name == "sample.receipt"


class TestProcesses:
    PROGRAM = """
import asyncio, json, os, sys
import django
django.setup()
from tests.integration.worker_project.jobs import add

async def calls(number):
    return [each.id for each in await asyncio.gather(*(add.aenqueue(n, n) for n in range(number)))]

add.enqueue(1, 1)
ids = asyncio.run(calls(20))
"""

    def run(self, site: WorkerSite, rest: str) -> Any:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", self.PROGRAM + rest],
            env=site.environment(), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, "")
        return json.loads(ran.stdout)

    def test_the_child_of_a_fork_calls_on_its_own(self, site: WorkerSite) -> None:
        program = """
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, json.dumps(asyncio.run(calls(20))).encode())
    sys.exit()
ids += asyncio.run(calls(20))
assert os.wait()[1] == 0
print(json.dumps(ids + json.loads(os.read(reader, 65_536))))
"""
        assert len(set(self.run(site, program))) == 60
        assert site.counts()["queued"] == 61

    def test_a_process_ends_without_a_word_while_calls_wait(self, site: WorkerSite) -> None:
        program = """
from django_jobs.stores import get_store

async def leave():
    get_store().transport.client.client_pause(300)
    task = asyncio.create_task(calls(20))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

asyncio.run(leave())
print(json.dumps(ids))
"""
        assert len(self.run(site, program)) == 20


class _Named:
    """Text that depends on who asks."""

    def __init__(self, of: ContextVar[str]) -> None:
        self.of = of

    def __str__(self) -> str:
        return self.of.get()


async def _awaited(call: Coroutine[Any, Any, None]) -> None:
    await call


#: The threads on which `noted` was called.
_threads: list[int] = []


def noting(get_next: Callable[[Any], JobHandle]) -> Callable[[Any], JobHandle]:
    """Enqueue middleware."""

    def middleware(new_job: Any) -> JobHandle:
        noted()
        return get_next(new_job)

    return middleware
