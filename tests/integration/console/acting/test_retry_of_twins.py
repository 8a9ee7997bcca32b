"""A job whose unique key another job has taken is not retried by hand beside it; the answer says which job that is."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from django_jobs import operations
from django_jobs.core.values import Controls, State
from django_jobs.exceptions import DuplicateJob
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

pytestmark = pytest.mark.django_db

KEY = Controls(unique="ab" * 32, unique_mode="running")


def state_of(store: Store, id: str) -> State:
    info = store.get("default", id)
    assert info is not None
    return info.state


@pytest.fixture
def twins(filler: Filler) -> tuple[str, str]:
    """A dead job, and another one that has its key since."""
    filler.add("shop.sync", controls=KEY, id="old")
    (claim,) = filler.store.claim("default", "w", 1, lease=60_000).claims
    filler.store.bury(claim, filler.attempt(claim, "TimeoutError", "no answer"))
    filler.add("shop.sync", controls=KEY, id="new")
    return "old", "new"


def jobs(*words: str) -> tuple[int, dict[str, Any], str]:
    said = []
    for more in (["--json"], []):
        out, code = StringIO(), 0
        try:
            call_command("jobs", *words, *more, stdout=out)
        except SystemExit as ended:
            code = int(str(ended.code))
        said.append(out.getvalue())
    return code, json.loads(said[0]), said[1]


def test_in_code(console_store: Store, twins: tuple[str, str]) -> None:
    done = operations.revive("default", list(twins))
    assert (done.moved, done.held, done.taken) == ([], [], {"old": "new"})
    info = console_store.get("default", "old")
    assert info is not None
    with pytest.raises(DuplicateJob, match="'new' has its unique key"):
        operations.revive_as_seen(info)
    assert console_store.get("default", "old") == info


def test_on_the_page_one_and_all(console_store: Store, twins: tuple[str, str], filler: Filler, root: Client) -> None:
    other = filler.make(State.DEAD, queue="mails")
    chosen = {"verb": "retry", "job": ["default/old", f"mails/{other}"]}
    said = root.post(f"{BASE}jobs/dead/", chosen, follow=True).text
    taken = "1 job was not queued, because another job has its unique key. (old: its key is held by new)"
    assert f"1 job was queued. {taken}" in said
    assert state_of(console_store, "old") is State.DEAD
    everything = {"verb": "retry", "scope": "all", "confirmed": "1"}
    assert "because another job has its unique key" in root.post(f"{BASE}jobs/dead/", everything, follow=True).text
    assert state_of(console_store, "old") is State.DEAD


def test_by_command_one_and_all(console_store: Store, twins: tuple[str, str]) -> None:
    code, data, said = jobs("retry", "old")
    assert (code, data["moved"], data["taken"], data["left"]) == (1, [], {"old": "new"}, [])
    assert "another job holds their unique key: old (by new)." in said
    code, data, said = jobs("retry", "--all")
    assert (code, data["moved"], data["taken"]) == (1, 0, 1)
    assert "another job holds their unique key: 1." in said
    assert state_of(console_store, "old") is State.DEAD
