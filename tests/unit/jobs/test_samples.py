"""Logs of samples: texts that cannot be read, and sums of several queues."""

from __future__ import annotations

import json

import pytest

from django_jobs.samples.chart import Sampled, Stretch, add_up, stretches
from django_jobs.samples.log import ALL, COARSE, FINE, NOTHING, add_sample, fields_of, read, take, write

NOW = 500_000 * COARSE


@pytest.mark.parametrize(
    "text",
    ["", "null", "{}", "[1]", "[1,0,{},[[]]]", "[1,0,{},[[2,3]]]", '[1,0,{"a":[1]},[]]', "[Infinity,0,{},[]]",
     "[NaN,0,{},[]]", "[" * 100_000, '[1,0,[],[]]', '[1,0,{},[[2,"x",1,1,1]]]', "\0", "[1,0,{},5]"],
)  # fmt: skip
def test_a_log_that_cannot_be_read_counts_as_none(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("numbers", [[10**40, 0, {}, []], [-(10**40), 0, {}, [[5, 1, 2, 3, 4]]], [0, 1, {}, [[-5]]]])
def test_a_log_with_absurd_numbers_makes_a_chart(numbers: list[object]) -> None:
    found = stretches(Sampled(read(json.dumps(numbers)), {}, NOW), ALL, COARSE, 24, NOW)
    assert (found[0].start <= NOW - 23 * COARSE, found[-1].end) == (True, NOW + COARSE)


def test_a_log_is_read_as_it_was_written() -> None:
    log = add_sample(None, {"a": (1, 2, 3)}, NOW, COARSE)
    log = add_sample(log, {"a": (4, 2, 3), 'ä\n"b': (1, 0, 0)}, NOW + COARSE, COARSE)
    log = add_sample(log, {"a": (3, 2, 3)}, NOW + 2 * COARSE, COARSE)
    assert read(write(log)) == log


def test_the_hours_are_sampled_once_an_hour() -> None:
    stored = take({}, {}, NOW)
    assert set(stored) == {"taken", *fields_of(FINE), *fields_of(COARSE)}
    assert set(take(stored, {}, NOW + FINE)) == {"taken", *fields_of(FINE)}
    assert take(stored, {}, NOW + FINE - 1) == {}
    assert set(take(stored, {}, NOW + COARSE)) == set(stored)


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
