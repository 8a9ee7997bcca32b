"""Last year's order lines, and the files made from them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile

from django.conf import settings

from shop.models import Order

SOURCE = settings.BASE_DIR / "data" / "order_lines.csv"
EXPECTED_LINES = 20_000
CATALOGUE = settings.BASE_DIR / "data" / "catalogue.csv"

#: The smallest workbook that spreadsheet programs open: path → content.
WORKBOOK = {
    "[Content_Types].xml": (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/xl/workbook.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
        '<Override PartName="/xl/sheet1.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>'
    ),
    "_rels/.rels": (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>'
    ),
    "xl/workbook.xml": (
        '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets>'
        '<sheet name="Orders" sheetId="1" r:id="r1"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" '
        'Target="sheet1.xml"/></Relationships>'
    ),
}
SHEET_HEAD = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
SHEET_END = "</sheetData></worksheet>"


class Line(NamedTuple):
    """One line of the file; `cents` is quantity times price."""

    month: str
    product: str
    cents: int
    cells: list[str]


def catalogue_lines() -> list[tuple[str, int]]:
    """Return name and price of each product of the supplier's catalogue."""
    with CATALOGUE.open(newline="", encoding="utf-8") as file:
        return [(row["name"], int(row["cents"])) for row in csv.DictReader(file)]


def order_lines() -> Iterator[Line]:
    """Read the file line by line: it may be larger than memory."""
    with SOURCE.open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            day, _, product, quantity, price, _ = row
            euros, cents = price.split(".")
            yield Line(day[:7], product, int(quantity) * (int(euros) * 100 + int(cents)), row)


def write_report(document_id: int, months: Counter[str], products: Counter[str]) -> str:
    """Write the sums as JSON; return the name under MEDIA_ROOT."""
    name = f"documents/sales-{document_id}.json"
    sums = {"total_cents": months.total(), "months": months, "products": products}
    part = _part(name)
    part.write_text(json.dumps(sums, indent=1))
    part.replace(settings.MEDIA_ROOT / name)
    return name


def write_spreadsheet(document_id: int, report: Callable[[int], None]) -> tuple[str, int]:
    """Write all lines as .xlsx, and call `report` with the number of lines from time to time; return name and lines."""
    name = f"documents/orders-{document_id}.xlsx"
    part = _part(name)
    count = 0
    with ZipFile(part, "w", ZIP_DEFLATED) as archive:
        for entry, text in WORKBOOK.items():
            archive.writestr(entry, text)
        with archive.open("xl/sheet1.xml", "w") as sheet:
            sheet.write(SHEET_HEAD.encode())
            for count, line in enumerate(order_lines(), start=1):
                cells = "".join(f'<c t="inlineStr"><is><t>{escape(cell)}</t></is></c>' for cell in line.cells)
                sheet.write(f"<row>{cells}</row>".encode())
                if count % 500 == 0:
                    report(count)
            sheet.write(SHEET_END.encode())
    part.replace(settings.MEDIA_ROOT / name)
    return name, count


def write_invoice(order: Order, payment: str) -> str:
    """Write the lines of an order, its total and the bank's receipt number; return the name under MEDIA_ROOT."""
    name = f"invoices/invoice-{order.pk}.txt"
    lines = [f"{line} · {line.quantity * line.price / 100:.2f} €" for line in order.lines.all()]
    part = _part(name)
    part.write_text("\n".join([*lines, f"Total {order.total / 100:.2f} €", f"Paid: {payment}", ""]), encoding="utf-8")
    part.replace(settings.MEDIA_ROOT / name)
    return name


def _part(name: str) -> Path:
    target = settings.MEDIA_ROOT / f"{name}.part"
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
