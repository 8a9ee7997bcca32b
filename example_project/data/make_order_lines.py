"""Make last year's order lines: `python example_project/data/make_order_lines.py`.  Fixed seed: the same every time.

Writes order_lines.csv, and order_lines.totals.json with sums that are counted while writing, so that the report made
from the file can be checked against sums that it did not compute itself.
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

LINES = 20_000
PRICES = {
    "stoneware-mug": 1850,
    "desk-lamp": 8900,
    "plant-pot": 2400,
    "linen-notebook": 1490,
    "glass-bottle": 2650,
    "wall-clock": 5400,
    "oak-stool": 12900,
    "wool-blanket": 9900,
}
COUNTRIES = ("DE", "FR", "NL", "AT", "DK", "PL", "IT")


def main(folder: Path) -> None:
    """Write both files into `folder`.  Prices are in cents here, and in euros with two decimals in the file."""
    pick = random.Random(2025)
    months: Counter[str] = Counter()
    products: Counter[str] = Counter()
    order = 100_000
    with (folder / "order_lines.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["date", "order", "product", "quantity", "unit_price", "country"])
        for number in range(LINES):
            day = date(2025, 1, 1) + timedelta(days=number * 365 // LINES)
            order += pick.random() < 0.55
            product = pick.choice(list(PRICES))
            quantity = pick.choice((1, 1, 1, 2, 2, 3, 6))
            cents = PRICES[product] * pick.choice((100, 100, 100, 90, 80)) // 100
            rows.writerow([day, order, product, quantity, f"{cents // 100}.{cents % 100:02}", pick.choice(COUNTRIES)])
            months[f"{day:%Y-%m}"] += cents * quantity
            products[product] += cents * quantity
    totals = {"lines": LINES, "total_cents": months.total(), "months": months, "products": products}
    (folder / "order_lines.totals.json").write_text(json.dumps(totals, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(__file__).parent)
