"""The shop's background jobs.  django_jobs finds this module by itself."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Count, F
from django.utils import timezone
from django.utils.text import slugify

from django_jobs import Fail, JobContext, Snooze, Workflow, job
from shop import documents, photos, rehearsal
from shop.models import Cart, Document, FrontPage, Order, Product, SearchIndex
from shop.partners import post_json, post_json_async


def fulfilment(order: Order, card: str) -> Workflow:
    """Return what is done for an order: it is paid; then packed, and beside that invoiced; then the receipt is mailed.

    If the card is declined, nothing else starts."""
    flow = Workflow(f"order {order.pk}")
    paid = flow.add(charge_card.s(order.pk, card=card), name="paid")
    packed = flow.add(pack_order.s("warehouse", order.pk), name="packed", after=paid)
    invoiced = flow.add(write_invoice.s(order.pk, paid.result), name="invoiced")
    flow.add(send_receipt.s(order, packed.result, invoiced.result), name="mailed")
    return flow


@job(queue="payments", delivery="at_most_once", sensitive=["card"])
def charge_card(order_id: int, card: str) -> str:
    """Charge the card.  Never started twice: if a charge may have happened, a person decides, not a retry."""
    order = Order.objects.get(pk=order_id)
    answer = post_json(f"{settings.PARTNER_URL}/bank/charges", {"order": order_id, "cents": order.total, "card": card})
    if not answer["accepted"]:
        Order.objects.filter(pk=order_id).update(state=Order.State.DECLINED)
        raise Fail(f"the bank declined the card of order {order_id}")
    Order.objects.filter(pk=order_id).update(state=Order.State.PAID)
    return str(answer["receipt"])


@job(queue="webhooks", max_attempts=10, backoff=[1, 1, 2, 5], max_concurrency=4, concurrency_key="partner")
async def pack_order(partner: str, order_id: int) -> str:
    """Post the order to a partner whose server sometimes fails.  Async: a slow answer needs no thread.

    Returns the number of the parcel."""
    answer = await post_json_async(f"{settings.PARTNER_URL}/{partner}/orders", {"order": order_id})
    await Order.objects.filter(pk=order_id).aupdate(packed_at=timezone.now())
    return str(answer["parcel"])


@job(max_attempts=5)
def write_invoice(order_id: int, payment: str) -> str:
    """Write the invoice with the bank's receipt number.  Returns the file's name: a second attempt writes it again."""
    order = Order.objects.get(pk=order_id)
    name = documents.write_invoice(order, payment)
    Order.objects.filter(pk=order_id).update(invoice=name, invoiced_at=timezone.now())
    return name


@job(queue="mail", priority=10, max_attempts=5, backoff=[1, 2, 5, 30])
def send_receipt(order: Order, parcel: str, invoice: str) -> None:
    """Mail the receipt.  The order is sent as a reference, and read again here in its current state."""
    if order.receipt_sent_at:
        return  # an earlier attempt sent the receipt and died before it could report success
    mail = EmailMessage(
        f"Your order {order.pk}",
        f"Dear {order.customer},\n\nthank you for your order. It is in parcel {parcel}.\n",
        to=[order.email],
        headers={"Message-ID": f"<order-{order.pk}@shop.example>"},
    )
    mail.attach_file(str(settings.MEDIA_ROOT / invoice))
    mail.send()
    Order.objects.filter(pk=order.pk).update(receipt_sent_at=timezone.now())


@job(queue="media")
def make_thumbnail(product_id: int) -> list[int]:
    """Shrink the photo for the shop window.  Returns the size in pixels."""
    product = Product.objects.get(pk=product_id)
    name, size = photos.shrink(product.photo.name)
    Product.objects.filter(pk=product_id).update(thumbnail=name)
    return list(size)


@job(unique="queued", on_conflict="skip")
def build_search_index() -> int:
    """Collect the words of all products.  However many products change at the same time, it waits in the queue once."""
    words = {product.slug: product.name.lower().split() for product in Product.objects.all()}
    SearchIndex.objects.get_or_create(pk=1)
    SearchIndex.objects.filter(pk=1).update(words=words, built=F("built") + 1)
    return len(words)


@job(max_attempts=5)
def import_product(name: str, cents: int) -> None:
    """Add a product of the catalogue, or change its price.  One job for each line: one bad line stops no other."""
    Product.objects.update_or_create(slug=slugify(name), defaults={"name": name, "price": cents})


@job(takes_context=True, timeout=120, max_attempts=3, keep_result=86_400)
def make_sales_report(ctx: JobContext, document_id: int) -> dict[str, int]:
    """Add up last year's order lines by month and product."""
    months, products = Counter[str](), Counter[str]()
    count = 0
    for count, line in enumerate(documents.order_lines(), start=1):
        months[line.month] += line.cents
        products[line.product] += line.cents
        if count % 1000 == 0:
            ctx.checkin(f"{count} lines", progress=count / documents.EXPECTED_LINES)
    name = documents.write_report(document_id, months, products)
    Document.objects.filter(pk=document_id).update(file=name)
    return {"lines": count, "total_cents": months.total()}


@job(takes_context=True, priority=-10, max_attempts=3)
def export_orders(ctx: JobContext, document_id: int) -> int:
    """Write all order lines as a spreadsheet.  A long job: it reports its progress and stops when the worker does."""

    def report(lines: int) -> None:
        ctx.checkin(f"{lines} lines written", progress=lines / documents.EXPECTED_LINES)
        if ctx.should_stop:
            raise Snooze("the worker stops", in_=1)

    name, lines = documents.write_spreadsheet(document_id, report)
    Document.objects.filter(pk=document_id).update(file=name)
    return lines


@job(queue="rehearsal", takes_context=True, timeout=5, max_attempts=5, backoff=[1, 2, 4])
def rehearse(ctx: JobContext, kind: str, milliseconds: int = 0, fail: int = 0, hang: int = 0, crash: int = 0) -> str:
    """A job for trying failures: `fail`, `hang` and `crash` are percentages (see rehearsal.py)."""
    return rehearsal.perform(ctx, milliseconds, fail, hang, crash)


@job(cron="0 3 * * *")
def remove_old_carts() -> int:
    """Every night at three: remove carts that were not changed for 30 days."""
    deleted, _ = Cart.objects.filter(touched_at__lt=timezone.now() - timedelta(days=30)).delete()
    return deleted


@job(expires_in=10)
def refresh_front_page() -> None:
    """Every two seconds, by SCHEDULES.  It expires after ten seconds, because later ones have run by then."""
    favourite = Product.objects.annotate(sold=Count("orderline")).order_by("-sold", "name").first()
    FrontPage.objects.get_or_create(pk=1)
    FrontPage.objects.filter(pk=1).update(
        orders=Order.objects.count(), favourite=str(favourite or ""), refreshed=F("refreshed") + 1
    )
