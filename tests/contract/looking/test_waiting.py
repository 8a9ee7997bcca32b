"""`wait()`: whoever waits is woken at the end of the job, and gets its answer whatever else ends meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from math import inf
from time import monotonic

import pytest

from django_jobs.core.values import State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import JobFailed, JobNotFound, StoreMisconfigured, StoreUnavailable
from django_jobs.stores import use_store
from tests.contract.acts import FAILED, Q, claim, complete, enqueue, finish, info, start
from tests.support.waiting import wait_until


@pytest.fixture
def used(store):
    use_store(store)
    return store


@pytest.fixture
def threads():
    with ThreadPoolExecutor(4) as pool:
        yield pool


def handle_on(id: str) -> JobHandle:
    return JobHandle(id, "tests.job", Q)


def is_known(store, *ids: str) -> bool:
    """Has the store been told that somebody waits for these?"""
    kept = store.__dict__.get("_listeners")
    if kept is None:
        return False
    return all(store.transport.command("HEXISTS", store.keys.of(Q)["waiters"], id) for id in ids)


def begin(threads, store, id: str, timeout: float = 20.0) -> Future:
    """Wait for it on another thread; the store has been told when this returns."""
    waiting = threads.submit(handle_on(id).wait, timeout)
    wait_until(lambda: is_known(store, id) or waiting.done(), "the store knows who waits")
    return waiting


def test_a_job_that_has_ended_is_answered_without_waiting(used, make_job):
    complete(used, *start(used, make_job("a")), result=b"42")
    assert handle_on("a").wait(0) == 42
    assert asyncio.run(handle_on("a").await_result(0)) == 42
    assert "_listeners" not in used.__dict__


def test_who_waited_has_the_whole_result_and_all_attempts(used, make_job, threads):
    (claimed,) = start(used, make_job("a"))
    used.retry(claimed, FAILED, 0)
    (again,) = claim(used)
    handle = handle_on("a")
    waiting = threads.submit(handle.wait, 20)
    wait_until(lambda: is_known(used, "a") or waiting.done(), "the store knows who waits")
    used.retry(again, FAILED._replace(attempt=2), 0)
    complete(used, *claim(used), result=b'"%b"' % (b"x" * 5000))
    assert waiting.result(10) == "x" * 5000
    assert [attempt.attempt for attempt in handle.attempts] == [1, 2]


def test_somebody_may_wait_for_longer_than_a_clock_can_count(used, make_job, threads):
    (claimed,) = start(used, make_job("a"))
    waiting = begin(threads, used, "a", inf)
    complete(used, claimed, result=b"42")
    assert waiting.result(10) == 42


@pytest.mark.timed
def test_an_end_wakes_who_waits(used, make_job, threads, pace):
    for n in range(3):
        id = f"job-{n}"
        (claimed,) = start(used, make_job(id))
        waiting = begin(threads, used, id)
        began = monotonic()
        complete(used, claimed, result=b"42")
        assert waiting.result(10) == 42
        pace.within(began, 0.1, "from the end to the answer")


@pytest.mark.parametrize("result", [b"", b"7"])
def test_what_somebody_waits_for_stays_while_thousands_end(make_store, make_job, clock, threads, result):
    store = make_store(history=10)
    use_store(store)
    (claimed,) = start(store, make_job("a"))
    waiting = begin(threads, store, "a")
    complete(store, claimed, result=result)
    for _ in range(2):
        complete(store, *start(store, *[make_job() for _ in range(1000)]))
        clock.advance(1)
    assert waiting.result(10) == (7 if result else None)
    assert handle_on("a").wait(0) == (7 if result else None)
    assert store.get(Q, "a") is not None, "it stays a minute, whatever it returned"
    clock.advance(59_998)
    complete(store, *start(store, *[make_job() for _ in range(20)]))
    store.prune(Q)
    assert store.get(Q, "a") is not None, "a minute has not passed"
    clock.advance(3)
    complete(store, *start(store, *[make_job() for _ in range(20)]))
    store.prune(Q)
    assert store.get(Q, "a") is None


@pytest.mark.timed
@pytest.mark.parametrize("end", ["bury", "discard", "cancel", "kill", "retry", "expire"])
def test_every_other_end_is_raised(used, make_job, clock, threads, pace, end):
    took = []
    for id in ("a", "b", "c"):  # one of them may meet a disk that is slow for a moment
        if end in ("cancel", "expire"):
            enqueue(used, make_job(id, expires_at=clock.now + 5))
        else:
            (claimed,) = start(used, make_job(id))
        waiting = begin(threads, used, id)
        began = monotonic()
        match end:
            case "cancel":
                used.cancel(Q, [id])
            case "expire":
                clock.advance(6)
                claim(used)
            case "bury":
                used.bury(claimed, FAILED)
            case "discard":
                used.discard(claimed, FAILED)
            case "kill":
                used.kill(Q, [id], "no")
            case "retry":
                used.cancel(Q, [id])
                used.retry(claimed, FAILED, 10)
        with pytest.raises(JobFailed, match=info(used, id).state):
            waiting.result(10)
        took.append(monotonic() - began)
    pace.took(min(took), 0.1, "from the end to the error")


def test_a_job_that_is_deleted_is_told_too(used, make_job, threads):
    enqueue(used, make_job("a"))
    waiting = begin(threads, used, "a")
    used.delete(Q, ["a"])
    with pytest.raises(JobNotFound):
        waiting.result(10)


@pytest.mark.timed
def test_a_time_limit_is_exact(used, make_job, pace):
    enqueue(used, make_job("a"))
    for _ in range(2):
        began = monotonic()
        with pytest.raises(TimeoutError, match=r"is queued after 0\.3 s"):
            handle_on("a").wait(0.3)
        assert monotonic() - began >= 0.3
        pace.within(began, 0.4, "a time limit of 0.3 s")
    began = monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(handle_on("a").await_result(0.3))
    pace.within(began, 0.4, "a time limit of 0.3 s")


def test_a_time_limit_holds_while_the_store_is_slow_to_listen(used, make_job, threads, monkeypatch):
    """Also of the second who waits: a thread listens already, and must be told of one job more."""
    enqueue(used, make_job("a"), make_job("b"))
    begin(threads, used, "a")
    told, goes_on, watch_ends = threading.Event(), threading.Event(), used.watch_ends

    def slow(*of: object) -> object:
        told.set()
        assert goes_on.wait(20)
        return watch_ends(*of)

    monkeypatch.setattr(used, "watch_ends", slow, raising=False)
    with pytest.raises(TimeoutError, match=r"b is queued after 0\.3 s"):
        threads.submit(handle_on("b").wait, 0.3).result(10)
    assert told.wait(10)
    waiting = threads.submit(handle_on("b").wait, 20)
    goes_on.set()
    used.cancel(Q, ["a", "b"])
    with pytest.raises(JobFailed):
        waiting.result(10)


def test_a_thousand_wait_at_once_and_hold_no_thread(used, make_job):
    ids = [f"job-{n}" for n in range(1000)]
    claims = start(used, *[make_job(id) for id in ids])

    async def all_of_them() -> list[object]:
        waiting = [asyncio.ensure_future(handle_on(id).await_result(60)) for id in ids]
        while not await asyncio.to_thread(is_known, used, *ids[-1:], ids[0]):
            await asyncio.sleep(0)
        await asyncio.to_thread(complete, used, *claims, result=b"1")
        return await asyncio.gather(*waiting)

    assert asyncio.run(all_of_them()) == [1] * 1000
    assert len([t for t in threading.enumerate() if t.name.startswith("ends of ")]) <= 1


def test_who_gives_up_disturbs_nobody(used, make_job):
    (claimed,) = start(used, make_job("a"))

    async def two() -> object:
        given_up, other = (asyncio.ensure_future(handle_on("a").await_result(20)) for _ in range(2))
        while not await asyncio.to_thread(is_known, used, "a"):
            await asyncio.sleep(0)
        given_up.cancel()
        with suppress(asyncio.CancelledError):
            await given_up
        await asyncio.to_thread(complete, used, claimed, result=b"1")
        return await other

    assert asyncio.run(two()) == 1


def test_nothing_is_left_of_those_who_waited(used, make_job, threads):
    (claimed,) = start(used, make_job("a"))
    waiting = begin(threads, used, "a")
    complete(used, claimed)
    assert waiting.result(10) is None
    assert not is_known(used, "a")


@pytest.mark.parametrize("error", [StoreUnavailable("It is away."), StoreMisconfigured("This user may only read.")])
def test_trouble_on_the_way_delays_the_answer_and_does_not_lose_it(used, make_job, threads, monkeypatch, error):
    """The store is away while the job ends; or its user may not do what listening needs."""
    (claimed,) = start(used, make_job("a"))
    failed = threading.Event()

    def fail(*_: object) -> None:
        if isinstance(error, StoreUnavailable) and info(used, "a").state is State.SUCCEEDED:
            monkeypatch.undo()
        failed.set()
        raise error

    monkeypatch.setattr(used, "next_ends", fail, raising=False)
    monkeypatch.setattr(used, "watch_ends", fail, raising=False)
    waiting = threads.submit(handle_on("a").wait, 20)
    assert failed.wait(10)
    complete(used, claimed, result=b"42")
    assert waiting.result(10) == 42


def test_a_copy_of_the_process_listens_by_itself(make_store, make_job, threads):
    store = make_store()
    use_store(store)
    first, second = start(store, make_job("a"), make_job("b"))
    waiting = begin(threads, store, "a")
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if handle_on("b").wait(20) == 2 else 2
        finally:
            os._exit(code)
    wait_until(lambda: is_known(store, "b"), "the copy waits")
    complete(store, second, result=b"2")
    complete(store, first, result=b"1")
    assert os.waitpid(child, 0)[1] == 0
    assert waiting.result(10) == 1


def test_a_failure_that_nobody_waited_for_is_as_it_was(used, make_job):
    finish(used, State.DEAD, make_job("a"))
    with pytest.raises(JobFailed):
        handle_on("a").wait(0)
