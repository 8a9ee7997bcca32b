"""A connection that nothing uses any more is closed, in whatever order Python collects."""

from __future__ import annotations

import gc
import sqlite3

import pytest
from django_jobs.stores.sqlite.database.connection import Connection


def drop_in_a_cycle() -> sqlite3.Connection:
    """Drop a connection that refers to itself, and of which the collector meets the driver's part first."""
    connection = Connection(":memory:")
    connection.itself = connection  # type: ignore[attr-defined]
    raw, holder = connection.raw, [connection]
    del connection
    gc.collect()  # finds `raw` in use, and our connection only by way of the list: it is the later of the two now
    del holder
    return raw


def test_a_connection_in_a_cycle_is_closed_before_python_warns_of_it() -> None:
    drop_in_a_cycle()  # from Python 3.13 on, an open one is a ResourceWarning: an error here
    gc.collect()


def test_a_connection_in_a_cycle_is_closed_with_it() -> None:
    raw = drop_in_a_cycle()
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raw.execute("SELECT 1")
