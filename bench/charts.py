"""Draws the rows of a table as bars, in an SVG file: `python -m bench --charts FOLDER`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

Rows = Sequence[tuple[str, dict[str, float]]]

#: Pixels.
WIDTH, NAMES, NUMBERS, BAR, GAP, TOP = 800, 250, 110, 22, 8, 48
OURS, OTHERS = "#1d4ed8", "#94a3b8"


def chart(title: str, rows: Rows, key: str) -> str:
    """Return bars of the number `key` of each row, longest for the largest; rows without it are left out.

    The bars of rows whose name begins with "django_jobs" have a colour of their own, if others stand beside them."""
    found = [(name, numbers[key]) for name, numbers in rows if key in numbers]
    most = max((value for _, value in found), default=0) or 1.0
    compared = any(not name.startswith("django_jobs") for name, _ in found)
    height = TOP + len(found) * (BAR + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}: {escape(key)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#f6f8fa"/>',
        f'<text x="16" y="28" fill="#111827" font-weight="600">{escape(title)}</text>',
    ]
    for n, (name, value) in enumerate(found):
        y, length = TOP + n * (BAR + GAP), (WIDTH - NAMES - NUMBERS) * value / most
        colour = OURS if name.startswith("django_jobs") or not compared else OTHERS
        parts += [
            f'<text x="{NAMES - 10}" y="{y + 16}" text-anchor="end" fill="#111827">{escape(name)}</text>',
            f'<rect x="{NAMES}" y="{y}" width="{max(length, 1):.1f}" height="{BAR}" rx="3" fill="{colour}"/>',
            f'<text x="{NAMES + length + 8:.1f}" y="{y + 16}" fill="#111827">{_short(value)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def save(folder: Path, title: str, rows: Rows, key: str) -> Path:
    """Write the chart to a file that is named after the title."""
    path = folder / f"bench-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}.svg"
    path.write_text(chart(title, rows, key))
    return path
