"""For Django's TestCase classes: `self.jobs`."""

from __future__ import annotations

import unittest

from django_jobs.testing.jobs import Jobs


class JobsTestMixin(unittest.TestCase):
    """Put it before TestCase: every test then has `self.jobs`, and starts without jobs."""

    jobs: Jobs

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        # Wraps the whole run, so that a setUp without super().setUp() does not matter.
        with Jobs() as self.jobs:
            return super().run(result)
