"""A day in the shop: its products, and what its customers and its office do."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.utils import timezone

from demo.customer import Customer
from shop import jobs
from shop.models import Cart, Product

DATA = settings.BASE_DIR / "data"
PHOTOS = sorted((DATA / "photos").glob("*.jpg"))
#: The card of every tenth customer is declined: that payment ends as dead, as it should.
DECLINED_EVERY = 10
OLD_CARTS, NEW_CARTS = 25, 5


def prepare() -> None:
    """Make an empty shop: tables, an administrator, products without photos, and abandoned carts."""
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("admin", "admin@example.com", "admin")
    for number, photo in enumerate(PHOTOS):
        name = photo.stem.replace("-", " ").capitalize()
        Product.objects.create(name=name, slug=photo.stem, price=1490 + 1050 * number)
    now = timezone.now()
    ages = [timedelta(days=31)] * OLD_CARTS + [timedelta(days=1)] * NEW_CARTS
    Cart.objects.bulk_create(Cart(touched_at=now - age) for age in ages)


def trade(address: str, orders: int) -> None:
    """Make photos, orders, a report, an export and the nightly clean-up; all but the last through the shop's pages."""
    customer = Customer(address)
    customer.get("/")
    customer.post("/documents/export/")
    customer.post("/documents/report/")
    for photo in PHOTOS:
        customer.upload(f"/products/{photo.stem}/photo/", "photo", photo)
    for number in range(1, orders + 1):
        customer.post(
            "/orders/place/",
            product=PHOTOS[number % len(PHOTOS)].stem,
            quantity=number % 3 + 1,
            customer=f"Customer {number}",
            email=f"customer{number}@example.com",
            card="tok-declined" if number % DECLINED_EVERY == 0 else f"tok-{number}",
        )
    jobs.remove_old_carts.enqueue()
