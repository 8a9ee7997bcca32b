"""Receivers of signals do not hold up what the process is for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from threading import Event, current_thread
from typing import Any

import pytest

from django_jobs.conf import QueueSettings
from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Succeeded
from django_jobs.core.values import Lane, NewJob
from django_jobs.events import receivers as module
from django_jobs.events.receivers import SignalThread
from django_jobs.events.signal_events import SignalEvent
from django_jobs.signals import job_expired, job_succeeded, worker_stopped
from django_jobs.stores.redis import Store
from django_jobs.worker.child.fetcher import Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.child.settler import Settler
from tests.conftest import Clock
from tests.unit.execution.workbench import bench

__all__ = ["bench"]


class Receiver:
    """Hangs until it is let go."""

    def __init__(self) -> None:
        self.go, self.called = Event(), Event()
        self.heard: list[str] = []
        self.thread = ""

    def __call__(self, job_id: str, **_: Any) -> None:
        self.called.set()
        self.thread = current_thread().name
        self.go.wait(10)
        self.heard.append(job_id)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    job_succeeded.connect(receiver)
    yield receiver
    receiver.go.set()
    job_succeeded.disconnect(receiver)


def signal_event(id: str) -> SignalEvent:
    return SignalEvent("job_succeeded", "job", "default", id, 1, {})


def test_a_receiver_that_hangs_does_not_hold_up_the_ends_of_jobs(
    redis_store: Store, make_job: Callable[..., NewJob], receiver: Receiver
) -> None:
    settler = Settler(redis_store)
    redis_store.enqueue("default", [make_job(str(n)) for n in range(5)])
    claims = redis_store.claim("default", "w", 5, lease=30_000).claims
    for claim in claims:
        settler.settle_now([Attempted(claim, Succeeded(b""), "tests.job")])
    assert redis_store.stats(["default"])[0].counts["succeeded"] == 5
    assert receiver.heard == []
    receiver.go.set()
    assert settler.signal_thread.finish(10)
    assert receiver.heard == [claim.id for claim in claims]
    assert receiver.thread == "signals"


def test_a_receiver_that_hangs_does_not_hold_up_the_claim_that_finds_a_job_too_late(
    redis_store: Store, make_job: Callable[..., NewJob], receiver: Receiver, clock: Clock
) -> None:
    redis_store.enqueue("default", [make_job("late", expires_at=clock.now)])
    redis_store.enqueue("default", [make_job("good")])
    fetcher = Fetcher(
        redis_store, "w", [QueueSettings("default")], lane=Lane.SHARED, lease=30_000, strict=False, gate=Gate(),
        clock=StoreClock(), size=lambda queue: 2, deliver=SignalThread().deliver,
    )  # fmt: skip
    job_expired.connect(receiver)
    try:
        fetched = fetcher.fetch()
        assert fetched is not None
        assert [claim.id for claim in fetched[1].claims] == ["good"]
        assert receiver.called.wait(10)
        assert receiver.heard == []
    finally:
        job_expired.disconnect(receiver)


def test_a_receiver_that_ends_its_thread_ends_no_web_process(receiver: Receiver) -> None:
    def leave(**_: Any) -> None:
        raise SystemExit

    receiver.go.set()
    signal_thread = SignalThread(ends_process=False)
    job_expired.connect(leave)
    try:
        signal_thread.deliver(signal_event("a")._replace(signal="job_expired"))
        signal_thread.deliver(signal_event("b"))
        assert signal_thread.finish(30)
    finally:
        job_expired.disconnect(leave)
    assert receiver.heard == ["b"]


def test_what_waits_is_bounded_and_what_is_not_sent_is_counted_and_said_once(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    signal_thread = SignalThread()
    signal_thread.deliver(signal_event("first"))
    assert receiver.called.wait(10)
    with caplog.at_level(logging.ERROR, "django_jobs.worker"):
        for n in range(6):
            signal_thread.deliver(signal_event(str(n)))
    assert signal_thread.dropped == 3
    assert [record.getMessage()[:62] for record in caplog.records] == [
        "Receivers do not keep up. Signals that this process dropped: 1"
    ]
    receiver.go.set()
    assert signal_thread.finish(10)
    assert receiver.heard == ["first", "0", "1", "2"]


def test_a_process_that_ends_waits_for_receivers_no_longer_than_its_time(receiver: Receiver) -> None:
    signal_thread = SignalThread()
    signal_thread.deliver(signal_event("first"))
    assert receiver.called.wait(10)
    assert not signal_thread.finish(0.01)


def test_a_receiver_of_worker_stopped_that_hangs_keeps_no_worker_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STOPPED_TIME", 0.01)
    go = Event()

    def hang(**_: Any) -> None:
        go.wait(10)

    worker_stopped.connect(hang)
    try:
        module.say_stopped("w")
        assert not go.is_set()
    finally:
        go.set()
        worker_stopped.disconnect(hang)
