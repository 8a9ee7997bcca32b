"""The charts of the benchmark: bars as long as their numbers."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from bench import charts

ROWS = [
    ("django_jobs, 2 processes", {"drain": 40_000.0, "enqueue": 5.0}),
    ("A & B <peer>", {"drain": 10_000.0}),
    ("not measured", {"enqueue": 7.0}),
]


def test_the_bars_are_in_proportion_and_a_row_without_the_number_has_none(tmp_path: Path) -> None:
    path = charts.save(tmp_path, "Jobs per second, drained", ROWS, "drain")
    assert path.name == "bench-jobs-per-second-drained.svg"
    bars = [each for each in ElementTree.parse(path).iter() if each.get("rx") == "3"]
    first, second = (float(bar.get("width", 0)) for bar in bars)
    assert round(first / second, 2) == 4
    assert [bar.get("fill") for bar in bars] == [charts.OURS, charts.OTHERS]
    assert re.findall(r">([\d,]+)<", path.read_text()) == ["40,000", "10,000"]


def test_nothing_stands_out_of_the_picture(tmp_path: Path) -> None:
    root = ElementTree.fromstring(charts.chart("Much", [("x", {"n": 1e9}), ("y", {"n": 0.0})], "n"))
    for each in root:
        assert float(each.get("x", 0)) + float(each.get("width", 0)) <= charts.WIDTH
        assert float(each.get("y", 0)) + float(each.get("height", 0)) <= float(root.get("height", 0))
