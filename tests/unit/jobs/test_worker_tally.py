"""What a child counts in shared memory, and what its parent adds up."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

import pytest

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Cancelled, Dead, HandedOver, Outcome, Parked, RetryIn, SnoozeFor, Succeeded
from django_jobs.core.values import Attempt, Claim, Recovered, State
from django_jobs.samples.worker import ENDS
from django_jobs.worker.shared_memory import SharedMemory
from django_jobs.worker.tally import OTHERS, Tally, Totals

LINE = Attempt(1, "failed", 0)


def ended(outcome: Outcome) -> Attempted:
    return Attempted(Claim("x", "q", 1, b""), outcome)


def named(counts: list[int]) -> dict[str, int]:
    return {end: number for end, number in zip(ENDS, counts, strict=True) if number}


@pytest.fixture
def tally() -> Tally:
    return SharedMemory(["a"], 2).tally


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        (Succeeded(), {"succeeded": 1}),
        (RetryIn(5, LINE), {"failed": 1, "retried": 1}),
        (Dead(LINE), {"failed": 1, "dead": 1}),
        (Dead(LINE._replace(outcome="worker_lost")), {"dead": 1}),
        (Cancelled(LINE), {"cancelled": 1}),
        (SnoozeFor(5), {"snoozed": 1}),
        (Parked("digest"), {}),
        (HandedOver("remote:x", 5), {}),
    ],
)
def test_each_end_counts_as_in_the_totals_of_a_queue(tally: Tally, outcome: Outcome, counted: dict[str, int]) -> None:
    tally.add([ended(outcome)])
    assert named(tally.read()) == counted


def test_a_call_that_ended_nothing_counts_nothing(tally: Tally) -> None:
    tally.add([])
    assert named(tally.read()) == {}


def test_no_addition_of_any_thread_is_lost(tally: Tally) -> None:
    threads, start = 2 + OTHERS, Barrier(2 + OTHERS)

    def work() -> None:
        start.wait()
        for _ in range(3000):
            tally.add([ended(Succeeded())] * 3)
            tally.add([ended(RetryIn(5, LINE)), ended(SnoozeFor(5))])

    all_threads = [Thread(target=work) for _ in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    number = 3000 * threads
    assert named(tally.read()) == {"succeeded": 3 * number, "failed": number, "retried": number, "snoozed": number}


def test_more_threads_than_were_expected_write_into_no_other_memory() -> None:
    shared = SharedMemory(["a"], 1)
    for _ in range(OTHERS + 9):
        thread = Thread(target=shared.tally.add, args=([ended(Succeeded())],))
        thread.start()
        thread.join()
    assert named(shared.tally.read()) == {"succeeded": OTHERS + 9}
    assert shared.batches[0].words[0] == 0


def test_the_totals_of_a_worker_outlive_its_children() -> None:
    totals, first, second = Totals(), SharedMemory(["a"], 1).tally, SharedMemory(["a"], 1).tally
    first.add([ended(Succeeded())] * 7)
    second.add([ended(Dead(LINE))])
    assert named(totals.read([first, second])) == {"succeeded": 7, "failed": 1, "dead": 1}
    totals.ended(first)
    assert named(totals.read([second])) == {"succeeded": 7, "failed": 1, "dead": 1}


def test_the_totals_have_what_the_parent_recorded_for_a_dead_child() -> None:
    totals = Totals()
    totals.recorded([ended(Succeeded()), ended(RetryIn(5, LINE))])
    known: Any = dict.fromkeys(Recovered._fields, "")
    totals.recovered([Recovered(**(known | {"state": state})) for state in (State.DEAD, State.QUEUED, State.CANCELLED)])
    assert named(totals.read([])) == {"succeeded": 1, "failed": 1, "retried": 1, "dead": 1, "cancelled": 1}
