"""The ports of servers that a test starts together."""

from __future__ import annotations

import pytest

from tests.support.backends import redis_process


def test_ports_of_one_cluster_are_different_and_none_is_so_far_above_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([11_000, 11_000, 21_000, 1_000, 12_000])
    monkeypatch.setattr(redis_process, "free_port", lambda *above: next(found))
    assert redis_process.free_ports(2, 10_000) == [11_000, 12_000]
