"""Editing a job that waits: what it may become, what follows the arguments, and when it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_jobs import operations
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import State
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.exceptions import DuplicateJob, InvalidArguments, JobMoved, JobNotFound, PayloadError
from django_jobs.serialization.payloads import HIDDEN
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler


def bill(account_id: int, amount: int = 1) -> None:
    """Never run."""


@pytest.fixture
def keyed() -> Iterator[Callable[..., JobDefinition]]:
    """Register `bill` with these options."""
    made: list[JobDefinition] = []

    def make(**options: Any) -> JobDefinition:
        made.append(JobDefinition(bill, name="tests.bill", **options))
        registry.register(made[-1])
        return made[-1]

    yield make
    for definition in made:
        registry._by_name.pop(definition.name, None)


def controls(store: Store, id: str) -> Any:
    info = store.get("default", id)
    assert info is not None
    return decode(id, "default", info.record).controls


@pytest.mark.accepts("K31")
@pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.RETRY])
def test_a_job_that_waits_has_the_new_arguments_where_it_is(console_store: Store, filler: Filler, state: State) -> None:
    id = filler.make(state)
    before = console_store.get("default", id)
    assert operations.edit("default", id, [8], {}) is True
    after = console_store.get("default", id)
    assert before is not None
    assert after is not None
    assert decode(id, "default", after.record).args == b"[[8],{}]"
    assert after._replace(record=before.record) == before
    assert operations.edit("default", id, [8], {}) is False


def test_what_is_wrong_is_named_and_changes_nothing(filler: Filler, console_store: Store, settings: Any) -> None:
    filler = Filler(console_store)
    id = filler.make(State.QUEUED)
    before = console_store.get("default", id)
    with pytest.raises(InvalidArguments, match="cannot be called"):
        operations.edit("default", id, [], {"colour": "red"})
    with pytest.raises(PayloadError, match="MAX_PAYLOAD"):
        operations.edit("default", id, ["x" * 300_000], {})
    for value in (float("inf"), "\ud800"):  # JSON can write both
        with pytest.raises(PayloadError, match="too large, or half of a surrogate pair"):
            operations.edit("default", id, [value], {})
    with pytest.raises(JobNotFound):
        operations.edit("default", "nothing", [1], {})
    assert console_store.get("default", id) == before


def test_a_masked_value_stays_what_it_was(console_store: Store, filler: Filler) -> None:
    id = filler.make(State.QUEUED, name="shop.charge_card", call=[[7], {"card_number": "4111"}])
    operations.edit("default", id, [8], {"card_number": HIDDEN})
    info = console_store.get("default", id)
    assert info is not None
    assert json.loads(decode(id, "default", info.record).args) == [[8], {"card_number": "4111"}]


def test_the_limit_key_follows_the_arguments(console_store: Store, keyed: Callable[..., JobDefinition]) -> None:
    keyed(max_concurrency=1, concurrency_key="account_id")
    id = enqueue_by_name("tests.bill", [1], {}).id
    operations.edit("default", id, [2], {})
    assert controls(console_store, id).limit_key == "tests.bill:2"


@pytest.mark.parametrize("only", [None, ["account_id"]])
def test_the_unique_key_follows_the_arguments(
    console_store: Store, keyed: Callable[..., JobDefinition], only: list[str] | None
) -> None:
    keyed(unique="queued", unique_on=only)
    first = enqueue_by_name("tests.bill", [1], {"amount": 5})
    operations.edit("default", first.id, [2], {"amount": 5})
    assert enqueue_by_name("tests.bill", [2], {"amount": 5}).added == "duplicate"
    assert enqueue_by_name("tests.bill", [1], {"amount": 5}).added == "added"
    with pytest.raises(DuplicateJob):
        operations.edit("default", first.id, [1], {"amount": 5})


def test_the_keys_follow_too_when_an_edited_job_is_run_again(
    console_store: Store, keyed: Callable[..., JobDefinition]
) -> None:
    keyed(unique="success", max_concurrency=1, concurrency_key="account_id")
    id = enqueue_by_name("tests.bill", [1], {}).id
    console_store.kill("default", [id], "to be mended")
    operations.edit_and_revive("default", id, [2], {})
    assert controls(console_store, id).limit_key == "tests.bill:2"
    assert enqueue_by_name("tests.bill", [2], {}).added == "duplicate"
    assert enqueue_by_name("tests.bill", [1], {}).added == "added"


SAVED: dict[str, Callable[[str], Any]] = {
    "edited": lambda id: operations.edit("default", id, [2], {}),
    "moved to another time": lambda id: operations.act("reschedule", "default", [id], run_at=4_000_000_000_000),
}


@pytest.mark.parametrize(
    ("state", "meanwhile"), [("scheduled", "edited"), ("blocked", "edited"), ("scheduled", "moved to another time")]
)
def test_what_somebody_else_changes_at_the_same_moment_is_not_overwritten(
    console_store: Store, keyed: Callable[..., JobDefinition], state: str, meanwhile: str
) -> None:
    others: list[Callable[[], Any]] = []

    def key(account_id: int, amount: int = 1) -> int:
        """Computed when the job has been read, before the new arguments are saved."""
        if others:
            others.pop()()
        return account_id

    keyed(max_concurrency=1, concurrency_key=key)
    id = enqueue_by_name("tests.bill", [1], {}).id
    if state == "blocked":
        operations.pause("default", name="tests.bill")
        assert console_store.claim("default", "worker", 1, lease=30_000).claims == []
    else:
        operations.act("reschedule", "default", [id], run_at=3_900_000_000_000)
    others.append(lambda: SAVED[meanwhile](id))
    with pytest.raises(JobMoved, match="by somebody else"):
        operations.edit_and_revive("default", id, [3], {})
    info = console_store.get("default", id)
    assert info is not None
    assert info.state == state
    assert decode(id, "default", info.record).args == (b"[[2],{}]" if meanwhile == "edited" else b"[[1],{}]")
    operations.edit_and_revive("default", id, [3], {})
    saved = console_store.get("default", id)
    assert saved is not None
    assert decode(id, "default", saved.record).args == b"[[3],{}]"


def command(*words: str) -> str:
    out = StringIO()
    call_command("jobs", "edit", *words, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
@pytest.mark.accepts("K31")
def test_the_command_edits_a_job_that_waits_and_says_why_it_does_not(console_store: Store, filler: Filler) -> None:
    id, running = filler.make(State.SCHEDULED), filler.make(State.RUNNING)
    assert "has new arguments" in command(id, "--args", '{"order_id": 8}')
    assert "already had these arguments" in command(id, "--args", '{"order_id": 8}')
    assert json.loads(command(id, "--args", "[9]", "--json")) == {"id": id, "queue": "default", "changed": True}
    for words, error in (
        ([id, "--args", "["], "not JSON"),
        ([id, "--args", "[]"], "cannot be called"),
        ([running, "--args", "[8]"], "running"),
        (["nothing", "--args", "[8]"], "There is no job 'nothing'"),
    ):
        with pytest.raises(CommandError, match=error):
            command(*words)


@pytest.mark.django_db
@pytest.mark.accepts("G70")
@pytest.mark.parametrize("state", [State.SCHEDULED, State.RETRY])
def test_jobs_of_a_later_time_are_deleted_through_the_client_and_the_command(
    console_store: Store, filler: Filler, state: State
) -> None:
    one, two = filler.make(state), filler.make(state)
    assert operations.delete("default", [one]).count == 1
    out = StringIO()
    call_command("jobs", "delete", two, stdout=out)
    assert [console_store.get("default", id) for id in (one, two)] == [None, None]
