"""The verbs: what they move, what they leave alone, whom they tell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import operations, signals
from django_jobs.core.values import State
from django_jobs.events.receivers import here
from django_jobs.exceptions import CorruptRecord, InvalidArguments, JobNotFound, UnknownJob, UnknownQueue
from django_jobs.serialization.payloads import HIDDEN
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler


@pytest.fixture
def heard() -> Any:
    """What receivers of the signals were told: (signal, keyword arguments)."""
    told: list[tuple[str, dict[str, Any]]] = []

    def hear(name: str) -> Callable[..., None]:
        return lambda **about: told.append((name, about))

    receivers = {name: hear(name) for name in ("job_cancelled", "job_dead")}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver)
    yield told
    for name, receiver in receivers.items():
        getattr(signals, name).disconnect(receiver)


def state_of(store: Store, id: str) -> State | None:
    info = store.get("default", id)
    return info.state if info else None


#: Those that a worker's claim makes are left to the tests of the contract.
MADE = [state for state in State if state not in {State.BLOCKED, State.EXPIRED}]


@pytest.mark.parametrize("state", MADE)
@pytest.mark.parametrize("verb", list(operations.VERBS))
def test_a_verb_moves_the_states_it_names_and_no_other(verb: str, state: State, console_store: Store) -> None:
    filler = Filler(console_store)
    id = filler.make(state)
    done = operations.act(verb, "default", [id], run_at=console_store.now() + 60_000, reason="why")
    assert done.count == (1 if state in operations.VERBS[verb] else 0)


def test_cancelling_tells_the_receivers_once_for_each_job_that_ended(filler: Filler, heard: Any) -> None:
    waiting, running = filler.make(State.SCHEDULED), filler.make(State.RUNNING)
    done = operations.cancel("default", [waiting, running, "nothing"])
    assert (list(done.moved), list(done.asked)) == ([waiting], [running])
    assert here().finish(30)
    assert [(name, about["job_id"], about["name"]) for name, about in heard] == [
        ("job_cancelled", waiting, "shop.send_receipt")
    ]


def test_killing_tells_the_receivers_and_writes_the_reason(console_store: Store, filler: Filler, heard: Any) -> None:
    id = filler.make(State.RUNNING)
    assert operations.kill("default", [id], "it eats the disk").count == 1
    assert here().finish(30)
    assert [(name, about["outcome"]) for name, about in heard] == [("job_dead", "killed")]
    info = console_store.get("default", id)
    assert info is not None
    assert "it eats the disk" in info.attempts[-1].error


@pytest.mark.parametrize(("state", "attempt"), [(State.RUNNING, 1), (State.SCHEDULED, 0)])
@pytest.mark.parametrize(("verb", "end"), [("kill", State.DEAD), ("cancel", State.CANCELLED)])
def test_what_a_person_ends_has_its_line_and_alarms_nobody(
    filler: Filler, caplog: pytest.LogCaptureFixture, verb: str, end: State, state: State, attempt: int
) -> None:
    id = filler.make(state)
    with caplog.at_level(logging.INFO, "django_jobs.worker"):
        done = operations.act(verb, "default", [id], reason="why")
    lines = [record.getMessage() for record in caplog.records if record.name == "django_jobs.worker"]
    assert len(lines) == len(done.moved)
    assert all(f" {id} on default: {end}, attempt {attempt}, waited " in line for line in lines)
    assert {record.levelno for record in caplog.records} <= {logging.INFO}


def test_more_ids_than_a_batch_are_moved_in_several(console_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobs.operations.actions.BATCH", 4)
    filler = Filler(console_store)
    ids = [filler.make(State.SCHEDULED) for _ in range(11)]
    assert operations.revive("default", [*ids, *ids]).count == 11


def test_edited_arguments_are_stored_and_the_job_runs(console_store: Store, filler: Filler) -> None:
    id = filler.make(State.DEAD, call=[[7], {"email": "wrong@"}])
    operations.edit_and_revive("default", id, [8], {"email": "ada@example.com"})
    (claim,) = filler.claim()
    job = decode(claim.id, "default", claim.record)
    assert (job.id, job.args) == (id, b'[[8],{"email":"ada@example.com"}]')
    assert claim.attempt == 1


def test_a_masked_value_that_was_left_alone_stays_what_it_was(console_store: Store, filler: Filler) -> None:
    id = filler.make(State.DEAD, name="shop.charge_card", call=[[7], {"card_number": "4111"}])
    operations.edit_and_revive("default", id, [8], {"card_number": HIDDEN})
    assert decode(id, "default", filler.claim()[0].record).args == b'[[8],{"card_number":"4111"}]'


def test_a_masked_value_cannot_be_moved_into_the_open(filler: Filler) -> None:
    id = filler.make(State.DEAD, name="shop.charge_card", call=[[7], {"card_number": "4111"}])
    with pytest.raises(InvalidArguments, match="masked"):
        operations.edit_and_revive("default", id, [HIDDEN], {"card_number": HIDDEN})


def test_edited_arguments_must_fit_the_function(console_store: Store, filler: Filler) -> None:
    id = filler.make(State.DEAD)
    with pytest.raises(InvalidArguments, match="cannot be called"):
        operations.edit_and_revive("default", id, [], {"colour": "red"})
    assert state_of(console_store, id) is State.DEAD


def test_what_cannot_be_edited_says_why(filler: Filler) -> None:
    with pytest.raises(UnknownJob):
        operations.edit_and_revive("default", filler.make(State.DEAD, name="other.job"), [], {})
    with pytest.raises(CorruptRecord):
        operations.edit_and_revive("default", filler.make(State.DEAD, record=b"?"), [], {})
    with pytest.raises(JobNotFound):
        operations.edit_and_revive("default", filler.make(State.SUCCEEDED), [1], {})
    with pytest.raises(JobNotFound):
        operations.edit_and_revive("default", "nothing", [1], {})


def test_pausing_needs_a_queue_that_exists(console_store: Store) -> None:
    with pytest.raises(UnknownQueue, match="default"):
        operations.pause("defualt")
    operations.pause("default", reason="deploy")
    assert console_store.stats(["default"])[0].paused is not None
    operations.resume("default")
    assert console_store.stats(["default"])[0].paused is None


def test_workers_take_known_commands_only(console_store: Store) -> None:
    console_store.publish_worker("w", {}, 60_000)
    assert operations.command_worker("w", "stop") is True
    assert operations.command_worker("nobody", "stop") is False
    with pytest.raises(ValueError, match="'quiet'"):
        operations.command_worker("w", "explode")
