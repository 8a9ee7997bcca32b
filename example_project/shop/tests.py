"""How a project tests its jobs: with the test kit, without a server, a worker or waiting."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock, patch

from django.core import mail
from django.test import TestCase

from django_jobs import get_workflow
from django_jobs.testing import JobsTestMixin
from shop import documents, jobs
from shop.models import Order, Product, SearchIndex


class OrderTests(JobsTestMixin, TestCase):
    """The jobs that an order enqueues."""

    def setUp(self) -> None:
        media = Path(self.enterContext(TemporaryDirectory()))
        self.enterContext(self.settings(MEDIA_ROOT=media))
        Product.objects.create(name="Red mug", slug="red-mug", price=1290)

    def order(self, card: str = "tok-ok") -> Order:
        answer = self.client.post(
            "/orders/place/",
            {"product": "red-mug", "quantity": 2, "customer": "Ada", "email": "ada@example.com", "card": card},
        )
        assert answer.status_code == 302
        return Order.objects.get()

    def partners(self, accepted: bool = True) -> dict[str, Mock]:
        """Replace the bank and the warehouse until the end of the test."""
        bank = patch("shop.jobs.post_json", return_value={"accepted": accepted, "receipt": "R-7"})
        warehouse = patch("shop.jobs.post_json_async", return_value={"parcel": "P-7"})
        return {"bank": self.enterContext(bank), "warehouse": self.enterContext(warehouse)}

    def test_an_order_is_paid_then_packed_and_invoiced_then_mailed(self) -> None:
        partners = self.partners()
        order = self.order()
        self.jobs.assert_enqueued(jobs.charge_card, args=[order.pk], kwargs={"card": "tok-ok"})
        self.jobs.run_all()
        self.jobs.assert_workflow(get_workflow(order.workflow), "succeeded", succeeded=4)
        order.refresh_from_db()
        assert order.state == Order.State.PAID
        assert order.receipt_sent_at > max(order.packed_at, order.invoiced_at)
        assert "Paid: R-7" in Path(order.invoice.path).read_text(encoding="utf-8")
        (receipt,) = mail.outbox
        assert receipt.to == ["ada@example.com"]
        assert "parcel P-7" in receipt.body
        assert len(receipt.attachments) == 1
        assert [partner.call_count for partner in partners.values()] == [1, 1]

    def test_the_page_of_an_order_shows_its_progress(self) -> None:
        self.partners()
        with self.captureOnCommitCallbacks(execute=True):
            order = self.order()
        page = self.client.get(f"/orders/{order.pk}/")
        self.assertContains(page, "0 of 4 steps done")
        self.assertContains(page, "mailed: waiting")
        self.assertContains(page, 'http-equiv="refresh"')
        self.assertContains(
            self.client.get(f"/work/{order.workflow}.3/"), '<b data-field="state">waiting</b>', html=True
        )
        self.jobs.run_all()
        page = self.client.get(f"/orders/{order.pk}/")
        self.assertContains(page, "4 of 4 steps done")
        self.assertNotContains(page, 'http-equiv="refresh"')
        self.assertContains(self.client.get("/orders/"), f'href="/orders/{order.pk}/"')

    def test_the_receipt_is_mailed_once_however_often_the_job_runs(self) -> None:
        order = self.order()
        invoice = documents.write_invoice(order, "R-7")
        self.jobs.run_twice(jobs.send_receipt.enqueue(order, "P-7", invoice))
        assert [message.to for message in mail.outbox] == [["ada@example.com"]]

    def test_a_declined_card_is_not_tried_again_and_nothing_else_starts(self) -> None:
        partners = self.partners(accepted=False)
        with self.captureOnCommitCallbacks(execute=True):
            order = self.order(card="tok-declined")
        self.jobs.run_all()
        assert [partner.call_count for partner in partners.values()] == [1, 0]
        self.jobs.assert_workflow(get_workflow(order.workflow), "stopped", dead=1, waiting=3)
        order.refresh_from_db()
        assert (order.state, order.packed_at, order.invoice.name, mail.outbox) == (Order.State.DECLINED, None, "", [])
        self.assertContains(self.client.get(f"/orders/{order.pk}/"), "0 of 4 steps done, stopped: 1 dead")
        self.assertContains(self.client.get(f"/work/{order.workflow}.3/"), "not started")

    def test_an_order_whose_workflow_has_left_the_store_still_has_a_page(self) -> None:
        order = self.order()
        Order.objects.update(workflow="w0")
        self.assertContains(self.client.get(f"/orders/{order.pk}/"), f"Order {order.pk}")


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
