"""Calls to a Cluster through redis-py, whose threads share connections."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis.connection import transport
from django_jobs.stores.redis.connection.cluster import ClusterTransport
from django_jobs.stores.redis.connection.scripts import load


class Torn:
    """A client whose connections another thread closes under the first calls."""

    def __init__(self, times: int) -> None:
        self.times, self.sent = times, list[tuple[Any, ...]]()

    def execute_command(self, *args: Any, **_: Any) -> str:
        self.sent.append(args)
        if len(self.sent) <= self.times:
            raise AttributeError("'NoneType' object has no attribute 'feed'")
        return "answer"


def test_a_connection_that_another_thread_closed_is_as_good_as_lost() -> None:
    client = Torn(1)
    script = load("complete")
    assert ClusterTransport(lambda: client, "there").run(script, ["k"], (0, "channel", 7, "id")) == "answer"
    numbers = [args[-2] for args in client.sent]
    assert numbers == [7, "7+"], "it is the same call, which may have been carried out"
    assert ClusterTransport(lambda: Torn(1), "there").command("TIME") == "answer"


def test_one_that_is_always_closed_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LAST_TRY", 0)
    with pytest.raises(StoreUnavailable, match="Another thread has closed the connection"):
        ClusterTransport(lambda: Torn(10**9), "there").command("TIME")
