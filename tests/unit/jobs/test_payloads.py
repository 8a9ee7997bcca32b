"""Jobs as they are shown: masked, readable, whatever they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from django_jobs.core.values import Attempt, Job, JobInfo, State
from django_jobs.serialization import payloads
from django_jobs.serialization.arguments import dump
from django_jobs.serialization.display import LENGTH, readable
from django_jobs.serialization.masking import shown_call
from django_jobs.serialization.record import encode
from tests.support.console_data import shop_jobs


@pytest.fixture(autouse=True)
def _shop() -> Iterator[None]:
    with shop_jobs():
        yield


def info(name: str = "shop.send_receipt", call: Any = None, state: State = State.DEAD, **more: Any) -> JobInfo:
    args = json.dumps(call if call is not None else [[7], {}]).encode()
    return JobInfo("a", "default", encode(Job("a", "default", name, args, 1_790_000_000_000)), state, **more)


def test_a_payload_is_json_with_times_in_utc() -> None:
    attempt = Attempt(1, "failed", 1_790_000_001_000, 1500, "w", "KeyError", "'x'", "Traceback…")
    payload = payloads.job_payload(info(at=1_790_000_002_000, failures=1, attempts=(attempt,)))
    json.dumps(payload, allow_nan=False)
    assert payload["enqueued_at"] == "2026-09-21T14:13:20.000+00:00"
    assert payload["finished_at"] == "2026-09-21T14:13:22.000+00:00"
    assert payload["error"] == "KeyError: 'x'"
    assert payload["log"][0]["run_time"] == 1.5
    assert (payload["args"], payload["kwargs"], payload["attempts"]) == ([7], {}, 1)


@pytest.mark.parametrize(
    ("state", "key"),
    [
        (State.SCHEDULED, "run_at"),
        (State.RETRY, "run_at"),
        (State.RUNNING, "started_at"),
        (State.SUCCEEDED, "finished_at"),
        (State.CANCELLED, "finished_at"),
    ],
)
def test_the_time_of_a_state_has_its_own_name(state: State, key: str) -> None:
    payload = payloads.job_payload(info(state=state, at=1_790_000_002_000))
    assert {each for each in ("run_at", "started_at", "finished_at") if payload[each]} == {key}


@pytest.mark.parametrize("call", [[[7, "4111"], {}], [[7], {"card_number": "4111"}], [[], {"card_number": "4111"}]])
def test_a_sensitive_argument_is_masked_wherever_it_stands(call: Any) -> None:
    shown = info("shop.charge_card", call)
    assert "4111" not in json.dumps(payloads.job_payload(shown))
    assert "4111" not in payloads.searchable_text(shown)
    assert payloads.HIDDEN in payloads.searchable_text(shown)


def test_arguments_can_be_left_out() -> None:
    payload = payloads.job_payload(info(result=b'"secret"'), show_arguments=False)
    assert not {"args", "kwargs", "meta", "result", "raw"} & set(payload)


@pytest.mark.parametrize("record", [b"", b"\xff\xfe", b"-\nx", b"-\nx\n\n\nno\n\n[]", b"+\n\n{\n\n1\n\n"])
def test_what_cannot_be_read_is_shown_as_its_bytes(record: bytes) -> None:
    payload = payloads.job_payload(JobInfo("a", "default", record, State.DEAD))
    assert payload["corrupt"]
    assert payload["raw"] == record.decode(errors="backslashreplace")
    json.dumps(payload)


@pytest.mark.parametrize("call", ["text", 7, None, [], [[]], [{}, []], [[], {}, 3]])
def test_arguments_that_are_no_call_are_none(call: Any) -> None:
    job = Job("a", "default", "shop.send_receipt", json.dumps(call).encode(), 0)
    assert shown_call(job) is None
    assert payloads.named_arguments(job) is None


def test_arguments_have_the_names_of_the_parameters() -> None:
    job = Job("a", "default", "shop.send_receipt", dump([7, "ada@example.com", "extra"], {"k": [1]}), 0)
    assert payloads.named_arguments(job) == [
        ("order_id", "7"),
        ("email", "ada@example.com"),
        ("3", "extra"),
        ("k", "[1]"),
    ]


@pytest.mark.parametrize("ms", [0, -1, 10**18, 253_402_300_800_000])
def test_times_that_no_calendar_holds_break_nothing(ms: int) -> None:
    json.dumps(payloads.job_payload(info(at=ms)))


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"$date": "2026-03-29"}, "2026-03-29"),
        ({"$datetime": "2026-03-29T01:30:00+00:00"}, "2026-03-29 01:30:00+00:00"),
        ({"$datetime": ["2026-03-29T01:30:00", "Europe/Berlin", 1]}, "2026-03-29 01:30:00 Europe/Berlin"),
        ({"$timedelta": [1, 2, 3]}, "1 day, 0:00:02.000003"),
        ({"$decimal": "1.50"}, "1.50"),
        ({"$model": ["shop.order", "7"]}, "shop.order 7"),
        ({"$bytes": "AA=="}, "base64:AA=="),
        ({"$tuple": [1, {"$date": "2026-03-29"}]}, '[1, "2026-03-29"]'),
        ({"$dict": [["$a", 1]]}, '{"$a": 1}'),
        ({"$unknown": 1}, '{"$unknown": 1}'),
        ({"$timedelta": "x"}, '{"$timedelta": "x"}'),
        ({"$model": []}, '{"$model": []}'),
        ("plain", "plain"),
        (None, "null"),
        ({"a": [1, 2]}, '{"a": [1, 2]}'),
    ],
)
def test_stored_values_are_text_for_people(stored: Any, text: str) -> None:
    assert readable(stored) == text


def test_long_values_are_cut() -> None:
    assert len(readable("x" * 10_000)) == LENGTH + 1
