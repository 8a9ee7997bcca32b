"""What the parent shows to the process that answers probes is complete at every moment."""

from __future__ import annotations

from time import monotonic

import pytest

from django_jobs.worker import health_process
from django_jobs.worker.health_process import HANGS, Board


def test_the_last_text_is_there_while_the_parent_writes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is unhealthy must not look well for a moment because its text changes."""
    board, seen = Board(), list[tuple[list[str], list[str]]]()
    board.write(["A child has not answered for 9 s."], [])
    is_written = True

    def look() -> float:
        """Between the two writes of a report."""
        nonlocal is_written
        if is_written:
            is_written = False
            seen.append(board.read())
        return monotonic()

    monkeypatch.setattr(health_process, "monotonic", look)
    board.write(["A child has not answered for 11 s."], ["The worker is stopping."])
    assert seen == [(["A child has not answered for 9 s."], [])]
    assert board.read() == (["A child has not answered for 11 s."], ["The worker is stopping."])


def test_a_text_that_does_not_change_is_as_new_as_its_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    board, now = Board(), monotonic()
    for later in (0.0, HANGS, 2 * HANGS):
        monkeypatch.setattr(health_process, "monotonic", lambda later=later: now + later)
        board.write([], ["No process runs jobs."])
        assert board.read() == ([], ["No process runs jobs."])
    monkeypatch.setattr(health_process, "monotonic", lambda: now + 3 * HANGS + 1)
    assert "has hung" in board.read()[0][0]


def test_a_text_that_is_too_long_still_says_that_something_is_wrong() -> None:
    board = Board()
    board.write(["x" * 5000], [])
    assert board.read() == (["There are problems, with long names."], [])
