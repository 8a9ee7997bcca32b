"""Bars for the overview: numbers → rectangles.  Pure; the template writes the SVG, without style attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

WIDTH, HEIGHT = 600, 120
GAP = 1.5


class Bar(NamedTuple):
    """One rectangle, in the units of the drawing, and its tooltip."""

    x: float
    y: float
    width: float
    height: float
    css: str
    says: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of bars over time."""

    title: str
    #: (css class of the bars, their total as text): serves as key and summary.
    sums: list[tuple[str, str]]
    bars: list[Bar]
    #: label at the top of the scale.
    top: str
    first: str
    last: str
    empty: bool
    width: int = WIDTH
    height: int = HEIGHT
    middle: float = HEIGHT / 2
    floor: float = HEIGHT - 0.5


def stacked(layers: Sequence[tuple[str, Sequence[float]]], says: Sequence[str]) -> tuple[list[Bar], float]:
    """Return bars of several layers, lowest first (css class and values for each), and the highest sum."""
    sums = [sum(values) for values in zip(*(values for _, values in layers), strict=True)]
    highest = max(sums, default=0)
    step = WIDTH / max(1, len(sums))
    bars: list[Bar] = []
    for i, total in enumerate(sums):
        if not total:
            continue
        bottom = float(HEIGHT)
        for css, values in layers:
            if not values[i]:
                continue
            # A thing that happened once must be visible next to one that happened a million times.
            height = max(2.0, values[i] / highest * (HEIGHT - 4))
            bottom -= height
            bars.append(
                Bar(
                    round(i * step + GAP / 2, 2), round(bottom, 2), round(step - GAP, 2), round(height, 2), css, says[i]
                )
            )
    return bars, highest
