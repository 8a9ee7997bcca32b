"""On a Cluster the contract runs in a sample: it is the code that runs on one server, sent by another client."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from tests.support.dose import dose

HERE = Path(__file__).parent
#: One of so many tests, always the same ones.
SAMPLE = dose(8, long=1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _on_a_cluster(item) and not _chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _on_a_cluster(item) or _chosen(item)]


def _on_a_cluster(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("make_store") == "cluster"


def _chosen(item: pytest.Item) -> bool:
    return HERE in item.path.parents and crc32(item.nodeid.encode()) % SAMPLE == 0
