"""Waiting signals: in order, bounded, and not given again once a maintenance process has begun to send them."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.events.signal_events import SignalEvent
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


def test_no_more_is_kept_than_memory_is_meant_for_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(signal_sender, "MOST", 2)
    waiting, line = unsent_signals("a", "b", "c"), Line()
    waiting.give(line)  # type: ignore[arg-type]
    assert line.ids == ["a", "b"]
    assert "job_dead of job c is not sent" in caplog.text
