"""Errors of failed attempts are remembered beyond their jobs: counted exactly, bounded, and never in the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_jobs.browse import error_key
from django_jobs.core.values import Attempt, Claim, Ended
from django_jobs.operations import error_inbox
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.errors import MOST_ERRORS, KeptError
from tests.conftest import Clock

Claims = Callable[[int], list[Claim]]
DAY = 86_400_000
FRAME = "shop/jobs.py, in pay: bank.pay(card)"


def failed(error: str = "no", kind: str = "E", frame: str = FRAME, release: str = "v1") -> Attempt:
    return Attempt(1, "failed", 0, 5, "w", kind, error, "Traceback", release, frame)


@pytest.fixture
def claims(store: Store, make_job: Callable[..., object]) -> Callable[[int], list[Claim]]:
    def make(number: int) -> list[Claim]:
        store.enqueue("default", [make_job() for _ in range(number)])  # type: ignore[misc]
        return store.claim("default", "w", number, lease=30_000).claims

    return make


def only(store: Store) -> KeptError:
    (error,), left_out = store.errors(["default", "empty"])
    assert left_out == []
    return error


def test_an_error_is_counted_by_day_release_type_and_message(store: Store, claims: Claims, clock: Clock) -> None:
    began = clock.now
    ends = [("retry", failed("500", release="v1")), ("bury", failed("503", release="v1"))]
    store.settle("default", [Ended(claim, verb, log, 1) for claim, (verb, log) in zip(claims(2), ends, strict=True)])
    clock.advance(DAY)
    (claim,) = claims(1)
    store.bury(claim, failed("500", release="v2"))
    error = only(store)
    assert (error.type, error.frame, error.first_release) == ("E", FRAME, "v1")
    assert error.signature == f"E: {FRAME}"
    assert error.seen == (began, clock.now, 3)
    assert {day - began // DAY: seen.number for day, seen in error.days.items()} == {0: 2, 1: 1}
    assert {name: tuple(seen) for name, seen in error.releases.items()} == {
        "v1": (began, began, 2), "v2": (clock.now, clock.now, 1)
    }  # fmt: skip
    assert {text: seen.number for text, seen in error.messages.items()} == {"500": 2, "503": 1}
    assert [seen.number for seen in error.types.values()] == [3]
    assert store.errors(["default"], ["other", error.signature])[0] == [error]
    assert store.errors(["default"], ["other"]) == ([], [])


def test_it_outlives_its_jobs_and_counts_each_attempt_once(store: Store, claims: Claims) -> None:
    (claim,) = claims(1)
    ended = [Ended(claim, "bury", failed())]
    store.settle("default", ended)
    store.settle("default", ended)  # the claim is stale
    store.delete("default", [claim.id])
    assert only(store).seen.number == 1


def test_what_ends_on_purpose_is_no_error(store: Store, claims: Claims) -> None:
    first, second, third = claims(3)
    store.discard(first, failed())
    store.snooze(second, 5)
    store.kill("default", [third.id], "a reason")
    assert store.errors(["default"]) == ([], [])


def test_a_lost_worker_is_an_error(store: Store, claims: Claims) -> None:
    claims(3)
    store.recover("default", worker="w")
    error = only(store)
    assert (error.type, error.seen.number) == ("worker_lost", 3)


def test_the_oldest_of_too_many_errors_are_forgotten_and_counted(store: Store, claims: Claims, clock: Clock) -> None:
    number = MOST_ERRORS + 300
    for start in range(0, number, 200):
        some = claims(min(200, number - start))
        store.settle("default", [Ended(c, "bury", failed(frame=f"f{start + n}")) for n, c in enumerate(some)])
        clock.advance(1000)
    kept, _ = store.errors(["default"])
    assert MOST_ERRORS - 100 <= len(kept) <= MOST_ERRORS
    assert {f"f{n}" for n in range(number - 200, number)} <= {each.frame for each in kept}
    assert store.stats(["default"])[0].totals["errors_forgotten"] == number - len(kept)


def test_a_memory_is_bounded_whatever_fails_in_it(store: Store, claims: Claims, clock: Clock) -> None:
    for n in range(40):
        (claim,) = claims(1)
        store.bury(claim, failed("x" * 100_000 + f"{n}\n\t\0é", release=f"v{n}" + "x" * 190))
        clock.advance(DAY)
    error = only(store)
    assert (len(error.days), len(error.releases), len(error.messages)) == (30, 5, 1)
    assert error.seen.number == 40
    assert error.first_release.startswith("v0x")
    assert ({name[1:3] for name in error.releases}, max(error.days) - min(error.days)) == (
        {*map(str, range(35, 40))},
        29,
    )
    size = store.transport.client.memory_usage(store.keys.of("default")["errors"], samples=0)
    assert size < 8_000


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"1\t2\t3\t{",
        b"1\t2\t3\t[]",
        b"9" * 40 + b"\t1\t1\t{}",
        b"1\t1\t1\t{}\nz\t1\t1\t1\tx",
        b"x" * 40_000,
    ],
)
def test_what_cannot_be_read_is_left_out_and_begins_anew(store: Store, claims: Claims, value: bytes) -> None:
    key, field = store.keys.of("default")["errors"], f"E: {FRAME}"
    store.transport.client.hset(key, field, value)
    store.errors(["default"])
    (claim,) = claims(1)
    store.bury(claim, failed())
    assert only(store).seen.number in (1, 2)


def test_lines_of_a_newer_version_stay_beside_those_that_are_counted(
    store: Store, claims: Claims, clock: Clock
) -> None:
    name, field = store.keys.of("default")["errors"], f"E: {FRAME}"
    value = b'5\t6\t7\tv0\t{"type":"E","frame":"f"}\nr\t5\t6\t7\tv1\nz\t1\t1\t1\tv1\nr\t5\t6\t9\tno\tv1'
    store.transport.client.hset(name, field, value)
    assert (only(store).seen.number, only(store).releases["v1"]) == (7, (5, 6, 7))
    (claim,) = claims(1)
    store.bury(claim, failed(release="v1"))
    error = only(store)
    assert (error.seen, error.first_release) == ((5, clock.now, 8), "v0")
    assert error.releases == {"v1": (5, clock.now, 8), "no\tv1": (5, 6, 9)}
    assert b"\nz\t1\t1\t1\tv1\n" in store.transport.client.hget(name, field)


def test_a_key_of_another_type_keeps_no_job_from_failing(store: Store, claims: Claims) -> None:
    store.transport.client.set(store.keys.of("default")["errors"], "x")
    (claim,) = claims(1)
    assert store.bury(claim, failed())
    store.reconcile("default")
    (claim,) = claims(1)
    store.bury(claim, failed())
    assert only(store).seen.number == 1


def test_one_error_is_found_among_many_without_reading_the_others(
    redis_store: Store, make_job: Callable[..., object]
) -> None:
    store, queues = redis_store, [f"q{n}" for n in range(5)]
    for n, queue in enumerate(queues):
        store.enqueue(queue, [make_job(f"{queue}-{i:03}") for i in range(200)])  # type: ignore[misc]
        taken = store.claim(queue, "w", 200, lease=30_000).claims
        ended = [Ended(c, "bury", failed(f"{n}" + "x" * 900, frame=f"f{i % 100}")) for i, c in enumerate(taken)]
        store.settle(queue, ended)
    use_store(store)
    id, client = error_key("E: f7"), store.transport.client
    before = client.info("stats")["total_net_output_bytes"]
    error = error_inbox.find(id)
    sent = client.info("stats")["total_net_output_bytes"] - before
    assert error is not None
    assert (error.frame, error.seen.number) == ("f7", 10)
    assert sent < 30_000  # one of 500 entries of a kilobyte takes 5,000
    assert error_inbox.find(error_key("E: f100")) is None
