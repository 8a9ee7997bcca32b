"""For Django's TestCase classes: `self.jobs`."""

from __future__ import annotations

import unittest

from django_jobs.testing.jobs import Jobs


class JobsTestMixin(unittest.TestCase):
    """Put it before TestCase: every test has `self.jobs`, and starts without jobs."""

    jobs: Jobs

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        # Round everything, so that a setUp which forgets super().setUp() changes nothing.
        with Jobs() as self.jobs:
            return super().run(result)
