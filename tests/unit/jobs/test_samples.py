"""Stretches of charts: sums of several queues."""

from __future__ import annotations

from django_jobs.samples.chart import NOTHING, Stretch, add_up


def one(*counts: tuple[int, int, int] | None) -> list[Stretch]:
    return [Stretch(n, n + 1, each) for n, each in enumerate(counts)]


def test_several_queues_are_added_up_where_all_are_known() -> None:
    first, second = one((1, 0, 0), NOTHING, (2, 1, 1)), one((5, 0, 0), (1, 1, 0), NOTHING)
    assert add_up([first, second]) == one((6, 0, 0), (1, 1, 0), (2, 1, 1))
    gap = [Stretch(0, 2, (7, 0, 0)), Stretch(2, 3, NOTHING)]
    assert add_up([first, gap]) == [Stretch(0, 2, (8, 0, 0)), Stretch(2, 3, (2, 1, 1))]
    assert add_up([]) == []


def test_a_queue_that_is_not_known_makes_the_sum_partial() -> None:
    assert add_up([one((1, 0, 0), None), one(None, None)]) == [Stretch(0, 1, (1, 0, 0), True), Stretch(1, 2, None)]
