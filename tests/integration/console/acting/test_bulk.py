"""One verb on all that match: none missed, none done twice, exactly counted, whoever drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_jobs import operations
from django_jobs.admin.common.acts import sentence
from django_jobs.admin.jobs import actions
from django_jobs.browse import Match
from django_jobs.core.values import Job, JobInfo, NewJob, State
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import bulk
from django_jobs.operations.matching import count_matching
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import MAX_BYTES
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches without thousands of jobs."""
    monkeypatch.setattr(bulk, "BATCH", 7)


def finish(id: str) -> bulk.Operation:
    """Drive an operation to its end, a stretch at a time."""
    for _ in range(200):
        operation = bulk.get(id)
        assert operation is not None
        if operation.finished:
            return operation
        bulk.drive(id, 0.0)
    raise AssertionError("the operation does not end")


def make(filler: Filler, number: int, state: State) -> None:
    for _ in range(number):
        filler.make(state)


def after_acting(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Have this done once, when the next batch has been moved and not yet counted."""
    act = operations.act

    def act_first(*args: Any, **kwargs: Any) -> operations.Done:
        monkeypatch.setattr(operations, "act", act)
        done = act(*args, **kwargs)
        then()
        return done

    monkeypatch.setattr(operations, "act", act_first)


def count(store: Store, state: State, queue: str = "default") -> int:
    return store.stats([queue])[0].counts[state]


@pytest.mark.accepts("G78")
def test_all_dead_jobs_are_retried_and_counted(console_store: Store, filler: Filler) -> None:
    make(filler, 30, State.DEAD)
    operation = bulk.start("revive", State.DEAD, Match(), user="ada")
    assert (operation.total, operation.moved, operation.percent) == (30, 0, 0)
    ended = finish(operation.id)
    assert (ended.moved, ended.percent, ended.user) == (30, 100, "ada")
    assert (count(console_store, State.DEAD), count(console_store, State.QUEUED)) == (0, 30)


@pytest.mark.parametrize("state", [State.QUEUED, State.SUCCEEDED, State.DEAD])
def test_a_worker_in_another_time_zone_takes_the_jobs_that_the_user_was_shown(
    console_store: Store, filler: Filler, clock: Clock, state: State
) -> None:
    make(filler, 3, state)
    hour_ago = datetime.fromtimestamp(clock.now / 1000 - 3_600, UTC).replace(tzinfo=None)
    with timezone.override("America/Los_Angeles"):  # there, that hour comes later today
        match = Match().asked(f"after:{hour_ago.isoformat()}", state)
        assert count_matching(state, match).matching == 0
        operation = bulk.start("delete", state, match)
    assert finish(operation.id).moved == 0
    assert count(console_store, state) == 3


def test_it_is_stored_with_the_word_that_older_workers_know(console_store: Store) -> None:
    operation = bulk.start("revive", State.DEAD, Match())
    assert console_store.get_document(bulk.DOCUMENT)[operation.id]["verb"] == "retry"
    assert bulk.get(operation.id) == operation
    assert operation.verb == "revive"


def test_a_job_that_dies_again_meanwhile_is_left_alone(console_store: Store, filler: Filler, clock) -> None:  # type: ignore[no-untyped-def]
    make(filler, 10, State.DEAD)
    operation = bulk.start("revive", State.DEAD, Match())
    clock.advance(1_000)
    moved = 0
    for _ in range(50):
        bulk.drive(operation.id, 0.0)
        for claim in filler.claim(limit=100):
            moved += 1
            console_store.bury(claim, filler.attempt(claim, "ValueError", "again"))
        if bulk.get(operation.id).finished:  # type: ignore[union-attr]
            break
    assert finish(operation.id).moved == 10
    assert moved == 10
    assert count(console_store, State.DEAD) == 10


def test_running_jobs_are_asked_to_stop_and_counted_apart(console_store: Store, filler: Filler) -> None:
    make(filler, 3, State.RUNNING)
    ended = finish(bulk.start("cancel", State.RUNNING, Match()).id)
    assert (ended.moved, ended.asked) == (0, 3)


def test_another_driver_waits_until_the_first_has_died_and_then_goes_on(
    console_store: Store,
    filler: Filler,
    clock,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    make(filler, 20, State.DEAD)
    operation = bulk.start("delete", State.DEAD, Match())
    bulk.claim_wheel(operation.id, "a process that died")
    bulk.drive(operation.id, 0.0)
    assert bulk.get(operation.id).moved == 0  # type: ignore[union-attr]
    clock.advance(bulk.DRIVER_LIFE + 1)
    assert finish(operation.id).moved == 20


def test_what_a_driver_moved_before_it_died_is_counted(
    console_store: Store,
    filler: Filler,
    clock,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    make(filler, 20, State.DEAD)
    operation = bulk.start("revive", State.DEAD, Match())

    def die() -> None:
        raise KeyboardInterrupt

    after_acting(monkeypatch, die)
    with pytest.raises(KeyboardInterrupt):
        bulk.drive(operation.id, 0.0)
    assert bulk.get(operation.id).moved == 0  # type: ignore[union-attr]
    clock.advance(bulk.DRIVER_LIFE + 1)
    ended = finish(operation.id)
    assert (ended.moved, ended.seen) == (20, 20)


def test_of_two_drivers_that_begin_at_the_same_moment_one_drives(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(filler, 5, State.DEAD)
    operation = bulk.start("delete", State.DEAD, Match())
    claim, stepped = bulk.claim_wheel, list[str]()

    def claim_late(id: str, me: str, *was: Any) -> Any:
        """Another thread has read that nobody drives, too, and is faster."""
        monkeypatch.setattr(bulk, "claim_wheel", claim)
        claim(id, "faster", *was)
        return claim(id, me, *was)

    monkeypatch.setattr(bulk, "claim_wheel", claim_late)
    monkeypatch.setattr(bulk, "step", lambda operation, me: stepped.append(me))
    bulk.drive(operation.id, 0.0)
    assert stepped == []
    assert bulk.get(operation.id).driver == "faster"  # type: ignore[union-attr]


def test_the_end_of_each_is_told_once_by_threads_that_look_at_the_same_time(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is slow has listed them before another told of them and let go."""
    make(filler, 1, State.DEAD)
    told, operations = list[str](), [bulk.start("delete", State.DEAD, Match()).id for _ in range(20)]
    monkeypatch.setattr(bulk, "ended", {lambda operation: told.append(operation.id)})
    for id in operations:
        bulk.follow(id)
        finish(id)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: bulk.tell_ended(), range(4)))
    assert sorted(told) == sorted(operations)


def test_a_batch_is_counted_once_by_its_driver_or_the_one_that_takes_over(
    console_store: Store, filler: Filler, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(filler, 5, State.DEAD)
    operation = bulk.start("delete", State.DEAD, Match())
    seen: list[dict[str, Any]] = []
    after_acting(monkeypatch, lambda: seen.append(console_store.get_document(bulk.DOCUMENT)))
    bulk.claim_wheel(operation.id, "slow")
    bulk.step(bulk.get(operation.id), "slow")  # type: ignore[arg-type]
    # Another took over, and read before "slow" had counted its batch.
    get = console_store.get_document
    monkeypatch.setattr(console_store, "get_document", lambda key: seen.pop() if seen else get(key))
    bulk.settle(operation)
    clock.advance(bulk.DRIVER_LIFE + 1)
    assert finish(operation.id).moved == 5


def test_it_can_be_stopped_and_says_so(console_store: Store, filler: Filler) -> None:
    make(filler, 20, State.DEAD)
    operation = bulk.start("delete", State.DEAD, Match())
    bulk.stop(operation.id)
    ended = finish(operation.id)
    assert (ended.stopped, ended.moved) == (True, 0)


def test_workers_drive_what_is_unfinished(console_store: Store, filler: Filler) -> None:
    make(filler, 20, State.DEAD)
    assert bulk.tick() is False
    operation = bulk.start("delete", State.DEAD, Match())
    assert bulk.tick(0.0) is True
    while bulk.tick(5.0):
        pass
    assert finish(operation.id).moved == 20


def test_ended_operations_are_forgotten_after_a_week(console_store: Store, filler: Filler, clock) -> None:  # type: ignore[no-untyped-def]
    first = bulk.start("delete", State.DEAD, Match())
    finish(first.id)
    clock.advance(bulk.KEEP + 1)
    second = bulk.start("delete", State.DEAD, Match())
    assert [operation.id for operation in bulk.operations_list()] == [second.id]


def test_the_end_of_one_that_goes_on_is_logged_once_with_what_it_did(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "INDEXED_BATCH", 4)
    monkeypatch.setattr(actions, "FIRST_STRETCH", 0)
    for i in range(31):
        filler.make(State.DEAD, name="shop.send_receipt" if i else "shop.charge_card")
    address = f"{BASE}jobs/dead/?name=shop.send_receipt"
    root.post(address, {"verb": "delete", "scope": "all", "confirmed": "1"})
    began = sentence(AuditEntry.objects.get())
    assert "It goes on in the background" in began
    assert "jobs were deleted" not in began
    while bulk.tick():
        continue
    bulk.tick()
    ended, _ = (sentence(entry) for entry in AuditEntry.objects.order_by("-pk"))
    assert "30 jobs were deleted." in ended
    assert "name=shop.send_receipt" in ended
    assert len(AuditEntry.objects.latest("pk").details["ids"]) == 30
    assert {entry.actor for entry in AuditEntry.objects.all()} == {"root"}


def test_an_end_that_cannot_be_logged_now_is_logged_later(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def tell(operation: bulk.Operation) -> None:
        if not told:
            told.append("failed")
            raise RuntimeError("the database is down")
        told.append(operation.id)

    monkeypatch.setattr(bulk, "ended", [tell])
    make(filler, 3, State.DEAD)
    operation = bulk.start("delete", State.DEAD, Match())
    bulk.follow(operation.id)
    finish(operation.id)
    for _ in range(4):
        bulk.tick()
    assert told == ["failed", operation.id]
    assert "cannot be logged now" in caplog.text


def test_a_verb_that_does_not_apply_is_refused(console_store: Store) -> None:
    with pytest.raises(ValueError, match="does not apply"):
        bulk.start("delete", State.RUNNING, Match())


def test_large_jobs_are_read_a_few_at_a_time(console_store: Store, filler: Filler, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    read: list[int] = []
    get_many = console_store.get_many

    def noting(queue: str, ids: Sequence[str]) -> list[JobInfo]:
        found = get_many(queue, ids)
        read.append(sum(len(info.record) for info in found))
        return found

    large = b'[["' + b"x" * 900_000 + b'"],{}]'
    for n in range(40):
        console_store.enqueue("default", [NewJob(f"l-{n}", encode(Job(f"l-{n}", "default", "work", large, 1)))])
    monkeypatch.setattr(console_store, "get_many", noting)
    assert len(list(bulk.look_at("default", [f"l-{n}" for n in range(40)]))) == 40
    assert read[0] == max(read), "as few as are read where nothing is known of their size"
    assert max(read[1:]) <= MAX_BYTES


def test_an_act_on_one_id_has_looked_at_one_job_however_many_queues_there_are(
    console_store: Store, filler: Filler
) -> None:
    filler.add(queue="mail")
    filler.add(queue="reports")
    filler.make(State.DEAD)
    id = filler.make(State.DEAD)
    done = bulk.finish(bulk.start("delete", State.DEAD, Match(id=id)))
    assert (len(done.queues) > 2, done.total, done.seen, done.moved) == (True, 1, 1, 1)
