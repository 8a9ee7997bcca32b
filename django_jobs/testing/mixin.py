"""For Django's TestCase classes: `self.jobs`."""

from __future__ import annotations

import unittest

from django_jobs.testing.jobs import Jobs


class JobsTestMixin(unittest.TestCase):
    """Put it before TestCase: every test then has `self.jobs`.

    A test begins with the jobs that setUpClass and setUpTestData enqueued, and with no others.  They have `cls.jobs`,
    with which they can run jobs, too."""

    jobs: Jobs

    @classmethod
    def setUpClass(cls) -> None:
        cls.jobs = cls.enterClassContext(Jobs())
        super().setUpClass()

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        # Wraps the whole run, so that a setUp without super().setUp() does not matter.
        with Jobs(beginning=getattr(type(self), "jobs", None)) as self.jobs:
            return super().run(result)
