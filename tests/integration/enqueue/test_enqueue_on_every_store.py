"""From the call to the store and back, on each kind of store: what the calls promise holds on Redis too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_jobs import QueueFull, get_job
from django_jobs.core.values import Added, Attempt, Claim, NewJob
from django_jobs.enqueue import request
from django_jobs.serialization import arguments
from django_jobs.serialization.record import decode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import ADDED_BYTES
from tests.conftest import Clock
from tests.integration.enqueueing import SETTINGS
from tests.integration.sample_jobs import other, receipt, unique


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


def test_a_job_is_found_runs_and_shows_its_result(store: Store) -> None:
    handle = receipt.using(meta={"request": "r1"}).enqueue(7)
    assert get_job(handle.id).refresh().state == "queued"
    held = claim(store)
    assert (held.id, decode(held.id, "default", held.record).meta) == (handle.id, {"request": "r1"})
    assert handle.refresh().state == "running"


def test_the_callers_id_adds_one_job() -> None:
    answers = [receipt.using(job_id="order-7").enqueue(number).added for number in (7, 7, 8)]
    assert answers == [Added.ADDED, Added.EXISTS, Added.EXISTS]


def test_an_equal_job_waits_and_a_key_replaces_its_arguments(store: Store, clock: Clock) -> None:
    assert receipt.enqueue_unique_in(60, 7) is not None
    assert receipt.enqueue_unique(7) is None
    assert unique.enqueue_unique_by_key("k", 1, "old") is not None
    assert unique.enqueue_unique_by_key("k", 2, "new") is None
    assert decode("", "", claim(store).record).args == b'[[2,"new"],{}]'
    clock.advance(60_000)
    assert decode("", "", claim(store).record).args == b"[[7],{}]"


def test_a_full_queue_refuses() -> None:
    task = receipt.using(queue="small")
    task.enqueue_many([(1,), (2,)])
    assert task.try_enqueue(3) is None
    with pytest.raises(QueueFull):
        task.enqueue(3)


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


def test_scheduled_jobs_wait_for_their_time_and_can_be_cancelled(store: Store, clock: Clock) -> None:
    when = datetime.fromtimestamp(clock.now / 1000, UTC) + timedelta(minutes=1)
    first, second = receipt.enqueue_at(when, 1), receipt.enqueue_in(60, 2)
    assert store.claim("default", "w1", 5, lease=30_000).claims == []
    assert second.cancel() is True
    clock.advance(60_000)
    assert [held.id for held in store.claim("default", "w1", 5, lease=30_000).claims] == [first.id]


def test_a_queue_has_jobs_of_its_own(store: Store) -> None:
    handle = other.enqueue(a=1)
    assert store.claim("default", "w1", 5, lease=30_000).claims == []
    assert [held.id for held in store.claim("mail", "w1", 5, lease=30_000).claims] == [handle.id]


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
