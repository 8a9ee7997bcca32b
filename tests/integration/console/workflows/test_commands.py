"""`manage.py jobs workflows` and `jobs workflow`."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_jobs import browse
from tests.contract.workflows.steps import RAN, run
from tests.integration.console.workflows import flows

pytestmark = pytest.mark.django_db


def jobs(*words: str, code: int = 0) -> str:
    """What the command prints."""
    out = StringIO()
    if code:
        with pytest.raises(SystemExit) as ended:
            call_command("jobs", *words, stdout=out)
        assert ended.value.code == code
    else:
        call_command("jobs", *words, stdout=out)
    return out.getvalue()


def as_json(*words: str, code: int = 0) -> Any:
    return json.loads(jobs(*words, "--json", code=code))


def test_the_list_is_newest_first_and_filters(store):
    done, stopped, batch = flows.order(store), flows.order(store, dead="packed"), flows.batch(store)
    assert sorted(flows.ids(as_json("workflows"))) == sorted([done, stopped, batch])
    assert flows.ids(as_json("workflows", "--state", "stopped")) == [stopped]
    assert len(as_json("workflows", "--limit", "2")) == 2
    text = jobs("workflows")
    assert "stopped (1 dead)  3/4" in text
    assert "succeeded         4/4" in text
    assert text.endswith("Shown: 3. Checked: 3 of 3 workflows.\n")
    with pytest.raises(CommandError, match="use 1 to 10,000"):
        jobs("workflows", "--limit", "0")


def test_one_is_shown_with_its_steps_and_why_it_is_stopped(store):
    id = flows.order(store, dead="packed")
    text = jobs("workflow", id)
    assert "stopped (1 dead)" in text
    assert "3/4 (75%)" in text
    assert f"dead:          {id}.1: django_jobs.exceptions.Fail: packed" in text
    data = as_json("workflow", id)
    assert [step["state"] for step in data["steps"]] == ["succeeded", "dead", "succeeded", "waiting"]
    assert data["steps"][3]["after"] == [1, 2]
    assert data["stopped_by"] == {"dead": 1}
    assert "Shown: 2 of 4 steps." in jobs("workflow", id, "--limit", "2")


def test_a_batch_is_shown_with_its_jobs_and_callbacks(store):
    id = flows.batch(store, "a", "b", dead="b")
    text = jobs("workflow", id)
    assert "on_success not started" in text
    assert "tests.steps.act" in text
    data = as_json("workflow", id)
    assert sorted(step["state"] for step in data["steps"]) == ["dead", "succeeded"]
    assert data["steps"][0]["number"] is None


def test_retry_lets_it_go_on(store):
    id = flows.order(store, dead="packed")
    assert jobs("workflow", id, "--retry") == "retry: 1 step.\n"
    RAN.clear()
    assert run(store) == ["packed", "mailed"]
    assert as_json("workflow", id)["state"] == "succeeded"


def test_a_step_that_may_have_started_is_retried_only_with_yes(store):
    id = flows.charged_and_dead(store)
    assert "card" in jobs("workflow", id)
    assert "4111 1111" not in jobs("workflow", id)
    data = as_json("workflow", id, "--retry", code=1)
    assert (data["moved"], data["held"]) == (0, [f"{id}.0"])
    assert "repeat with --yes" in jobs("workflow", id, "--retry", code=1)
    assert as_json("workflow", id, "--retry", "--yes")["moved"] == 1
    assert run(store) == []
    assert browse.workflow(id).state == "succeeded"


def test_cancel_asks_first(store, monkeypatch):
    id = flows.order_waiting()
    answers = iter(["n", "y"])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    with pytest.raises(CommandError, match="Nothing was cancelled"):
        jobs("workflow", id, "--cancel")
    assert browse.workflow(id).state == "running"
    assert "is cancelled" in jobs("workflow", id, "--cancel")
    assert browse.workflow(id).state == "cancelled"
    with pytest.raises(CommandError, match="was cancelled"):
        jobs("workflow", id, "--retry")


def test_cancel_without_a_terminal_needs_yes(store, monkeypatch):
    id = flows.order_waiting()

    def nobody(question):
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    with pytest.raises(CommandError, match="Add --yes"):
        jobs("workflow", id, "--cancel")
    assert as_json("workflow", id, "--cancel", "--yes")["state"] == "cancelled"
    assert as_json("workflow", id, "--cancel", "--yes")["state"] == "cancelled"
    assert as_json("workflow", flows.order(store), "--cancel", "--yes", code=1)["state"] == "succeeded"


def test_an_id_that_is_not_there(store):
    with pytest.raises(CommandError, match="There is no workflow or batch"):
        jobs("workflow", "w1")
    with pytest.raises(CommandError, match="--yes belongs to"):
        jobs("workflow", "w1", "--yes")


@pytest.mark.parametrize("found", [{}, {"kind": "workflow"}])
def test_the_parts_of_the_list_have_each_workflow_once(store, found):
    """Also if others are added and removed between two parts."""
    ids = [flows.order_waiting(f"order {n}") for n in range(12)]
    first = browse.find_workflows(limit=5, **found)
    newest = [flows.order_waiting("new") for _ in range(3)]
    second = browse.find_workflows(after=first.following, limit=5, **found)
    for id in [*newest, *(info.id for info in first.rows[:2])]:
        store.forget_workflow(id)
    third = browse.find_workflows(after=second.following, limit=5, **found)
    assert sorted(info.id for part in (first, second, third) for info in part.rows) == sorted(ids)
    assert third.following == ""
    for wrong in ("x", "1", "-1_w", "²_w", f"1_{'w' * 1000}"):
        with pytest.raises(ValueError, match="is not a position"):
            browse.find_workflows(after=wrong)
