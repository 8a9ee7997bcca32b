"""The median of several runs, and numbers as a Markdown table."""

from __future__ import annotations

import statistics


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each number."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def show(title: str, rows: list[tuple[str, dict[str, float]]]) -> None:
    """One line per row."""
    if not rows:
        return
    keys = list(dict.fromkeys(key for _, numbers in rows for key in numbers))
    print(f"\n**{title}**\n\n| {' | '.join(['', *keys])} |\n|{'---|' * (len(keys) + 1)}")
    for name, numbers in rows:
        cells = [f"{numbers[key]:,.{2 if numbers[key] < 100 else 0}f}" if key in numbers else "" for key in keys]
        print(f"| {name} | {' | '.join(cells)} |")
    print(flush=True)
