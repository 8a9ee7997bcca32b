"""The process that stands in the way of all others is known by its number."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from django_jobs.stores.sqlite import SqliteStore


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a lock")
def test_the_process_that_holds_the_lock_of_the_store_is_known(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    store = SqliteStore(path)
    assert store.locked_by() == 0
    store.pause("q")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with SqliteStore(path).database.write():
            os.write(write, b"!")
            os.close(write)
            os.read(os.pipe()[0], 1)
    try:
        assert os.read(read, 1) == b"!"
        assert store.locked_by() == pid
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert store.locked_by() == 0
    store.close()
    os.close(read)
    os.close(write)
