"""From the call to the store and back: order, bytes, ages and sizes of calls, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_jobs.core.values import Attempt, Claim, NewJob
from django_jobs.enqueueing import request
from django_jobs.serialization import arguments
from django_jobs.serialization.record import decode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import ADDED_BYTES
from tests.conftest import Clock
from tests.integration.enqueueing import SETTINGS
from tests.integration.sample_jobs import receipt


@pytest.fixture(autouse=True)
def _in_use(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(request, "now_ms", clock)
    with override_settings(DJANGO_JOBS=SETTINGS):
        use_store(store)
        yield
        use_store(None)


def claim(store: Store) -> Claim:
    (one,) = store.claim("default", "w1", 1, lease=30_000).claims
    return one


def test_two_and_a_half_thousand_jobs_arrive_in_order(store: Store) -> None:
    handles = receipt.enqueue_many((number,) for number in range(2500))
    claims = [each.id for _ in range(3) for each in store.claim("default", "w1", 1000, lease=30_000).claims]
    assert claims == [handle.id for handle in handles]


def test_arguments_are_the_same_bytes_from_enqueue_to_the_last_attempt(store: Store, clock: Clock) -> None:
    values = {"text": "\x00 é 🐍", "big": 2**200, "small": 0.1, "empty": [[], {}, ""], "when": datetime.now(UTC)}
    handle = receipt.using(max_attempts=2).enqueue(values)  # type: ignore[arg-type]
    sent = arguments.dump((values,), {})
    held = claim(store)
    seen = [held.record]
    store.retry(held, Attempt(1, "failed", clock.now), 1000)
    clock.advance(1000)
    held = claim(store)
    seen.append(held.record)
    store.bury(held, Attempt(2, "failed", clock.now))
    store.revive("default", [handle.id])
    seen.append(claim(store).record)
    assert {decode("", "", record).args for record in seen} == {sent}
    assert arguments.load(sent) == ([values], {})


@pytest.mark.parametrize("ahead", [-3_600_000, 3_600_000], ids=["behind", "ahead"])
def test_whatever_the_clock_of_the_producer_ages_are_by_that_of_the_store(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr(request, "now_ms", lambda: clock.now + ahead)
    handles = [
        receipt.enqueue(1),
        *receipt.enqueue_many([(2,), (3,)]),
        receipt.enqueue_in(60, 4),
        receipt.using(priority=3, unique="queued").enqueue(5),
    ]
    clock.advance(2_000)
    found = [store.get("default", handle.id) for handle in handles]
    assert [decode(info.id, "default", info.record).enqueued_at for info in found if info] == [clock.now - 2_000] * 5
    assert store.stats(["default"])[0].latency == 2_000
    held = claim(store)
    assert held.waited(decode(held.id, "default", held.record)) == 2_000


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("in_transaction", [False, True], ids=["at once", "after a commit"])
def test_many_large_jobs_go_in_calls_of_bounded_size(
    store: Store, monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    sizes: dict[str, int] = {}

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(queue: str, jobs: Sequence[NewJob], **options: Any) -> Any:
            sizes[jobs[0].id] = sum(len(job.record) for job in jobs)
            return call(queue, jobs, **options)

        return noted

    for name in ("enqueue", "enqueue_ahead"):
        monkeypatch.setattr(store, name, noting(getattr(store, name)))
    large = 4_000
    with transaction.atomic() if in_transaction else nullcontext():
        receipt.enqueue_many((f"{n}-" + "x" * large,) for n in range(1000))
    sent = list(sizes.values())
    assert sum(sent) > 1000 * large
    assert max(sent) < ADDED_BYTES + 2 * large
    assert len(sent) == 4
    assert store.stats(["default"])[0].counts["queued"] == 1000
