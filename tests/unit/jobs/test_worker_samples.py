"""The samples that a worker publishes of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_jobs.browse.trends import worker_trend
from django_jobs.core.values import WorkerInfo
from django_jobs.samples.chart import stretches
from django_jobs.samples.log import ALL, COARSE, FINE, NOTHING
from django_jobs.samples.worker import ENDS, WorkerSamples, sampled_of, totals_of

NOW = 500_000 * COARSE


def report(samples: WorkerSamples, now: int, *counts: int) -> dict[str, Any]:
    """As it is read from the store."""
    totals = dict.fromkeys(ENDS, 0) | dict(zip(ENDS, counts, strict=False))
    samples.take((totals["succeeded"], totals["failed"], totals["dead"]), now)
    info: dict[str, Any] = json.loads(json.dumps({"at": now, "totals": totals, "samples": samples.as_json()}))
    return info


def numbers(info: dict[str, Any], width: int, number: int) -> list[Any]:
    sampled = sampled_of(info, width)
    assert sampled is not None
    return [each.counts for each in stretches(sampled, ALL, width, number, sampled.now)]


def test_before_a_worker_started_it_did_nothing_and_that_is_known() -> None:
    samples = WorkerSamples(NOW + 130_000)
    info = report(samples, NOW + 200_000, 4, 1)
    for width, number in ((FINE, 12), (COARSE, 24), (COARSE, 168)):
        assert numbers(info, width, number) == [NOTHING] * (number - 1) + [(4, 1, 0)]


def test_each_five_minutes_and_each_hour_have_what_happened_in_them() -> None:
    samples, done = WorkerSamples(NOW), 0
    for second in range(5, 3 * 3600, 5):
        done += second % 10 == 0
        info = report(samples, NOW + second * 1000, done, 0, 0)
    assert numbers(info, FINE, 12) == [(30, 0, 0)] * 11 + [(29, 0, 0)]
    assert numbers(info, COARSE, 24) == [NOTHING] * 21 + [(360, 0, 0)] * 2 + [(359, 0, 0)]


def test_a_report_of_a_busy_week_is_small() -> None:
    samples, chance = WorkerSamples(NOW), 7
    for hour in range(1, 10 * 24):
        for minute in range(0, 60, 5):
            chance += 7919
            done = 100_000 * (hour * 12 + minute // 5) + chance % 9973
            info = report(samples, NOW + hour * COARSE + minute * 60_000 + 3000, done, done // 50, done // 5000)
    assert len(json.dumps(info["samples"], separators=(",", ":"))) < 5_500
    assert len(numbers(info, COARSE, 168)) == 168


def test_an_idle_worker_needs_one_sample_however_long_it_runs() -> None:
    samples = WorkerSamples(NOW)
    for hour in range(1, 10 * 24):
        info = report(samples, NOW + hour * COARSE + 4000)
    assert len(json.dumps(info["samples"])) < 100
    assert numbers(info, COARSE, 168) == [NOTHING] * 168


def test_a_clock_that_was_set_back_begins_again() -> None:
    samples = WorkerSamples(NOW)
    report(samples, NOW + 5 * COARSE, 10)
    info = report(samples, NOW + 2 * COARSE, 12)
    assert numbers(info, COARSE, 3) == [None, None, NOTHING]


def test_a_report_without_numbers_is_not_known_and_not_zero() -> None:
    assert totals_of({}) is None
    trend = worker_trend(WorkerInfo("old", NOW, {"pid": 7}), "day")
    assert [each.counts for each in trend.stretches] == [None] * 24
    assert trend.stretches[-1].end == NOW + COARSE


@pytest.mark.parametrize("value", [None, -1, 1.5, True, "7", 2**80, [], {}, float("inf")])
@pytest.mark.parametrize("place", ["at", "totals", "samples", "end", "start", "span", "count", "most"])
def test_a_report_that_cannot_be_read_is_not_known(place: str, value: Any) -> None:
    samples = WorkerSamples(NOW)
    report(samples, NOW + COARSE, 7)
    info = report(samples, NOW + 2 * COARSE, 9)
    hours = info["samples"]["3600"]
    match place:
        case "end":
            info["totals"]["snoozed"] = value
        case "start":
            hours[0] = value
        case "span":
            hours[2][0] = value
        case "count":
            hours[1] = value
        case "most":
            hours[2][-1] = [value, value]
        case _:
            info[place] = value
    trend = worker_trend(WorkerInfo("w", NOW, info), "day")
    assert [each.counts for each in trend.stretches] == [None] * 24
