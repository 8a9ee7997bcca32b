"""The shop's data: products, orders, and the results of the jobs."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Sum
from django.urls import reverse


class Product(models.Model):
    """Something for sale.  Prices are in cents."""

    name = models.CharField(max_length=80)
    slug = models.SlugField(unique=True)
    price = models.PositiveIntegerField()
    photo = models.FileField(upload_to="photos", blank=True)
    thumbnail = models.FileField(upload_to="thumbnails", blank=True)

    def __str__(self) -> str:
        return self.name

    @property
    def euros(self) -> str:
        """The price as text in euros."""
        return f"{self.price / 100:.2f}"


class Order(models.Model):
    """One purchase by one customer."""

    class State(models.TextChoices):
        NEW = "new"
        PAID = "paid"
        DECLINED = "declined"

    customer = models.CharField(max_length=80)
    email = models.EmailField()
    state = models.CharField(max_length=8, choices=State, default=State.NEW)
    placed_at = models.DateTimeField(auto_now_add=True)
    #: the id of the workflow in which it is paid, packed, invoiced and mailed.
    workflow = models.CharField(max_length=200, blank=True)
    packed_at = models.DateTimeField(null=True, blank=True)
    invoiced_at = models.DateTimeField(null=True, blank=True)
    invoice = models.FileField(upload_to="invoices", blank=True)
    receipt_sent_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"Order {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("order", args=[self.pk])

    @property
    def total(self) -> int:
        """The total in cents."""
        return self.lines.aggregate(total=Sum(F("quantity") * F("price")))["total"] or 0


class OrderLine(models.Model):
    """A quantity of one product, at the price of that day."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveSmallIntegerField()
    price = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} × {self.product}"


class Cart(models.Model):
    """Products that a visitor has put aside and may never buy; the nightly clean-up removes old carts."""

    touched_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"Cart {self.pk}"


class Document(models.Model):
    """A file that a long job makes: the sales report or the export."""

    class Kind(models.TextChoices):
        REPORT = "report"
        EXPORT = "export"

    kind = models.CharField(max_length=8, choices=Kind)
    file = models.FileField(upload_to="documents", blank=True)
    asked_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class SearchIndex(models.Model):
    """One row: the words of all products, and how often they were collected."""

    words = models.JSONField(default=dict)
    built = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{len(self.words)} words"


class FrontPage(models.Model):
    """One row: the content of the front page, which a schedule computes every two seconds."""

    orders = models.PositiveIntegerField(default=0)
    favourite = models.CharField(max_length=80, blank=True)
    refreshed = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.orders} orders"


class SentJob(models.Model):
    """A job that this shop enqueued, so that its pages and the demo can find it again (see middleware.py)."""

    job_id = models.CharField(max_length=200, unique=True)
    queue = models.CharField(max_length=100)
    name = models.CharField(max_length=200)
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.name} {self.job_id}"

    def get_absolute_url(self) -> str:
        return reverse("job", args=[self.job_id])
