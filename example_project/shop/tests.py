"""How a project tests its jobs: with the test kit, without a server, a worker or waiting."""

from __future__ import annotations

from unittest.mock import patch

from django.core import mail
from django.test import TestCase

from django_jobs.testing import JobsTestMixin
from shop import jobs
from shop.models import Order, Product, SearchIndex


class OrderTests(JobsTestMixin, TestCase):
    """The jobs that an order enqueues."""

    def setUp(self) -> None:
        Product.objects.create(name="Red mug", slug="red-mug", price=1290)

    def order(self, card: str = "tok-ok") -> Order:
        answer = self.client.post(
            "/orders/place/",
            {"product": "red-mug", "quantity": 2, "customer": "Ada", "email": "ada@example.com", "card": card},
        )
        assert answer.status_code == 302
        return Order.objects.get()

    def test_an_order_sends_a_receipt_and_charges_the_card(self) -> None:
        order = self.order()
        self.jobs.assert_enqueued(jobs.send_receipt, queue="mail")
        self.jobs.assert_enqueued(jobs.charge_card, args=[order.pk], kwargs={"card": "tok-ok"})

    def test_the_receipt_is_mailed_once_however_often_the_job_runs(self) -> None:
        handle = jobs.send_receipt.enqueue(self.order())
        self.jobs.run_twice(handle)
        assert [message.to for message in mail.outbox] == [["ada@example.com"]]

    def test_a_declined_card_is_not_tried_again(self) -> None:
        with patch("shop.jobs.post_json", return_value={"accepted": False}) as bank:
            order = self.order(card="tok-declined")
            self.jobs.run_all()
        assert bank.call_count == 1
        order.refresh_from_db()
        assert order.state == Order.State.DECLINED


class ImportTests(JobsTestMixin, TestCase):
    """The import of the catalogue: a batch with a page."""

    def test_an_import_is_a_batch_whose_page_shows_its_progress(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            answer = self.client.post("/catalogue/import/")
        page = self.client.get(answer["Location"])
        self.assertContains(page, "0 of 24 products")
        self.assertContains(page, 'http-equiv="refresh"')
        self.jobs.run_all()
        page = self.client.get(answer["Location"])
        self.assertContains(page, "24 of 24 products")
        self.assertNotContains(page, 'http-equiv="refresh"')
        assert Product.objects.count() == 24
        assert SearchIndex.objects.get().built == 1
        assert self.client.get("/catalogue/import/nothing/").status_code == 404
