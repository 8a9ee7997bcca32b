"""Test kit: jobs in memory that the test itself inspects and runs.  No server, no worker, no sleeping.

    class ReceiptTests(JobsTestMixin, TestCase):
        def test_an_order_sends_a_receipt(self):
            self.client.post("/orders/", {"product": 1})
            self.jobs.assert_enqueued(send_receipt, args=[1])
            self.jobs.run_all()

With pytest, the fixture `jobs` is the same object.
"""

from __future__ import annotations

from django_jobs.testing.jobs import Jobs
from django_jobs.testing.mixin import JobsTestMixin
from django_jobs.testing.seen import EnqueuedJob

__all__ = ["EnqueuedJob", "Jobs", "JobsTestMixin"]
