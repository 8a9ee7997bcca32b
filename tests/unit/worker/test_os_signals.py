"""What counts as being told to stop, and what as being told twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from django_jobs.worker.os_signals import SAME_ORDER, Signals
from tests.conftest import Seconds


@pytest.fixture
def signals(time: Seconds) -> Iterator[Signals]:
    """The handlers of a parent, in this process."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    before = {number: signal.getsignal(number) for number in numbers}
    signals = Signals(time)
    signals.install(for_parent=True)
    yield signals
    for number, handler in before.items():
        signal.signal(number, handler)
    signals.close()


def test_signals_at_the_same_moment_are_one_order(signals: Signals, time: Seconds) -> None:
    signal.raise_signal(signal.SIGTERM)
    time.now += SAME_ORDER * 0.6
    signal.raise_signal(signal.SIGINT)
    time.now += SAME_ORDER * 0.3
    signal.raise_signal(signal.SIGTERM)

    assert signals.stops == 1


def test_a_later_signal_is_a_second_order(signals: Signals, time: Seconds) -> None:
    signal.raise_signal(signal.SIGTERM)
    time.now += SAME_ORDER
    signal.raise_signal(signal.SIGTERM)

    assert signals.stops == 2


def test_signals_that_go_on_and_on_are_a_second_order_all_the_same(signals: Signals, time: Seconds) -> None:
    """Time counts from the first, not from the last."""
    for _ in range(4):
        signal.raise_signal(signal.SIGTERM)
        time.now += SAME_ORDER * 0.4

    assert signals.stops == 2


def test_what_is_no_order_to_stop_takes_no_part(signals: Signals) -> None:
    signal.raise_signal(signal.SIGCHLD)

    assert signals.stops == 0
