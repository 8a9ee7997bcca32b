"""The verbs: what they move, what they leave alone, whom they tell."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import Client, override_settings

from django_jobs import archive, operations, signals
from django_jobs.browse import Match
from django_jobs.conf import raw_setting
from django_jobs.core.values import State
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.events.receivers import here
from django_jobs.exceptions import (
    CorruptRecord,
    InvalidArguments,
    InvalidQuery,
    JobNotFound,
    UnknownJob,
    UnknownQueue,
    UnknownSchedule,
)
from django_jobs.models import Schedule
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import bulk
from django_jobs.serialization.payloads import HIDDEN
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.integration.console.workflows.flows import batch, order
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


def test_a_masked_value_cannot_be_moved_into_the_open(filler: Filler) -> None:
    id = filler.make(State.DEAD, name="shop.charge_card", call=[[7], {"card_number": "4111"}])
    with pytest.raises(InvalidArguments, match="masked"):
        operations.edit_and_revive("default", id, [HIDDEN], {"card_number": HIDDEN})


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


@pytest.mark.django_db
def test_your_own_code_reads_and_does_what_the_command_shows_and_does(filler: Filler) -> None:
    filler.make(State.DEAD, error="The card was refused")
    filler.add(id="waits")
    assert operations.counts().counts["dead"] == 1
    assert {stats.queue: stats.counts["queued"] for stats in operations.queues()}["default"] == 1
    found = operations.jobs("state:dead name:shop.send_receipt")
    assert ([info.state for info in found.jobs], found.checked, found.total) == ([State.DEAD], 1, 1)
    assert operations.job(found.jobs[0].id) == found.jobs[0]
    assert operations.workers() == []
    said = operations.why("waits")
    assert said.reason.cause == "no_workers"
    assert "no_workers" in [each.cause for each in operations.findings()]
    assert all(each in operations.findings() for each in said.findings)
    done = operations.retry("state:dead name:shop.send_receipt", by="test")
    assert (done.seen, done.moved) == (1, 1)
    assert operations.apply("delete", "state:queued").moved == 2
    assert operations.paused() == []
    with pytest.raises(JobNotFound):
        operations.job("waits")
    with pytest.raises(InvalidQuery, match="names no state"):
        operations.retry("name:shop.send_receipt")
    with pytest.raises(ValueError, match="does not apply"):
        operations.apply("cancel", "state:dead")


def printed(*words: str) -> Any:
    out = StringIO()
    call_command("jobs", *words, "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.django_db
def test_errors_and_findings_are_judged_by_your_own_code(console_store: Store, filler: Filler) -> None:
    filler.make(State.DEAD, error="The card was refused")
    (error,) = operations.errors()
    assert [each.as_json() for each in operations.errors()] == printed("errors")
    decided = operations.decide(error, by="bot", state="resolved", note="The bank mends it.")
    assert (error.state, decided.state, decided.note) == ("new", "resolved", "The bank mends it.")
    assert operations.error(error.id) == decided
    assert operations.error("nothing") is None
    with pytest.raises(FrozenInstanceError):
        error.frame = "changed"  # type: ignore[misc]

    found = operations.findings()
    operations.acknowledge(found, console_store.now() + 60_000, by="bot", reason="known")
    assert operations.findings() == []
    operations.withdraw([each.key for each in found])
    assert operations.findings() == found


@pytest.mark.django_db
def test_workflows_and_schedules_are_seen_and_moved_by_your_own_code(console_store: Store, settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ON_COMMIT": False}
    use_store(console_store)
    stopped, waiting = order(console_store, dead="packed"), batch(console_store, "a", "b")
    assert {each.id for each in operations.workflows().rows} == {stopped, waiting}
    assert [each.id for each in operations.workflows("stopped").rows] == [stopped]
    assert operations.workflow(stopped).stopped_by == {"dead": 1}
    assert [step.name for step in operations.steps(stopped)] == ["paid", "packed", "invoiced", "mailed"]
    assert len(operations.steps(waiting, limit=1)) == 1
    assert [each["id"] for each in printed("workflows", "--state", "stopped")] == [stopped]

    Schedule.objects.create(name="nightly", job="shop.send_receipt", cron="0 3 * * *", args=[1])
    handle = operations.run_schedule("nightly")
    assert operations.job(handle.id).state is State.QUEUED
    operations.pause_schedule("nightly")
    assert [(each.kind, each.name) for each in operations.paused()] == [("schedule", f"db:{Schedule.objects.get().pk}")]
    operations.resume_schedule("nightly")
    assert operations.paused() == []
    with pytest.raises(UnknownSchedule, match="weekly"):
        operations.run_schedule("weekly")


@pytest.mark.django_db
def test_what_is_kept_beside_the_jobs_is_read_by_your_own_code(console_store: Store, filler: Filler) -> None:
    id = filler.make(State.DEAD, tags="red")
    assert [(each.tag, each.jobs) for each in operations.tags("dead")] == [("red", 1)]
    assert sum(operations.charts().values["dead"]) == 1
    assert operations.charts(queue="nothing").period == "hour"
    operations.apply("delete", f"state:dead id:{id}", by="bot")
    assert [(each.user, each.moved) for each in operations.bulk_operations()] == [("bot", 1)]
    printed("pause", "default")
    assert [each.verb for each in operations.history(limit=1)] == ["pause"]
    assert operations.history(user="nobody") == []
    cancelled = operations.job(filler.make(State.CANCELLED))
    with override_settings(DJANGO_JOBS={**raw_setting(), "ARCHIVE": {"DAYS": 1}}):
        archive.write([cancelled])
        assert [each.state for each in operations.archived_jobs("state:cancelled").jobs] == [State.CANCELLED]
    with override_settings(DJANGO_JOBS={**raw_setting(), "OUTBOX": True}), transaction.atomic():
        enqueue_by_name("shop.send_receipt", [1])
        (entry,) = operations.outbox()
        assert operations.outbox(held=True) == []
        assert operations.delete_entries([entry["id"]]).missing == []
        assert operations.send_entries([entry["id"]]).missing == [entry["id"]]


@pytest.mark.django_db
def test_a_stopped_bulk_operation_says_so_everywhere_and_is_stopped_once(filler: Filler, root: Client) -> None:
    for _ in range(4):
        filler.make(State.DEAD)
    operation = bulk.start("delete", State.DEAD, Match())
    address = f"{BASE}bulk/{operation.id}/"
    old = root.get(address).text
    assert 'value="stop"' in old
    said = [root.post(address, {"do": "stop"}, follow=True).text for _ in range(2)]
    assert ["The operation stops after the current batch." in text for text in said] == [True, False]
    assert "The operation had ended, or was stopped already." in said[1]
    assert AuditEntry.objects.filter(verb="stop").count() == 1
    for text in (said[0], root.get(f"{BASE}bulk/").text):
        assert "0 jobs were deleted. It was stopped." in text
        assert "<strong>100 %" not in text
        assert 'value="stop"' not in text
        assert 'value="0"' in text, "nothing was checked"
    assert bulk.get(operation.id).finished  # type: ignore[union-attr]
