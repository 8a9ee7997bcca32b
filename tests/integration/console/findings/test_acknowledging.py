"""A finding that somebody knows of is muted for a time, with a reason and a name, and counts again by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from django_jobs.models import AuditEntry
from django_jobs.operations import diagnosis
from django_jobs.operations.diagnosis import facts
from django_jobs.operations.diagnosis.looks import LongRun, Work
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db

HOUR = 3_600_000


def jobs(*words: str) -> str:
    out = StringIO()
    with suppress(SystemExit):
        call_command("jobs", *words, stdout=out)
    return out.getvalue()


@pytest.fixture
def unserved(safe_store: Store, filler: Filler, clock: Clock) -> Store:
    """Two queues without a worker."""
    for queue in ("photos", "videos"):
        filler.add(queue=queue)
    return safe_store


def subjects() -> list[str]:
    return [each["subject"] for each in json.loads(jobs("findings", "--json")) if each["kind"] == "no_worker"]


def test_it_is_muted_for_a_time_and_counts_again_by_itself(unserved: Store, clock: Clock, root: Client) -> None:
    assert subjects() == ["photos", "videos"]
    jobs("acknowledge", "no_worker", "photos", "--for", "2", "--reason", "its machine comes on Monday")
    assert subjects() == ["videos"]
    said = jobs("findings")
    assert "1 job of photos is waiting" in said
    assert "its machine comes on Monday" in said
    page = root.get(BASE).text
    assert "its machine comes on Monday" in page
    jobs("acknowledge", "no_worker", "videos", "--reason", "this one, too")
    assert "No problems" not in root.get(BASE).text
    assert not diagnosis.check().is_well
    clock.advance(2 * HOUR)
    unserved.publish_worker("web-1:4711", worker_info(queues=["default", "mail"], children=[]), 60_000)
    assert "photos" in subjects()
    assert "videos" not in subjects()


def test_it_is_withdrawn_and_both_are_in_the_history(unserved: Store) -> None:
    jobs("acknowledge", "no_worker", "--reason", "why")
    assert subjects() == []
    jobs("acknowledge", "no_worker", "videos", "--undo")
    assert subjects() == ["videos"]
    done = AuditEntry.objects.order_by("pk").values_list("verb", "kind", "subject")
    assert list(done) == [
        ("acknowledge", "finding", "no_worker photos"),
        ("acknowledge", "finding", "no_worker videos"),
        ("withdraw", "finding", "no_worker videos"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no_worker", "nothing", "--reason", "x"), "No finding"),
        (("no_worker",), "reason"),
        (("no_worker", "--reason", "x", "--for", "-1"), "90 days"),
        (("no_worker", "--reason", "x", "--for", "1e9"), "90 days"),
        (("no_worker", "--reason", "x", "--for", "inf"), "--for is inf"),
        (("no_worker", "--undo"), "No acknowledged finding"),
    ],
)
def test_what_cannot_be_is_refused(unserved: Store, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("jobs", "acknowledge", *words)
    assert len(subjects()) == 2


def test_the_overview_has_a_button_for_those_who_may(
    unserved: Store, root: Client, person: Callable[..., Client]
) -> None:
    (found, _) = diagnosis.check().findings
    address, given = f"{BASE}acknowledge/", {"key": found.key, "hours": "24", "reason": "moving <b>"}
    assert "acknowledge/" not in person("view_jobs").get(BASE).text
    assert person("view_jobs", "retry_jobs").post(address, given).status_code == 403
    assert "1 job of photos is waiting" in root.get(address, {"key": found.key}).text
    assert root.post(address, {**given, "reason": ""}).status_code == 200, "it asks for a reason"
    assert len(subjects()) == 2
    page = root.post(address, given, follow=True).text
    assert "by root until" in page
    assert "moving &lt;b&gt;" in page
    assert subjects() == ["videos"]
    assert "moving" in root.get(f"{BASE}history/").text
    said = [root.post(address, {"key": found.key, "withdraw": "1"}, follow=True).text for _ in range(2)]
    assert ["It counted again already." in text for text in said] == [False, True]
    assert AuditEntry.objects.filter(verb="withdraw").count() == 1
    assert len(subjects()) == 2
    assert "This finding is over." in root.post(address, {**given, "key": "x"}, follow=True).text


def test_another_job_that_hangs_is_not_muted_with_the_first(
    safe_store: Store, clock: Clock, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [LongRun("mail", id, "shop.import", clock() - 600_000, 1000) for id in ("a", "b")]
    monkeypatch.setattr(facts.looks, "running_work", lambda *_: Work(long))
    first, second = diagnosis.check().findings
    assert "Job b (shop.import)" in root.get(f"{BASE}acknowledge/", {"key": second.key}).text
    root.post(f"{BASE}acknowledge/", {"key": second.key, "hours": "72", "reason": "a huge import"})
    assert [each.job for each in diagnosis.check().findings] == [first.job] == ["a"]
    assert [each.job for each, _ in diagnosis.check().acknowledged] == ["b"]


@pytest.mark.parametrize("value", [7, [], ["a", "b", "c"], [2**60, 1, 2], None, {"a": 1}])
def test_a_damaged_entry_mutes_nothing(unserved: Store, value: Any) -> None:
    unserved.update_document("acknowledged", {diagnosis.check().findings[0].key: value})
    assert len(subjects()) == 2
