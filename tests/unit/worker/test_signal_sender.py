"""Waiting signals: in order, bounded, and not given again once a maintenance process has begun to send them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_jobs.events.signal_events import SignalEvent, from_words, to_words
from django_jobs.worker import signal_sender
from django_jobs.worker.messages import SendSignal
from django_jobs.worker.signal_sender import UnsentSignals


class Line:
    """A channel with room for a number of messages."""

    def __init__(self, room: int = 100) -> None:
        self.room, self.ids = room, []  # type: ignore[var-annotated]

    def send(self, message: SendSignal) -> bool:
        if len(self.ids) >= self.room:
            return False
        self.ids.append(message.signal_event["id"])
        return True


def signal_event(id: str, **more: Any) -> SignalEvent:
    return SignalEvent("job_dead", "shop.work", "q", id, 1, more)


def unsent_signals(*ids: str) -> UnsentSignals:
    made = UnsentSignals()
    for id in ids:
        made.add(signal_event(id))
    return made


def test_signals_are_given_once_and_in_order_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_sender, "AT_ONCE", 2)
    waiting, line = unsent_signals("a", "b", "c"), Line()
    waiting.give(line)  # type: ignore[arg-type]
    waiting.give(line)  # type: ignore[arg-type]
    assert line.ids == ["a", "b"]
    waiting.begun()
    waiting.give(line)  # type: ignore[arg-type]
    assert line.ids == ["a", "b", "c"]

    narrow = Line(room=1)
    waiting = unsent_signals("a", "b")
    waiting.give(narrow)  # type: ignore[arg-type]
    narrow.room = 2
    waiting.give(narrow)  # type: ignore[arg-type]
    assert narrow.ids == ["a", "b"]


def test_signals_that_a_dead_maintenance_process_had_not_begun_go_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, next_maintenance = unsent_signals("a", "b", "c"), Line()
    waiting.give(Line())  # type: ignore[arg-type]
    waiting.begun()
    waiting.sent()
    waiting.begun()
    waiting.maintenance_died()
    assert waiting
    waiting.give(next_maintenance)  # type: ignore[arg-type]
    assert next_maintenance.ids == ["c"]
    waiting.begun()
    assert waiting, "it is being told"
    waiting.sent()
    assert not waiting


def test_no_more_is_kept_than_memory_is_meant_for_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(signal_sender, "MOST", 2)
    waiting, line = unsent_signals("a", "b", "c"), Line()
    waiting.give(line)  # type: ignore[arg-type]
    assert line.ids == ["a", "b"]
    assert "job_dead of job c is not sent" in caplog.text


@pytest.mark.parametrize("error", ["its worker was lost", TimeoutError("ran longer than 3 s")])
def test_a_signal_is_the_same_after_its_way_through_json(error: Any) -> None:
    sent = signal_event("a", error=error, outcome="timeout")
    got = from_words(json.loads(json.dumps(to_words(sent))))
    assert got._replace(more={}) == sent._replace(more={})
    assert (type(got.more["error"]), str(got.more["error"])) == (type(error), str(error))
    assert got.more["outcome"] == "timeout"
