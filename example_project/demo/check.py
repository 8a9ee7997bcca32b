"""Checks the effects of the jobs: mails, pictures, files and the partner's records, not the queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.message import Message
from zipfile import ZipFile

from django.conf import settings
from django.db.models import F
from PIL import Image

from demo.services import MailSink, Partner
from demo.work import DATA, DECLINED_EVERY, NEW_CARTS, PHOTOS
from shop.models import Cart, Document, FrontPage, Order, Product, SearchIndex


def effects(mail: MailSink, partner: Partner, orders: int) -> Iterator[tuple[bool, str]]:
    """Yield for each promise whether it was kept, and what was found."""
    placed = set(Order.objects.values_list("pk", flat=True))
    yield len(placed) == orders, f"{len(placed)} orders placed"
    once = all(count == 1 for count in partner.charges.values()) and set(partner.charges) == placed
    yield once, f"{len(partner.charges)} cards charged, each once"
    declined = Order.objects.filter(state=Order.State.DECLINED).count()
    yield declined == orders // DECLINED_EVERY, f"{declined} cards declined"

    paid = set(Order.objects.filter(state=Order.State.PAID).values_list("pk", flat=True))
    told = paid == set(partner.deliveries) and partner.refused > 0
    yield told, f"{len(paid)} paid orders at the warehouse, which had answered 500 to {partner.refused} calls"
    mails = {message["Subject"]: text_of(message) for message in mail.messages}
    wanted = {f"Your order {pk}": (f"parcel P-{pk:06}", f"Paid: R-{pk:06}") for pk in paid}
    whole = all(part in mails.get(subject, "") for subject, parts in wanted.items() for part in parts)
    yield (
        whole and len(mail.messages) == len(paid) and mails.keys() == wanted.keys(),
        f"{len(mail.messages)} receipts mailed for {len(paid)} paid orders, each with its parcel and its invoice",
    )
    done = Order.objects.filter(receipt_sent_at__gte=F("packed_at")).filter(receipt_sent_at__gte=F("invoiced_at"))
    mailed = set(done.values_list("pk", flat=True))
    unpaid = Order.objects.exclude(pk__in=paid).exclude(packed_at=None, invoiced_at=None, receipt_sent_at=None).count()
    yield mailed == paid and not unpaid, f"{len(mailed)} orders mailed after they were packed and invoiced"

    sizes = {read_size(product) for product in Product.objects.all()}
    yield sizes == {(480, 360)}, f"{len(PHOTOS)} photos shrunk to {sorted(sizes)}"
    index = SearchIndex.objects.first()
    words = {product.slug: product.name.lower().split() for product in Product.objects.all()}
    fresh = index is not None and index.words == words and index.built <= len(PHOTOS)
    yield (
        fresh,
        f"search index of {len(words)} products built {index.built if index else 0} × after {len(PHOTOS)} changes",
    )

    yield report_is_right()
    yield export_is_complete()
    carts = Cart.objects.count()
    yield carts == NEW_CARTS, f"{carts} carts left after the clean-up"
    front_page = FrontPage.objects.first()
    yield (
        front_page is not None,
        f"front page refreshed {front_page.refreshed if front_page else 0} × by its schedule",
    )


def text_of(message: Message) -> str:
    """Return the text of a mail and of its attachments."""
    return "".join((part.get_payload(decode=True) or b"").decode() for part in message.walk())


def read_size(product: Product) -> tuple[int, int]:
    """Width and height of the thumbnail on disk, (0, 0) if there is none."""
    if not product.thumbnail:
        return (0, 0)
    with Image.open(product.thumbnail.path) as image:
        image.load()
        return image.size


def report_is_right() -> tuple[bool, str]:
    """Compare the report with the sums that were counted when the order lines were made."""
    expected = json.loads((DATA / "order_lines.totals.json").read_text())
    report = Document.objects.filter(kind=Document.Kind.REPORT).first()
    if report is None or not report.file:
        return False, "no sales report"
    sums = json.loads((settings.MEDIA_ROOT / report.file.name).read_text())
    right = all(sums[key] == expected[key] for key in ("total_cents", "months", "products"))
    return right, f"sales report: {sums['total_cents'] / 100:,.2f} € from {expected['lines']:,} lines"


def export_is_complete() -> tuple[bool, str]:
    """Check that every line is in the spreadsheet."""
    expected = json.loads((DATA / "order_lines.totals.json").read_text())["lines"]
    export = Document.objects.filter(kind=Document.Kind.EXPORT).first()
    if export is None or not export.file:
        return False, "no export"
    with ZipFile(export.file.path) as archive:
        rows = archive.read("xl/sheet1.xml").count(b"<row>")
    return rows == expected, f"export: {rows:,} rows"
