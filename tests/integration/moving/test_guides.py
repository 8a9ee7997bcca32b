"""Each row of the guides about moving from another queue has a test."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["rq", "huey", "dramatiq"])
def test_each_row_has_a_test_and_each_test_a_row(name: str) -> None:
    guide = import_module(f"tests.integration.moving.test_{name}").GUIDE
    rows = guide.rows()
    assert len(rows) > 10
    assert set(rows) == guide.tested
