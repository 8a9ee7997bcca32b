"""Which queue is looked into, how much is claimed, and when a worker gives up."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from django_jobs.conf import QueueSettings
from django_jobs.stores.values.answers import Outlook
from django_jobs.worker.child.queue_selector import LARGEST, LONGEST_REST, BatchSizer, QueuePicker
from django_jobs.worker.crash_loop import MOST_LOOPS, CrashLoop


def picker(weights: dict[str, int], *, strict: bool = False, seed: int = 7) -> QueuePicker:
    queues = [QueueSettings(name, priority=weight) for name, weight in weights.items()]
    made = QueuePicker(queues, strict=strict, rng=random.Random(seed).random)
    for name in weights:
        made.claimed(name, got=0, left=0, next_due=None, now=0.0)
    return made


@pytest.mark.accepts("G45", "O13")
def test_queues_with_work_are_picked_in_proportion_to_their_weight() -> None:
    weights = {"a": 100, "b": 300, "c": 600}
    queues = picker(weights)
    queues.set_backlog(dict.fromkeys(weights, 10**6))

    picks = Counter(queues.pick(1.0) for _ in range(20_000))

    for name, weight in weights.items():
        assert picks[name] == pytest.approx(20 * weight, rel=0.1)


@pytest.mark.accepts("G47")
def test_a_great_weight_comes_close_to_always_first() -> None:
    queues = picker({"first": 10_000, "second": 1})
    queues.set_backlog({"first": 5, "second": 5})

    assert Counter(queues.pick(1.0) for _ in range(1000))["first"] > 990


@pytest.mark.accepts("G46")
def test_an_empty_queue_is_never_picked() -> None:
    queues = picker({"empty": 100_000, "full": 1})
    queues.set_backlog({"full": 1})

    assert {queues.pick(1.0) for _ in range(100)} == {"full"}
    queues.claimed("full", got=1, left=0, next_due=None, now=1.0)
    assert queues.pick(1.0) is None


@pytest.mark.accepts("G47")
def test_strict_order_takes_the_highest_rank_and_chance_among_equals() -> None:
    queues = picker({"low": 1, "high": 5, "high too": 5}, strict=True)
    queues.set_backlog({"low": 9, "high": 9, "high too": 9})

    picks = Counter(queues.pick(1.0) for _ in range(2000))
    assert set(picks) == {"high", "high too"}
    assert picks["high"] == pytest.approx(1000, rel=0.1)


def test_a_queue_is_looked_into_when_its_next_job_is_due() -> None:
    queues = picker({"q": 1})
    queues.claimed("q", got=0, left=0, next_due=500, now=10.0)

    assert queues.pick(10.4) is None
    assert queues.pause(10.4, 2.0) == pytest.approx(0.1)
    assert queues.pick(10.5) == "q"


def test_a_queue_that_gives_nothing_rests_longer_each_time() -> None:
    queues, now, rests = picker({"paused": 1}), 0.0, []
    for _ in range(8):
        queues.claimed("paused", got=0, left=3, next_due=None, now=now)
        assert queues.pick(now) is None
        rests.append(queues.pause(now, 60.0))
        now += rests[-1]
        assert queues.pick(now) == "paused"

    assert rests == sorted(rests)
    assert rests[-1] == LONGEST_REST
    queues.claimed("paused", got=1, left=2, next_due=None, now=now)
    assert queues.pick(now) == "paused"


def test_a_queue_at_its_limit_is_looked_into_as_soon_as_a_job_has_ended_or_somebody_says_so() -> None:
    queues = picker({"limited": 1, "other": 1})
    for tell in (queues.made_room, queues.suspect):
        queues.claimed("limited", got=0, left=3, next_due=None, now=5.0)
        assert queues.pick(5.0) is None
        tell("limited")
        assert queues.pick(5.0) == "limited"


def test_a_queue_whose_head_may_not_run_is_asked_again_at_once_while_that_helps() -> None:
    queues = picker({"q": 1})
    queues.set_backlog({"q": 10_000})
    queues.claimed("q", got=0, left=9_500, next_due=None, now=5.0)
    assert queues.pick(5.0) == "q"
    queues.claimed("q", got=0, left=9_500, next_due=None, now=5.0)
    assert queues.pick(5.0) is None


def test_what_nobody_here_will_do_soon_is_handed_over_once() -> None:
    queues = picker({"told": 1, "soon": 1, "later": 1, "empty": 1, "claimed from": 1})
    queues.suspect("told")
    queues.set_outlook({"soon": Outlook(0, 1500), "later": Outlook(4, 9000), "claimed from": Outlook(3, 10)}, 1.0)

    assert queues.hand_over(4.0, keep="claimed from") == ["told", "soon"]
    assert queues.hand_over(4.0, keep="claimed from") == []
    assert queues.pause(1.0, 60.0) == pytest.approx(0.0)
    queues.claimed("claimed from", got=3, left=0, next_due=None, now=1.0)
    queues.claimed("later", got=4, left=0, next_due=8000, now=1.0)
    assert queues.pause(1.0, 60.0) == pytest.approx(8.0)


# -- batches ---------------------------------------------------------------------


def test_jobs_never_seen_come_in_small_batches() -> None:
    assert BatchSizer().size("q") == 8


@pytest.mark.accepts("O13")
def test_tiny_jobs_are_soon_claimed_in_large_batches_and_slow_ones_one_by_one() -> None:
    sizer = BatchSizer()
    for _ in range(5):
        sizer.observe("tiny", 0.00001 * 20, 20)
        sizer.observe("slow", 0.5, 1)

    assert sizer.size("tiny") == LARGEST
    assert sizer.size("slow") == 1


def test_one_slow_job_makes_the_next_batch_small() -> None:
    sizer = BatchSizer()
    for _ in range(20):
        sizer.observe("q", 0.001, 100)
    assert sizer.size("q") == LARGEST

    sizer.observe("q", 0.2, 1)
    assert sizer.size("q") <= 1


def test_nothing_run_teaches_nothing() -> None:
    sizer = BatchSizer()
    sizer.observe("q", 5.0, 0)
    assert sizer.size("q") == 8


# -- crash loops -------------------------------------------------------------------


def test_single_deaths_are_followed_by_a_new_child_at_once() -> None:
    loop = CrashLoop()

    assert [loop.died(second * 2.0) for second in range(50)] == [0.0] * 50
    assert not loop.is_hopeless


def test_ten_deaths_in_ten_seconds_bring_pauses_that_double_and_then_the_end() -> None:
    loop, now, pauses = CrashLoop(), 0.0, []
    while not loop.is_hopeless:
        pause = loop.died(now)
        now += 0.1 + pause
        if pause:
            pauses.append(pause)

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert len(pauses) == MOST_LOOPS


def test_deaths_that_a_job_is_to_blame_for_are_no_loop() -> None:
    loop = CrashLoop()
    for n in range(200):
        assert loop.died(n * 0.01) == 0.0
        loop.forgive()

    assert not loop.is_hopeless
