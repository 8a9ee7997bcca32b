"""Makes `manage.py test` run the shop's tests, wherever it is started."""

from __future__ import annotations

from typing import Any

from django.test.runner import DiscoverRunner


class ShopRunner(DiscoverRunner):
    """Without labels, Django runs every test below the current folder: at the top, those of django_jobs itself."""

    def build_suite(self, test_labels: Any = None, **kwargs: Any) -> Any:
        return super().build_suite(test_labels or ["shop"], **kwargs)
