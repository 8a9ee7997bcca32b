"""The page of one job that `@job` registered, as in a project."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.template import Context, Template
from django.test import Client

from django_jobs import job, operations
from django_jobs.core import registry
from django_jobs.core.values import State
from django_jobs.enqueueing.decorator import JobFunction
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

runs: list[str] = []


def clean_up() -> None:
    """A job that needs no arguments, so that a template could call it."""
    runs.append("ran")


@pytest.fixture
def clean_up_job() -> Iterator[JobFunction[..., ..., None]]:
    runs.clear()
    yield job(name="shop.clean_up")(clean_up)
    registry.unregister("shop.clean_up")


@pytest.mark.django_db
def test_looking_at_a_job_does_not_run_it(
    console_store: Store, root: Client, clean_up_job: JobFunction[..., ..., None]
) -> None:
    id = Filler(console_store).add("shop.clean_up", [[], {}], run_in=3_600_000)
    page = root.get(f"{BASE}job/default/{id}/").text
    assert "shop.clean_up" in page
    assert "This process has no job of that name" not in page
    assert runs == []


def test_a_template_of_the_project_does_not_run_a_job_that_it_shows(
    clean_up_job: JobFunction[..., ..., None],
) -> None:
    shown = Template("{{ task.name }}{% if task %} is a job{% endif %}").render(Context({"task": clean_up_job}))
    assert shown == "shop.clean_up is a job"
    assert runs == []


@pytest.mark.django_db
@pytest.mark.parametrize("name", [None, "shop.send_receipt"], ids=["its queue", "its job type"])
def test_a_job_that_a_pause_keeps_waiting_says_so(name: str | None, console_store: Store, root: Client) -> None:
    filler = Filler(console_store)
    waits, ended = filler.add(), filler.make(State.SCHEDULED)
    console_store.cancel("default", [ended])
    console_store.pause("default", name=name, reason="the disk is full")
    assert "the disk is full" in root.get(f"{BASE}job/default/{waits}/").text
    assert "the disk is full" not in root.get(f"{BASE}job/default/{ended}/").text


@pytest.mark.django_db
def test_attempts_that_no_longer_count_say_so(console_store: Store, root: Client) -> None:
    id = Filler(console_store).make(State.DEAD, "no answer", "builtins.TimeoutError")
    address = f"{BASE}job/default/{id}/"
    assert "Attempt 1" in root.get(address).text
    assert "not counted" not in root.get(address).text
    console_store.revive("default", [id])
    assert "not counted" in root.get(address).text
    console_store.kill("default", [id], "by hand")
    assert "Attempt 0" not in root.get(address).text


@pytest.mark.django_db
def test_only_the_meta_of_the_project_is_shown(console_store: Store, root: Client) -> None:
    handle = (
        job(name="shop.with_meta")(clean_up)
        .using(job_id="nightly-7", meta={"request": "r1"}, on_commit=False)
        .enqueue()
    )
    page = root.get(f"{BASE}job/default/{handle.id}/").text
    registry.unregister("shop.with_meta")
    assert "r1" in page
    assert "nonce" not in page


@pytest.mark.django_db
def test_what_names_a_builtin_error_is_what_python_prints(console_store: Store, root: Client) -> None:
    id = Filler(console_store).make(State.DEAD, "no such order", "builtins.ValueError")
    page = root.get(f"{BASE}job/default/{id}/").text
    assert "ValueError" in page
    assert "builtins" not in page


def args_of(store: Store, id: str) -> bytes:
    info = store.get("default", id)
    assert info is not None
    return decode(id, "default", info.record).args


@pytest.mark.django_db
def test_an_edit_does_not_undo_that_of_somebody_else(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.SCHEDULED, call=[[1], {"email": "ada@example.com"}])
    url = f"{BASE}job/default/{id}/edit/"
    shown = dict(re.findall(r'type="hidden" name="(state|as_of|was)" value="([^"]*)"', root.get(url).text))
    operations.edit("default", id, [1], {"email": "grace@example.com"})
    mine = {"arguments": '[[2], {"email": "ada@example.com"}]', "wait": "1"}
    page = root.post(url, mine | shown).text
    assert "Somebody has changed the arguments in the meantime." in page
    assert "grace@example.com" in page
    assert args_of(console_store, id) == b'[[1],{"email":"grace@example.com"}]'
    shown = dict(re.findall(r'type="hidden" name="(state|as_of|was)" value="([^"]*)"', page))
    assert root.post(url, mine | shown).status_code == 302
    assert args_of(console_store, id) == b'[[2],{"email":"ada@example.com"}]'
