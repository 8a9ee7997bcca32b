"""Samples of the contract: a Cluster runs the code of one server, sent by another client.

Continuous integration runs all of the contract on the oldest server, and takes a sample on the newest (CONTRACT=4)."""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

import pytest

from tests.support.dose import dose

HERE = Path(__file__).parent
#: One test of so many runs on this kind of server; always the same tests.
SAMPLES = {"redis": int(os.environ.get("CONTRACT") or 1), "cluster": dose(8, long=1)}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _chosen(item)]


def _chosen(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    kind = "redis" if callspec is None else callspec.params.get("make_store", "redis")
    if HERE not in item.path.parents:
        return kind != "cluster"
    return crc32(item.nodeid.encode()) % SAMPLES[kind] == 0
