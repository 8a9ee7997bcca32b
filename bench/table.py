"""Prints numbers as a Markdown table."""

from __future__ import annotations


def show(title: str, rows: list[tuple[str, dict[str, float]]], relative_to: str | None = None) -> None:
    """One line per row; with `relative_to`, how many times slower each drains than that row."""
    if not rows:
        return
    keys = list(dict.fromkeys(key for _, numbers in rows for key in numbers))
    reference = dict(rows).get(relative_to or "", {}).get("drain")
    heads = ["", *keys, *(["times slower"] if reference else [])]
    print(f"\n**{title}**\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, numbers in rows:
        cells = [f"{numbers[key]:,.{2 if numbers[key] < 100 else 0}f}" if key in numbers else "" for key in keys]
        if reference:
            cells.append(f"{reference / numbers['drain']:.1f}" if numbers.get("drain") else "")
        print(f"| {name} | {' | '.join(cells)} |")
    print(flush=True)
