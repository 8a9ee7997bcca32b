"""Delays from the calls to the store: they count from the call, by the store's clock, whatever the producer's says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_jobs import job
from django_jobs.core.values import JobInfo, NewJob, State
from django_jobs.enqueueing import commits, request
from django_jobs.enqueueing.request import sent_later
from django_jobs.serialization.record import decode
from django_jobs.stores import get_store

pytestmark = pytest.mark.django_db(transaction=True)


@job(name="tests.delays.soon", expires_in=30)
def soon() -> None: ...


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A producer whose clock is an hour ahead."""
    ahead = request.now_ms() + 3_600_000
    monkeypatch.setattr(request, "now_ms", lambda: ahead)
    with override_settings(DJANGO_JOBS={"STORE": "memory"}):
        yield


def info(handle: Any) -> JobInfo:
    found = get_store().get("default", handle.id)
    assert found is not None
    return found


@pytest.mark.parametrize("call", ["enqueue_in", "enqueue_unique_in"])
def test_a_producer_ahead_of_the_store_delays_no_longer(call: str) -> None:
    before = get_store().now()
    handle = getattr(soon, call)(60)
    assert handle.state == State.SCHEDULED
    found = info(handle)
    assert before + 60_000 <= found.at <= get_store().now() + 60_000
    assert decode(found.id, "default", found.record).controls.expires_at == found.at + 30_000


def test_inside_a_transaction_a_delay_counts_from_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    before = get_store().now()
    with transaction.atomic():
        handle = soon.enqueue_in(60)
        at_once = soon.enqueue()
        later = commits.monotonic() + 20
        monkeypatch.setattr(commits, "monotonic", lambda: later)
    now = get_store().now()
    assert before + 39_999 <= info(handle).at <= now + 40_000
    expires_at = decode("", "default", info(at_once).record).controls.expires_at
    assert expires_at is not None
    assert before + 9_999 <= expires_at <= now + 10_000


@pytest.mark.parametrize(
    ("new", "elapsed", "run_in", "expires_in"),
    [
        (NewJob("a", b""), 500, None, None),
        (NewJob("a", b"", run_in=300), 500, 0, None),
        (NewJob("a", b"", run_in=300, expires_in=100), 500, 0, 0),
        (NewJob("a", b"", run_in=300, expires_in=400), 500, 0, 200),
        (NewJob("a", b"", run_in=900, expires_in=100), 500, 400, 100),
        (NewJob("a", b"", run_at=7, expires_in=700), 500, None, 200),
        (NewJob("a", b"", run_at=10**15, expires_in=100), 500, None, 100),
    ],
)
def test_what_has_passed_is_taken_off(new: NewJob, elapsed: int, run_in: int | None, expires_in: int | None) -> None:
    later = sent_later(new, elapsed)
    assert (later.run_at, later.run_in, later.expires_in) == (new.run_at, run_in, expires_in)
